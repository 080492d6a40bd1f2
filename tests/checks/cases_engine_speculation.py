"""Cases of speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping

from tests.checks.support import SGLANG_AGG, SGLANG_DISAGG, TRTLLM_AGG, VLLM_AGG, Case, graph

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
    return graph(TRTLLM_AGG, {"speculation": EAGLE, **speculative, **(more or {})})


def vllm(method: str, more: Mapping[str, object]) -> str:
    """The pool's options are merged over those of the graph's `speculation`."""
    speculative = {"method": method, "model": "m", "num_speculative_tokens": 3}
    return graph(VLLM_AGG, {"worker/config/speculative-config": speculative, **more})


def sglang(algorithm: str, **options: object) -> str:
    changes = {f"worker/config/speculative-{k.replace('_', '-')}": v for k, v in options.items()}
    return graph(SGLANG_AGG, {"worker/config/speculative-algorithm": algorithm, **changes})


def tree(width: int, attention: str) -> str:
    """SGLang with a draft tree, or a chain, and an attention backend."""
    options = {"num-steps": 3, "eagle-topk": width, "num-draft-tokens": 4}
    changes = {f"worker/config/speculative-{name}": value for name, value in options.items()}
    named = {"speculative-algorithm": "EAGLE3", "attention-backend": attention}
    return graph(SGLANG_AGG, {**changes, **{f"worker/config/{k}": v for k, v in named.items()}})


def staged(pool: str, algorithm: str) -> str:
    """SGLang with speculative decoding in one pool of two pipeline stages."""
    changes = {"pp-size": 2, "tp-size": 1, "speculative-algorithm": algorithm}
    return graph(SGLANG_DISAGG, {f"{pool}/config/{key}": v for key, v in changes.items()})


CASES: tuple[Case, ...] = (
    Case(
        rule="PS131",
        bad=drafting({"max_concurrency": 32, "draft_len_schedule": {"4": 3, "32": 1}}),
        near=drafting({"draft_len_schedule": {"4": 3, "32": 1}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS131",  # ordered by batch size, not by position in the file
        bad=drafting({"draft_len_schedule": {"4": 2, "32": 3}}),
        near=drafting({"draft_len_schedule": {"32": 2, "4": 3}}),
    ),
    Case(
        rule="PS132",
        bad=drafting({"use_dynamic_tree": True}),
        near=drafting({"use_dynamic_tree": False}),
    ),
    Case(
        rule="PS132",
        bad=drafting({**TREE, "use_rejection_sampling": True, "dynamic_tree_max_topK": 33}),
        near=drafting({**TREE, "use_rejection_sampling": True, "dynamic_tree_max_topK": 32}),
    ),
    Case(
        rule="PS132",  # only rejection sampling has the bound
        bad=drafting({**TREE, "dynamic_tree_max_topK": 0}),
        near=drafting({**TREE, "dynamic_tree_max_topK": 33}),
    ),
    Case(
        rule="PS133",
        bad=drafting({"use_rejection_sampling": True, "sa_config": {}}),
        near=drafting({"use_rejection_sampling": False, "sa_config": {}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS134",
        bad=drafting({}, STAGES),
        near=graph(TRTLLM_AGG, STAGES),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS134",
        bad=vllm("eagle3", {"worker/config/pipeline-parallel-size": 2}),
        near=vllm("ngram", {"worker/config/pipeline-parallel-size": 2}),
    ),
    Case(
        rule="PS134",  # a former name of MTP
        bad=vllm("deepseek_mtp", {"worker/config/pipeline-parallel-size": 2}),
        near=vllm("deepseek_mtp", {"worker/config/pipeline-parallel-size": 1}),
    ),
    Case(
        rule="PS134",
        bad=staged("prefill", "EAGLE3"),
        near=staged("prefill", "NEXTN"),
    ),
    Case(
        rule="PS134",
        bad=staged("decode", "EAGLE"),
        near=staged("prefill", "EAGLE"),
    ),
    Case(
        rule="PS135",
        bad=graph(TRTLLM_AGG, {"speculation": V2, "model/context_length": 8193}),
        near=graph(TRTLLM_AGG, {"speculation": V2, "model/context_length": 8192}),
    ),
    Case(
        rule="PS135",
        bad=graph(VLLM_AGG, {"speculation": V2}),
        near=graph(VLLM_AGG, {"speculation": EAGLE}),
    ),
    Case(
        rule="PS136",
        bad=graph(TRTLLM_AGG, {"speculation": {**THROUGHPUT, "draft_tokens": 2}}),
        near=graph(TRTLLM_AGG, {"speculation": {**THROUGHPUT, "draft_tokens": 1}}),
    ),
    Case(
        rule="PS136",
        bad=graph(VLLM_AGG, {"speculation": {**THROUGHPUT, "draft_tokens": 3}}),
        near=graph(VLLM_AGG, {"speculation": {**EAGLE, "draft_tokens": 3}}),
    ),
    Case(
        rule="PS137",
        bad=drafting({}, {BATCH: 128}),
        near=drafting({}, {BATCH: 127}),
    ),
    Case(
        rule="PS137",
        bad=drafting({}, {BATCH: 256}),
        near=drafting({"max_concurrency": 32}, {BATCH: 256}),
    ),
    Case(
        rule="PS138",
        bad=sglang("EAGLE3", num_steps=3),
        near=sglang("EAGLE3"),
    ),
    Case(
        rule="PS138",  # a chain needs no number of draft tokens, a tree does
        bad=sglang("EAGLE3", num_steps=3, eagle_topk=4),
        near=sglang("EAGLE3", num_steps=3, eagle_topk=1),
    ),
    Case(
        rule="PS138",
        bad=sglang("EAGLE", num_draft_tokens=4),
        near=sglang("NGRAM", num_draft_tokens=4),
    ),
    Case(
        rule="PS139",
        bad=vllm("ngram", {"worker/config/async-scheduling": True}),
        near=vllm("ngram_gpu", {"worker/config/async-scheduling": True}),
    ),
    Case(
        rule="PS139",
        bad=graph(VLLM_AGG, {"speculation": NGRAM, "worker/args": ["--async-scheduling"]}),
        near=graph(VLLM_AGG, {"speculation": NGRAM, "worker/args": ["--no-async-scheduling"]}),
    ),
    Case(
        rule="PS139",
        bad=vllm("suffix", {"worker/config/async-scheduling": True}),
        near=vllm("qwen3_next_mtp", {"worker/config/async-scheduling": True}),
    ),
    Case(
        rule="PS152",
        bad=tree(4, "trtllm_mha"),
        near=tree(1, "trtllm_mha"),
    ),
    Case(
        rule="PS152",
        bad=tree(2, "trtllm_mha"),
        near=tree(2, "fa3"),
    ),
    Case(
        rule="PS140",
        bad=drafting({}),
        near=drafting({}, {"worker/config/kv_cache_config/enable_block_reuse": False}),
        fixed=drafting(
            {},
            {
                "worker/config/kv_cache_config/enable_block_reuse": False,
                "router/mode": "least-loaded",
            },
        ),
    ),
    Case(
        rule="PS154",
        bad=graph(
            VLLM_AGG,
            {"worker/config/speculative-config": {"method": "eagle3", "num_speculative_tokens": 3}},
        ),
        near=vllm("eagle3", {}),
    ),
    Case(
        rule="PS154",  # n-gram drafting needs no model
        bad=graph(VLLM_AGG, {"worker/config/speculative-config": {"num_speculative_tokens": 3}}),
        near=graph(
            VLLM_AGG,
            {"worker/config/speculative-config": {"method": "ngram", "num_speculative_tokens": 3}},
        ),
    ),
    Case(
        rule="PS154",
        bad=sglang("EAGLE3"),
        near=sglang("EAGLE3", draft_model_path="nvidia/gpt-oss-120b-Eagle3-v3"),
    ),
)
