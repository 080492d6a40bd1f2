"""Rules about variables of vLLM and SGLang that the version in the image does not read."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.command_line.variables import VARIABLES_WITHOUT_EFFECT
from penstock.checks.rules.engine_config.accepted_values import ENGINES, since, versions_of
from penstock.checks.version_range import Versions
from penstock.engines.value_history import refusals
from penstock.serving.deployment import ServingDeployment

PREFIXES = ("VLLM_", "SGLANG_")


@rule(
    id="PS177",
    title="variable that this version of the engine does not read",
    level=Level.WARNING,
    cause="vLLM and SGLang add and remove variables, and no file of the version in the image names "
    "this one.",
    effect="The setting is ignored. vLLM logs that it does not know the variable.",
    remedy="Remove the variable, or use the flag that replaced it.",
    source="engines/data/value_history.json: the variables that vllm/envs.py of 0.14.1 to 0.31.0 "
    "and sglang/srt/environ.py of 0.5.6 to 0.5.21 declare, and where the packages name them",
    versions=Versions(vllm=">=0.14,<0.32", sglang=">=0.5.6,<0.5.22"),
)
def unread_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        engine = worker.engine
        names = worker.launch.env if engine in ENGINES else ()
        for name in names:
            if not name.startswith(PREFIXES) or name in VARIABLES_WITHOUT_EFFECT:
                continue
            for refusal in refusals(engine, "variables", "named", name):
                yield RuleResult(
                    location=worker.location("env", name),
                    message=f"{name} has no effect{since(engine, refusal)}",
                    fix=Fix(text=f"Remove {name}.", env={name: None}),
                    versions=versions_of(engine, refusal),
                )
