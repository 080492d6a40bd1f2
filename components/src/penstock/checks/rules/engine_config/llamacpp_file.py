"""The rules about the configuration and the model of penstock's own llama.cpp worker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import PENSTOCK
from penstock.engines.settings import Location
from penstock.environments.packaged_models import packaged_ids
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.manifests.source import LOCAL_IMAGE
from penstock.serving.deployment import ServingDeployment
from penstock.shipped import page

if TYPE_CHECKING:
    from penstock.llamacpp.config import InvalidOption

GGUF = b"GGUF"


@rule(
    id="PS160",
    title="option that the llama.cpp worker rejects",
    level=Level.ERROR,
    cause="engine.config has a key that penstock's llama.cpp worker does not know, or a value that "
    "it does not accept.",
    effect="The worker exits at startup and names the option.",
    remedy=f"Use an option of the table in {page('llamacpp')}.",
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


@rule(
    id="PS179",
    title="no GGUF file for llama.cpp",
    level=Level.ERROR,
    cause="The graph has no engine.image, so that it runs on this machine, and model.path (or "
    "model.id without it) is not a GGUF file here. A missing file is a warning, because the graph "
    "may be meant for another machine.",
    effect="`penstock up` refuses the graph.",
    remedy="Set model.path to a GGUF file, relative to the folder in which you run penstock, or "
    "model.id to a packaged model.",
    source="penstock/local/llamacpp_engine.py, which `up` finds the file with",
    versions=PENSTOCK,
    other_levels=(Level.WARNING,),
)
def missing_gguf_file(deployment: ServingDeployment) -> Iterable[RuleResult]:
    workers = [w for w in deployment.workers if w.engine is Engine.LLAMACPP]
    if not deployment.is_graph or not workers:
        return
    model = workers[0].settings.common("model")
    if model is None or workers[0].component.image != LOCAL_IMAGE:
        return
    problem, level = _file_problem(str(model.value))
    if problem:
        by_id = str(model.value) == deployment.model_name
        yield RuleResult(
            location=Location("", "graph", ("model", "id" if by_id else "path")),
            message=f"{str(model.value)!r} {problem}",
            fix=Fix(
                text="Set model.path to a GGUF file on this machine, or model.id to "
                f"{' or '.join(packaged_ids('gguf'))}, which is packaged."
            ),
            level=level,
        )


def _file_problem(model: str) -> tuple[str, Level]:
    if model in packaged_ids("gguf"):
        return "", Level.ERROR
    path = Path(model).expanduser()
    if not path.is_file():
        return f"is {'a folder' if path.is_dir() else 'no file'} on this machine", Level.WARNING
    try:
        with path.open("rb") as stream:
            beginning = stream.read(len(GGUF))
    except OSError as error:
        return f"cannot be read: {error.strerror}", Level.WARNING
    return ("" if beginning == GGUF else "is not a GGUF file"), Level.ERROR


def _fix(option: InvalidOption, config: KnownConfig) -> Fix:
    key = ".".join(option.path)
    if option.fix:
        return Fix(text=option.fix)
    if not option.near:
        return Fix(text=f"Correct or remove {key}; {page('llamacpp')} lists the options.")
    renamed = ".".join((*option.path[:-1], option.near))
    value = config.values
    for step in option.path:
        value = value[step]
    return Fix(text=f"Rename {key} to {renamed}.", config={renamed: value}, replaces=key)
