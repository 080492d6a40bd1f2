"""Rules about structured output: settings with which a response does not follow its schema."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.responses.responses import REASONING_FLAG, parser
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment

SKIP, OWN = "skip-tokenizer-init", "reasoning-parser"
# Parsers that take what comes before the end of thinking as reasoning, even without its beginning.
IMPLICIT = ("glm45", "qwen3", "deepseek_r1")


def no_grammar(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        if worker.engine is Engine.SGLANG and worker.get(SKIP) is True and not worker.embeds:
            yield RuleResult(
                location=worker.config_location(SKIP),
                message=f"{SKIP} turns structured output off",
                fix=Fix(text=f"Remove {SKIP}.", config={SKIP: None}),
            )


def response_in_reasoning(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        name = parser(worker, REASONING_FLAG)
        if worker.engine is not Engine.VLLM or worker.role is Role.PREFILL:
            continue
        if name in IMPLICIT and worker.get(OWN) is None and worker.settings.is_complete:
            given = worker.flag(REASONING_FLAG)
            yield RuleResult(
                location=Location(worker.name, "args", (given.spelling,))
                if given is not None
                else worker.config_location(OWN),
                message=f"{REASONING_FLAG} {name} without vLLM's --{OWN}: JSON responses end up in "
                "reasoning_content",
                fix=Fix(text=f"Add --{OWN} {name}."),
            )
