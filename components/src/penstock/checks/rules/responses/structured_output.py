"""Rules about structured output: settings with which a response does not follow its schema."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.responses.responses import REASONING_FLAG, parser
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment

SKIP, OWN = "skip-tokenizer-init", "reasoning-parser"
# Parsers that take what comes before the end of thinking as reasoning, even without its beginning.
IMPLICIT = ("glm45", "qwen3", "deepseek_r1")


@rule(
    id="PS611",
    title="SGLang without a tokenizer ignores response formats",
    level=Level.WARNING,
    cause="SGLang creates no grammar backend with --skip-tokenizer-init. Since Dynamo 1.1 the "
    "worker does not need the flag: it gets tokens from the frontend in any case.",
    effect="Requests with response_format json_schema, or with another constraint of the output, "
    "get a response that does not follow it, or none.",
    remedy="Remove the flag.",
    source="sglang/srt/constrained/grammar_manager.py 29 of 0.5.9, 35 of 0.5.21; "
    "dynamo/sglang/args.py 385 of 1.0.2 (sets the flag itself) and 1.1.1 (does not); dynamo#13602, "
    "dynamo#6620, dynamo#13605",
    versions=Versions(dynamo=">=1.1"),
)
def no_grammar(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        if worker.engine is Engine.SGLANG and worker.get(SKIP) is True and not worker.embeds:
            yield RuleResult(
                location=worker.config_location(SKIP),
                message=f"{SKIP} turns structured output off",
                fix=Fix(text=f"Remove {SKIP}.", config={SKIP: None}),
            )


@rule(
    id="PS612",
    title="structured output ends up in the reasoning",
    level=Level.WARNING,
    cause="With --dyn-reasoning-parser alone vLLM applies a response format from the first token "
    "on, so the model writes no end of thinking, and the parser takes everything as reasoning.",
    effect="content is null for requests with response_format, and the JSON is in "
    "reasoning_content.",
    remedy="Set vLLM's own --reasoning-parser too.",
    source="dynamo#11203, dynamo#11512 (fixed in 1.3); dynamo/vllm of 0.8.1, the first "
    "with structured output",
    versions=Versions(dynamo=">=0.8,<1.3"),
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
