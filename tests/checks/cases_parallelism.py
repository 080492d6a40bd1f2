"""Cases of parallelism and kernels (PS2xx); also collects those of KV transfer."""

from __future__ import annotations

from functools import partial

from tests.checks import cases_kv_transfer, cases_network
from tests.checks.model_folders import LATENT, model
from tests.checks.support import (
    OMIT,
    SGLANG_AGG,
    TRTLLM_AGG,
    VLLM_AGG,
    Case,
    X,
    graph,
    sglang_disagg,
    trtllm_agg_dgd,
    trtllm_disagg,
    vary,
    vllm_agg_dgd,
    vllm_disagg,
)

OLD_VLLM = {"engine/image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1"}


DENSE = model("dense", model_type="llama")
SIXTY = model("sixty-experts", model_type="qwen2_moe", num_experts=60, moe_intermediate_size=1408)
trtllm, vllm, sglang = (partial(graph, base) for base in (TRTLLM_AGG, VLLM_AGG, SGLANG_AGG))
sglang_pools = partial(sglang_disagg)
H100 = {"gpu": "h100", "gpus_per_node": 8}
H200 = {"gpu": "h200", "gpus_per_node": 8}
GB200 = {"gpu": "gb200", "gpus_per_node": 4}
WORKER = "dgd/spec/components/worker"
# Keys of TensorRT-LLM.
TP = "worker/config/tensor_parallel_size"
PP = "worker/config/pipeline_parallel_size"
TRITON = {"hardware": H200, "engine/config/moe_config/backend": "TRITON"}
EP = "worker/config/moe_expert_parallel_size"
MOE_TP = "worker/config/moe_tensor_parallel_size"
VLLM_TP = "worker/config/tensor-parallel-size"
GPU_LIMIT = f"{WORKER}/podTemplate/spec/containers/main/resources/limits/nvidia.com~1gpu"
STAGED = {"SGLANG_DISAGG_STAGING_BUFFER": "1"}
NO_WINDOWS = {"page-size": 64, "disable-hybrid-swa-memory": True}
TWO_NODES = {"worker/gpus": 8, "worker/nodes": 2}


def script(text: str) -> str:
    """A vLLM worker with two GPUs that a script starts."""
    main = f"{WORKER}/podTemplate/spec/containers/main"
    return vllm_agg_dgd({f"{main}/command": ["bash", "-c"], f"{main}/args": [text]})


RUN = "python3 -m dynamo.vllm --model openai/gpt-oss-120b --tensor-parallel-size"
EITHER = f'if [ "$(hostname)" = first ]; then exec {RUN} 2; else exec {RUN} 2 --headless; fi'

PARALLEL = (
    # only one branch of a script runs
    vary("PS205", script)(f"{RUN} 2 & {RUN} 2 & wait", EITHER),
    # a value known only when the script runs
    vary("PS205", script)(f"exec {RUN} 4", f"exec {RUN} $(nvidia-smi -L | wc -l)"),
    vary("PS307", script)(f"exec {RUN} $(nvidia-smi -L | wc -l)", f"exec {RUN} 2", gpu="b200"),
    vary("PS201", trtllm, {EP: 2, MOE_TP: X})(4, 2),
    vary("PS201", trtllm, {EP: X})(8, 4),
    # on the command line
    vary("PS201", trtllm, {"worker/args": X})(
        ["--expert-parallel-size", "3"], ["--expert-parallel-size", "2"]
    ),
    vary("PS202", trtllm, {"worker/gpus": 3, "worker/config/enable_attention_dp": X})(OMIT, True),
    # PS211 requires as many expert ranks
    vary("PS202", trtllm)(
        {**TRITON, "worker/gpus": 6, "worker/config/tensor_parallel_size": 6},
        {**TRITON, "worker/gpus": 8, EP: 8},
    ),
    vary("PS202", trtllm)({**TRITON, "worker/gpus": 6, EP: 6}, {**TRITON, "worker/gpus": 4, EP: 4}),
    vary("PS202", vllm, {"worker/gpus": 6, "worker/config/pipeline-parallel-size": X})(OMIT, 3),
    vary("PS203", trtllm, {"model/path": SIXTY, "worker/gpus": 8, EP: X})(8, 4),
    # vLLM distributes the remainder
    Case(
        "PS203",
        sglang({"model/path": SIXTY, "worker/gpus": 8, "worker/config/ep-size": 8}),
        vllm(
            {
                "worker/gpus": 3,
                "worker/config/data-parallel-size": 3,
                "worker/config/enable-expert-parallel": True,
            }
        ),
    ),
    vary("PS203", sglang, {"model/path": X, "worker/gpus": 8, "worker/config/ep-size": 8})(
        SIXTY, OMIT
    ),
    vary("PS204", trtllm, {"model/path": DENSE, EP: X})(4, 1),
    vary("PS204", vllm, {"model/path": X, "worker/config/enable-expert-parallel": True})(
        DENSE, OMIT
    ),
    vary("PS205", trtllm)({TP: 8}, {TP: 2, PP: 2}, is_example=True),
    # unused GPUs
    vary("PS205", trtllm, {TP: 2, "worker/config/context_parallel_size": X})(OMIT, 2),
    # the other ranks of the group run in other replicas
    vary(
        "PS205",
        vllm,
        {VLLM_TP: 2, "worker/config/data-parallel-size": 2, "worker/config/data-parallel-rank": X},
    )(OMIT, 1),
    vary(
        "PS205",
        vllm,
        {"worker/gpus": 4, "worker/config/prefill-context-parallel-size": X, VLLM_TP: 2},
    )(OMIT, 2),
    vary(
        "PS205",
        sglang,
        {
            "worker/config/tp-size": 2,
            "worker/config/dp-size": 2,
            "worker/config/enable-dp-attention": X,
        },
    )(OMIT, True),
    vary("PS205", trtllm_agg_dgd, {GPU_LIMIT: "2", f"{WORKER}/multinode": X})(
        OMIT, {"nodeCount": 2}
    ),
    vary("PS205", trtllm_agg_dgd)({GPU_LIMIT: "64"}, OMIT),  # more GPUs than any node has
    vary("PS206", trtllm)(
        {"hardware": {"gpu": "b200"}, "worker/gpus": 16}, {"hardware": {"gpu": "b200"}} | TWO_NODES
    ),
    # a GB200 node has four GPUs
    vary("PS206", trtllm, {"hardware": {"gpu": X}, "worker/gpus": 8})("gb200", "b200"),
    vary("PS206", trtllm_agg_dgd, {GPU_LIMIT: X})("16", "8", gpu="b200"),
    vary("PS207", trtllm)(TWO_NODES, {"hardware": GB200, "worker/gpus": 4, "worker/nodes": 4}),
    vary("PS207", vllm)(TWO_NODES, TWO_NODES | {"worker/config/pipeline-parallel-size": 2}),
    # attention DP has no all-reduce in attention
    vary("PS207", sglang)(
        TWO_NODES | {"worker/config/ep-size": 16},
        TWO_NODES
        | {
            "worker/config/ep-size": 16,
            "worker/config/dp-size": 16,
            "worker/config/enable-dp-attention": True,
        },
    ),
    vary("PS208", trtllm)({"worker/gpus": 6, PP: 3}, {"worker/gpus": 2}),
    vary("PS209", trtllm, {"hardware/nodes": 1, "worker/replicas": X})(
        3, OMIT, is_repaired_by_near=True
    ),
    vary("PS209", trtllm_disagg, {"hardware/nodes": 1, "prefill/replicas": X})(5, 4),
    vary("PS210", trtllm)(TWO_NODES, {"worker/gpus": 8}, also=("PS207",)),
    vary("PS210", sglang)(TWO_NODES, TWO_NODES | {"model/path": LATENT}),
    vary("PS216", trtllm, {PP: 2, "worker/config/pp_partition": X})(
        [12, 20], [16, 20], is_repaired_by_near=True
    ),
    vary("PS216", trtllm, {"worker/config/pp_partition": X})([18, 18], [36]),
    vary(
        "PS217",
        sglang,
        {"worker/gpus": 8, "worker/config/dp-size": X, "worker/config/enable-dp-attention": True},
    )(3, 4),
    vary("PS217", sglang, {"worker/config/enable-dp-attention": True, "worker/config/dp-size": X})(
        OMIT, 2
    ),
    vary("PS217", sglang)(
        TWO_NODES | {"worker/config/dp-size": 2}, {"worker/gpus": 8, "worker/config/dp-size": 2}
    ),
    vary(
        "PS218",
        vllm,
        {"worker/config/enable-eplb": True, "worker/config/enable-expert-parallel": X},
    )(OMIT, True),
    # up to vLLM 0.12
    vary("PS219", vllm_disagg)(
        {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM,
        {"prefill/gpus": 4, "decode/gpus": 4} | OLD_VLLM,
        is_repaired_by_near=True,
        also=("PS446",),
    ),
    # vLLM 0.31 transfers to fewer ranks, too
    vary("PS219", vllm_disagg)(
        {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM, {"prefill/gpus": 4, "decode/gpus": 2}
    ),
    vary("PS219", sglang_pools, {"decode/gpus": 4, "model/path": DENSE, "engine/env": X})(
        OMIT, STAGED
    ),
    # the staging buffer does not support sliding-window layers
    vary("PS219", sglang_pools, {"decode/gpus": 4, "engine/env": STAGED, "engine/config": X})(
        OMIT, NO_WINDOWS
    ),
    # the attention TP decides
    vary("PS219", sglang_pools)(
        {"decode/config/enable-dp-attention": True, "decode/config/dp-size": 2},
        {"decode/config/enable-dp-attention": True, "decode/config/dp-size": 2}
        | {"decode/gpus": 4},
    ),
    vary("PS219", vllm_disagg)(
        {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM,
        {"prefill/gpus": 4, "decode/gpus": 2, "model/path": LATENT} | OLD_VLLM,
    ),
    # MLA: every rank has the same KV
    vary("PS219", sglang_pools, {"decode/gpus": 4, "model/path": X})(DENSE, LATENT),
    vary("PS220", vllm_agg_dgd)(
        {"dgd/spec/components/frontend/multinode": {"nodeCount": 2}},
        {f"{WORKER}/multinode": {"nodeCount": 2}},
    ),
)

KERNELS = (
    vary("PS211", trtllm)(
        {"hardware": H200, "engine/config/moe_config/backend": "TRITON"},
        {"hardware": H200, "engine/config/moe_config/backend": "TRITON"} | {EP: 4},
    ),
    vary("PS212", trtllm, {"hardware": H200, "engine/config/moe_config/backend": X})(
        OMIT, "CUTLASS"
    ),
    # slow on this GPU, but not an error
    vary("PS212", trtllm, {"hardware": X, "engine/config/moe_config/backend": "TRITON"})(
        OMIT, H200
    ),
    vary("PS213", trtllm, {"hardware": H200, "engine/config/kv_cache_config/dtype": X})(
        OMIT, "auto"
    ),
    Case(
        "PS213",
        trtllm({"hardware": H100}),
        vllm({"hardware": H100, "engine/config/kv-cache-dtype": "fp8"}),
    ),
    vary("PS214", trtllm, {"hardware": X, "worker/env/OVERRIDE_QUANT_ALGO": "W4A8_MXFP4_MXFP8"})(
        H100, OMIT, is_repaired_by_near=True, also=("PS212", "PS213")
    ),
    vary("PS215", trtllm, {"worker/config/attn_backend": X})("FLASHINFER", "TRTLLM"),
    # a model without attention sinks
    vary("PS215", trtllm, {"worker/config/attn_backend": "VANILLA", "model/path": X})(OMIT, DENSE),
    vary("PS215", sglang, {"worker/config/decode-attention-backend": X})("flashinfer", "fa4"),
    vary("PS215", sglang, {"worker/args": ["--attention-backend", "flashinfer"], "model/path": X})(
        OMIT, DENSE
    ),
    vary(
        "PS214", vllm, {"hardware": X, "worker/config/quantization-config/moe/activation": "mxfp8"}
    )(H100, OMIT),
)

CASES: tuple[Case, ...] = (*PARALLEL, *KERNELS, *cases_kv_transfer.CASES, *cases_network.CASES)
