"""Rules about values of vLLM's speculative-config that exclude each other or the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import RuleResult
from penstock.checks.rules.speculation.speculative_decoding import (
    current_method,
    draft_length,
    speculating_workers,
)
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SECTION = "speculative-config"
# Parts of `model_type` of the targets that EAGLE-3 supports, by version
# (eagle3_target_supported and aux_hidden_states_supported in vllm/config/speculative.py).
_OLDEST = ("llama", "qwen", "minicpm", "gpt_oss")
_NEXT = (*_OLDEST, "hunyuan_vl", "hunyuan_v1_dense", "afmoe")
_LATER = (*_NEXT, "nemotron_h", "deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")
EAGLE3_TARGETS: Mapping[str, tuple[str, ...]] = {
    "<0.15": _OLDEST,
    ">=0.16,<0.17": _NEXT,
    ">=0.19,<0.20": _LATER,
    ">=0.20.1,<0.21": (*_LATER, "minimax_m2", "gemma4"),
}
WITH_DRAFT_CHECKPOINT = ("eagle", "eagle3", "draft_model", "medusa")


def refused_drafts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        if worker.engine is Engine.VLLM:
            facts = deployment.facts_of(worker)
            found = [*_lookup(value), *_tokens(value), *_target(value, facts)]
            yield from results(worker, (*found, *_other_settings(worker, value)))


def _method(value: Mapping[str, Any]) -> str:
    return current_method(str(value.get("method") or ""))


def _lookup(value: Mapping[str, Any]) -> Iterator[Exclusion]:
    least = positive_int(value.get("prompt_lookup_min"))
    most = positive_int(value.get("prompt_lookup_max"))
    if least and most and least > most:
        yield Exclusion(
            key=f"{SECTION}.prompt_lookup_min",
            problem=f"prompt_lookup_min {least} is above prompt_lookup_max {most}",
            fix=f"Set prompt_lookup_min to at most {most}.",
        )


def _tokens(value: Mapping[str, Any]) -> Iterator[Exclusion]:
    method = _method(value)
    if method in WITH_DRAFT_CHECKPOINT and value.get("model") and draft_length(value) is None:
        if value.get("num_speculative_tokens") is None:
            yield Exclusion(
                key=SECTION,
                problem=f"method {method} without num_speculative_tokens",
                fix="Set num_speculative_tokens, for instance to 3.",
            )
    if method == "draft_model":
        yield Exclusion(
            key=f"{SECTION}.method",
            problem="this version does not support draft models",
            fix="Use EAGLE, MTP or n-gram.",
            versions="<0.16",
        )


def _target(value: Mapping[str, Any], facts: ModelFacts | None) -> Iterator[Exclusion]:
    if _method(value) != "eagle3" or facts is None or not facts.kind:
        return
    for versions, supported in EAGLE3_TARGETS.items():
        if not any(part in facts.kind for part in supported):
            yield Exclusion(
                key=f"{SECTION}.method",
                problem=f"eagle3 does not support models of type {facts.kind} in this version",
                fix="Use MTP or n-gram, or a newer image.",
                versions=versions,
            )


def _other_settings(worker: Worker, value: Mapping[str, Any]) -> Iterator[Exclusion]:
    unpadded = value.get("disable_padded_drafter_batch") is True
    if unpadded and worker.get("async-scheduling") is True:
        yield Exclusion(
            key="async-scheduling",
            problem="async-scheduling does not work with disable_padded_drafter_batch",
            fix="Remove disable_padded_drafter_batch.",
            versions="<0.33",
        )
    if worker.get("kv-sharing-fast-prefill") is True and _method(value).startswith("eagle"):
        yield Exclusion(
            key="kv-sharing-fast-prefill",
            problem=f"kv-sharing-fast-prefill does not work with method {_method(value)}",
            fix="Remove kv-sharing-fast-prefill.",
        )
