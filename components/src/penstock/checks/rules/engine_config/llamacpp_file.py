"""The rule about the configuration of penstock's own llama.cpp worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import PENSTOCK
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.serving.deployment import ServingDeployment

if TYPE_CHECKING:
    from penstock.llamacpp.config import InvalidOption


@rule(
    id="PS160",
    title="option that the llama.cpp worker rejects",
    level=Level.ERROR,
    cause="engine.config has a key that penstock's llama.cpp worker does not know, or a value that "
    "it does not accept.",
    effect="The worker exits at startup and names the option.",
    remedy="Use an option of the table in docs/llamacpp.md.",
    source="penstock/llamacpp/config.py, which the worker reads its file with",
    versions=PENSTOCK,
    engines=(Engine.LLAMACPP,),
)
def invalid_llamacpp_option(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.component.engine_config
        if worker.engine is Engine.LLAMACPP and isinstance(config, KnownConfig):
            from penstock.llamacpp.config import invalid_options  # it imports pydantic

            for option in invalid_options(config.values):
                yield RuleResult(
                    location=worker.location("config", *option.path),
                    message=str(option),
                    fix=_fix(option, config),
                )


def _fix(option: InvalidOption, config: KnownConfig) -> Fix:
    key = ".".join(option.path)
    if not option.near:
        return Fix(text=f"Correct or remove {key}; docs/llamacpp.md lists the options.")
    renamed = ".".join((*option.path[:-1], option.near))
    value = config.values
    for step in option.path:
        value = value[step]
    return Fix(text=f"Rename {key} to {renamed}.", config={renamed: value}, replaces=key)
