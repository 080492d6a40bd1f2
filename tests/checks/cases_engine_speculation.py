"""Cases of speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping

from tests.checks.own_manifests import component, deployment, flags
from tests.checks.support import (
    OMIT,
    Case,
    X,
    sglang_agg,
    sglang_disagg,
    trtllm_agg,
    vary,
    vllm_agg,
)

EAGLE = {"method": "eagle3", "draft_model": "nvidia/gpt-oss-120b-Eagle3-v3"}
V2 = {"method": "eagle3", "draft_model": "nvidia/gpt-oss-120b-Eagle3-v2"}
THROUGHPUT = {"method": "eagle3", "draft_model": "nvidia/gpt-oss-120b-Eagle3-throughput"}
NGRAM = {"method": "ngram"}
TREE = {"use_dynamic_tree": True}
STAGES = {"worker/config/pipeline_parallel_size": 2}
BATCH = "worker/config/max_batch_size"


def drafting(changes: Mapping[str, object], more: Mapping[str, object] | None = None) -> str:
    """TensorRT-LLM with EAGLE-3, three draft tokens, and ``changes`` to speculative_config."""
    speculative = {f"worker/config/speculative_config/{k}": v for k, v in changes.items()}
    return trtllm_agg({"speculation": EAGLE, **speculative, **(more or {})})


def vllm(method: str, more: Mapping[str, object]) -> str:
    """The pool's options are merged over those of the graph's `speculation`."""
    speculative = {"method": method, "model": "m", "num_speculative_tokens": 3}
    return vllm_agg({"worker/config/speculative-config": speculative, **more})


def mtp_in_stages(version: str, model: str) -> str:
    drafts = '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
    args = (*flags(model, pipeline_parallel_size=2), "--speculative-config", drafts)
    return deployment(component("vllm", *args, version=version, gpus=2), version=version)


def sglang(algorithm: str, **options: object) -> str:
    changes = {f"worker/config/speculative-{k.replace('_', '-')}": v for k, v in options.items()}
    return sglang_agg({"worker/config/speculative-algorithm": algorithm, **changes})


def tree(width: int, attention: str) -> str:
    """SGLang with a draft tree, or a chain, and an attention backend."""
    options = {"num-steps": 3, "eagle-topk": width, "num-draft-tokens": 4}
    changes = {f"worker/config/speculative-{name}": value for name, value in options.items()}
    named = {"speculative-algorithm": "EAGLE3", "attention-backend": attention}
    return sglang_agg({**changes, **{f"worker/config/{k}": v for k, v in named.items()}})


def staged(pool: str, algorithm: str) -> str:
    """SGLang with speculative decoding in one pool of two pipeline stages."""
    changes = {"pp-size": 2, "tp-size": 1, "speculative-algorithm": algorithm}
    return sglang_disagg({f"{pool}/config/{key}": v for key, v in changes.items()})


CASES: tuple[Case, ...] = (
    vary("PS131", drafting, {"max_concurrency": X, "draft_len_schedule": {"4": 3, "32": 1}})(
        32, OMIT, is_repaired_by_near=True
    ),
    # ordered by batch size, not by position in the file
    vary("PS131", drafting, {"draft_len_schedule": X})({"4": 2, "32": 3}, {"32": 2, "4": 3}),
    vary("PS132", drafting, {"use_dynamic_tree": X})(True, False),
    vary("PS132", drafting, {**TREE, "use_rejection_sampling": True, "dynamic_tree_max_topK": X})(
        33, 32
    ),
    # only rejection sampling has the bound
    vary("PS132", drafting, {**TREE, "dynamic_tree_max_topK": X})(0, 33),
    vary("PS133", drafting, {"use_rejection_sampling": X, "sa_config": {}})(
        True, False, is_repaired_by_near=True
    ),
    Case("PS134", drafting({}, STAGES), trtllm_agg(STAGES), is_repaired_by_near=True),
    vary("PS134", vllm, X, {"worker/config/pipeline-parallel-size": 2})("eagle3", "ngram"),
    # a former name of MTP; the draft has stages before vLLM 0.31
    vary("PS134", mtp_in_stages, X, "Qwen/Qwen3.5-27B")("1.4.0", "1.6.1"),
    # its MTP class supports them
    vary("PS134", mtp_in_stages, "1.4.0", X)(
        "deepseek-ai/DeepSeek-V3.1", "nvidia/Nemotron-H-56B-Base-8K"
    ),
    vary("PS134", staged, "prefill", X)("EAGLE3", "NEXTN"),
    vary("PS134", staged, X, "EAGLE")("decode", "prefill"),
    vary("PS135", trtllm_agg, {"speculation": V2, "model/context_length": X})(8193, 8192),
    vary("PS135", vllm_agg, {"speculation": X})(V2, EAGLE),
    vary("PS136", trtllm_agg, {"speculation": {**THROUGHPUT, "draft_tokens": X}})(2, 1),
    vary("PS136", vllm_agg, {"speculation": X})(
        {**THROUGHPUT, "draft_tokens": 3}, {**EAGLE, "draft_tokens": 3}
    ),
    vary("PS137", drafting, {}, {BATCH: X})(128, 127),
    vary("PS137", drafting, {"max_concurrency": X}, {BATCH: 256})(OMIT, 32),
    vary("PS138", sglang, "EAGLE3", num_steps=X)(3, OMIT),
    # a chain needs no number of draft tokens, a tree does
    vary("PS138", sglang, "EAGLE3", num_steps=3, eagle_topk=X)(4, 1),
    vary("PS138", sglang, X, num_draft_tokens=4)("EAGLE", "NGRAM"),
    vary("PS139", vllm, X, {"worker/config/async-scheduling": True})("ngram", "ngram_gpu"),
    vary("PS139", vllm_agg, {"speculation": NGRAM, "worker/args": X})(
        ["--async-scheduling"], ["--no-async-scheduling"]
    ),
    vary("PS139", vllm, X, {"worker/config/async-scheduling": True})("suffix", "qwen3_next_mtp"),
    vary("PS152", tree, X, "trtllm_mha")(4, 1),
    vary("PS152", tree, 2, X)("trtllm_mha", "fa3"),
    vary("PS140", drafting, {}, X)(
        OMIT,
        {"worker/config/kv_cache_config/enable_block_reuse": False},
        fixed=drafting(
            {},
            {
                "worker/config/kv_cache_config/enable_block_reuse": False,
                "router/mode": "least-loaded",
            },
        ),
    ),
    Case(
        "PS154",
        vllm_agg(
            {"worker/config/speculative-config": {"method": "eagle3", "num_speculative_tokens": 3}}
        ),
        vllm("eagle3", {}),
    ),
    # n-gram drafting needs no model
    vary(
        "PS154",
        vllm_agg,
        {"worker/config/speculative-config": {"method": X, "num_speculative_tokens": 3}},
    )(OMIT, "ngram"),
    vary("PS154", sglang, "EAGLE3", draft_model_path=X)(OMIT, "nvidia/gpt-oss-120b-Eagle3-v3"),
)
