"""Rules about SGLang's attention backends for MLA, and about attention DP with drafts."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.parallelism.kernels import ATTENTION_BACKENDS
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment

# Backends for MLA that need Blackwell.
OF_MLA = ("trtllm_mla", "tokenspeed_mla", "cutedsl_mla")
WITHOUT_ATTENTION_DP = ("NGRAM", "STANDALONE")


def mla_backend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        facts = deployment.facts_of(worker)
        for key in ATTENTION_BACKENDS:
            backend = worker.get(key)
            if backend not in OF_MLA:
                continue
            problem = ""
            if gpu is not None and gpu.sm < 100:
                problem = f"is not supported on {gpu.name} (SM {gpu.sm})"
            elif facts is not None and facts.head_sizes and not facts.is_mla:
                problem = f"supports only models with MLA, not {worker.value('model')}"
            if problem:
                yield RuleResult(
                    location=worker.config_location(key),
                    message=f"{key} {backend} {problem}",
                    fix=Fix(text=f"Remove {key}.", config={key: None}),
                )


def drafts_with_attention_dp(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        method = str(worker.value("speculation")).upper()
        has_ranks = (worker.count("data_parallel") or 1) > 1
        if worker.engine is Engine.SGLANG and method in WITHOUT_ATTENTION_DP and has_ranks:
            if worker.has_attention_dp:
                yield RuleResult(
                    location=worker.settings.location("speculation"),
                    message=f"speculative-algorithm {method} does not support enable-dp-attention",
                    fix=Fix(text="Remove enable-dp-attention, or use EAGLE."),
                )
