"""Cases of parallelism and kernels (PS2xx); also collects those of KV transfer."""

from __future__ import annotations

from functools import partial

from tests.checks import cases_kv_transfer, cases_network
from tests.checks.model_folders import LATENT, model
from tests.checks.support import (
    SGLANG_AGG,
    SGLANG_DISAGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
)

OLD_VLLM = {"engine/image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1"}


DENSE = model("dense", model_type="llama")
SIXTY = model("sixty-experts", model_type="qwen2_moe", num_experts=60, moe_intermediate_size=1408)
trtllm, vllm, sglang = (partial(graph, base) for base in (TRTLLM_AGG, VLLM_AGG, SGLANG_AGG))
sglang_pools = partial(graph, SGLANG_DISAGG)
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
    return manifest(VLLM_AGG, {f"{main}/command": ["bash", "-c"], f"{main}/args": [text]})


RUN = "python3 -m dynamo.vllm --model openai/gpt-oss-120b --tensor-parallel-size"
EITHER = f'if [ "$(hostname)" = first ]; then exec {RUN} 2; else exec {RUN} 2 --headless; fi'

PARALLEL = (
    Case(  # only one branch of a script runs
        rule="PS205",
        bad=script(f"{RUN} 2 & {RUN} 2 & wait"),
        near=script(EITHER),
    ),
    Case(  # a value known only when the script runs
        rule="PS205",
        bad=script(f"exec {RUN} 4"),
        near=script(f"exec {RUN} $(nvidia-smi -L | wc -l)"),
    ),
    Case(
        rule="PS307",
        bad=script(f"exec {RUN} $(nvidia-smi -L | wc -l)"),
        near=script(f"exec {RUN} 2"),
        gpu="b200",
    ),
    Case(rule="PS201", bad=trtllm({EP: 2, MOE_TP: 4}), near=trtllm({EP: 2, MOE_TP: 2})),
    Case(rule="PS201", bad=trtllm({EP: 8}), near=trtllm({EP: 4})),
    Case(  # on the command line
        rule="PS201",
        bad=trtllm({"worker/args": ["--expert-parallel-size", "3"]}),
        near=trtllm({"worker/args": ["--expert-parallel-size", "2"]}),
    ),
    Case(
        rule="PS202",
        bad=trtllm({"worker/gpus": 3}),
        near=trtllm({"worker/gpus": 3, "worker/config/enable_attention_dp": True}),
    ),
    Case(  # PS211 requires as many expert ranks
        rule="PS202",
        bad=trtllm({**TRITON, "worker/gpus": 6, "worker/config/tensor_parallel_size": 6}),
        near=trtllm({**TRITON, "worker/gpus": 8, EP: 8}),
    ),
    Case(
        rule="PS202",
        bad=trtllm({**TRITON, "worker/gpus": 6, EP: 6}),
        near=trtllm({**TRITON, "worker/gpus": 4, EP: 4}),
    ),
    Case(
        rule="PS202",
        bad=vllm({"worker/gpus": 6}),
        near=vllm({"worker/gpus": 6, "worker/config/pipeline-parallel-size": 3}),
    ),
    Case(
        rule="PS203",
        bad=trtllm({"model/path": SIXTY, "worker/gpus": 8, EP: 8}),
        near=trtllm({"model/path": SIXTY, "worker/gpus": 8, EP: 4}),
    ),
    Case(
        rule="PS203",  # vLLM distributes the remainder
        bad=sglang({"model/path": SIXTY, "worker/gpus": 8, "worker/config/ep-size": 8}),
        near=vllm(
            {
                "worker/gpus": 3,
                "worker/config/data-parallel-size": 3,
                "worker/config/enable-expert-parallel": True,
            }
        ),
    ),
    Case(
        rule="PS203",
        bad=sglang({"model/path": SIXTY, "worker/gpus": 8, "worker/config/ep-size": 8}),
        near=sglang({"worker/gpus": 8, "worker/config/ep-size": 8}),
    ),
    Case(
        rule="PS204",
        bad=trtllm({"model/path": DENSE, EP: 4}),
        near=trtllm({"model/path": DENSE, EP: 1}),
    ),
    Case(
        rule="PS204",
        bad=vllm({"model/path": DENSE, "worker/config/enable-expert-parallel": True}),
        near=vllm({"worker/config/enable-expert-parallel": True}),
    ),
    Case(rule="PS205", bad=trtllm({TP: 8}), near=trtllm({TP: 2, PP: 2}), is_example=True),
    Case(  # unused GPUs
        rule="PS205",
        bad=trtllm({TP: 2}),
        near=trtllm({TP: 2, "worker/config/context_parallel_size": 2}),
    ),
    Case(  # the other ranks of the group run in other replicas
        rule="PS205",
        bad=vllm({VLLM_TP: 2, "worker/config/data-parallel-size": 2}),
        near=vllm(
            {
                VLLM_TP: 2,
                "worker/config/data-parallel-size": 2,
                "worker/config/data-parallel-rank": 1,
            }
        ),
    ),
    Case(
        rule="PS205",
        bad=vllm({"worker/gpus": 4, VLLM_TP: 2}),
        near=vllm({"worker/gpus": 4, "worker/config/prefill-context-parallel-size": 2, VLLM_TP: 2}),
    ),
    Case(
        rule="PS205",
        bad=sglang({"worker/config/tp-size": 2, "worker/config/dp-size": 2}),
        near=sglang(
            {
                "worker/config/tp-size": 2,
                "worker/config/dp-size": 2,
                "worker/config/enable-dp-attention": True,
            }
        ),
    ),
    Case(
        rule="PS205",
        bad=manifest(TRTLLM_AGG, {GPU_LIMIT: "2"}),
        near=manifest(TRTLLM_AGG, {GPU_LIMIT: "2", f"{WORKER}/multinode": {"nodeCount": 2}}),
    ),
    Case(  # more GPUs than any node has
        rule="PS205",
        bad=manifest(TRTLLM_AGG, {GPU_LIMIT: "64"}),
        near=manifest(TRTLLM_AGG),
    ),
    Case(
        rule="PS206",
        bad=trtllm({"hardware": {"gpu": "b200"}, "worker/gpus": 16}),
        near=trtllm({"hardware": {"gpu": "b200"}} | TWO_NODES),
    ),
    Case(  # a GB200 node has four GPUs
        rule="PS206",
        bad=trtllm({"hardware": {"gpu": "gb200"}, "worker/gpus": 8}),
        near=trtllm({"hardware": {"gpu": "b200"}, "worker/gpus": 8}),
    ),
    Case(
        rule="PS206",
        bad=manifest(TRTLLM_AGG, {GPU_LIMIT: "16"}),
        near=manifest(TRTLLM_AGG, {GPU_LIMIT: "8"}),
        gpu="b200",
    ),
    Case(
        rule="PS207",
        bad=trtllm(TWO_NODES),
        near=trtllm({"hardware": GB200, "worker/gpus": 4, "worker/nodes": 4}),
    ),
    Case(
        rule="PS207",
        bad=vllm(TWO_NODES),
        near=vllm(TWO_NODES | {"worker/config/pipeline-parallel-size": 2}),
    ),
    Case(  # attention DP has no all-reduce in attention
        rule="PS207",
        bad=sglang(TWO_NODES | {"worker/config/ep-size": 16}),
        near=sglang(
            TWO_NODES
            | {
                "worker/config/ep-size": 16,
                "worker/config/dp-size": 16,
                "worker/config/enable-dp-attention": True,
            }
        ),
    ),
    Case(rule="PS208", bad=trtllm({"worker/gpus": 6, PP: 3}), near=trtllm({"worker/gpus": 2})),
    Case(
        rule="PS209",
        bad=trtllm({"hardware/nodes": 1, "worker/replicas": 3}),
        near=trtllm({"hardware/nodes": 1}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS209",
        bad=graph(TRTLLM_DISAGG, {"hardware/nodes": 1, "prefill/replicas": 5}),
        near=graph(TRTLLM_DISAGG, {"hardware/nodes": 1, "prefill/replicas": 4}),
    ),
    Case(rule="PS210", bad=trtllm(TWO_NODES), near=trtllm({"worker/gpus": 8}), also=("PS207",)),
    Case(rule="PS210", bad=sglang(TWO_NODES), near=sglang(TWO_NODES | {"model/path": LATENT})),
    Case(
        rule="PS216",
        bad=trtllm({PP: 2, "worker/config/pp_partition": [12, 20]}),
        near=trtllm({PP: 2, "worker/config/pp_partition": [16, 20]}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS216",
        bad=trtllm({"worker/config/pp_partition": [18, 18]}),
        near=trtllm({"worker/config/pp_partition": [36]}),
    ),
    Case(
        rule="PS217",
        bad=sglang(
            {
                "worker/gpus": 8,
                "worker/config/dp-size": 3,
                "worker/config/enable-dp-attention": True,
            }
        ),
        near=sglang(
            {
                "worker/gpus": 8,
                "worker/config/dp-size": 4,
                "worker/config/enable-dp-attention": True,
            }
        ),
    ),
    Case(
        rule="PS217",
        bad=sglang({"worker/config/enable-dp-attention": True}),
        near=sglang({"worker/config/enable-dp-attention": True, "worker/config/dp-size": 2}),
    ),
    Case(
        rule="PS217",
        bad=sglang(TWO_NODES | {"worker/config/dp-size": 2}),
        near=sglang({"worker/gpus": 8, "worker/config/dp-size": 2}),
    ),
    Case(
        rule="PS218",
        bad=vllm({"worker/config/enable-eplb": True}),
        near=vllm(
            {"worker/config/enable-eplb": True, "worker/config/enable-expert-parallel": True}
        ),
    ),
    Case(
        rule="PS219",  # up to vLLM 0.12
        bad=graph(VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM),
        near=graph(VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 4} | OLD_VLLM),
        is_repaired_by_near=True,
        also=("PS446",),
    ),
    Case(  # vLLM 0.31 transfers to fewer ranks, too
        rule="PS219",
        bad=graph(VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM),
        near=graph(VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 2}),
    ),
    Case(
        rule="PS219",
        bad=sglang_pools({"decode/gpus": 4, "model/path": DENSE}),
        near=sglang_pools({"decode/gpus": 4, "model/path": DENSE, "engine/env": STAGED}),
    ),
    Case(  # the staging buffer does not support sliding-window layers
        rule="PS219",
        bad=sglang_pools({"decode/gpus": 4, "engine/env": STAGED}),
        near=sglang_pools({"decode/gpus": 4, "engine/env": STAGED, "engine/config": NO_WINDOWS}),
    ),
    Case(  # the attention TP decides
        rule="PS219",
        bad=sglang_pools({"decode/config/enable-dp-attention": True, "decode/config/dp-size": 2}),
        near=sglang_pools(
            {"decode/config/enable-dp-attention": True, "decode/config/dp-size": 2}
            | {"decode/gpus": 4}
        ),
    ),
    Case(
        rule="PS219",
        bad=graph(VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 2} | OLD_VLLM),
        near=graph(
            VLLM_DISAGG, {"prefill/gpus": 4, "decode/gpus": 2, "model/path": LATENT} | OLD_VLLM
        ),
    ),
    Case(  # MLA: every rank has the same KV
        rule="PS219",
        bad=sglang_pools({"decode/gpus": 4, "model/path": DENSE}),
        near=sglang_pools({"decode/gpus": 4, "model/path": LATENT}),
    ),
    Case(
        rule="PS220",
        bad=manifest(VLLM_AGG, {"dgd/spec/components/frontend/multinode": {"nodeCount": 2}}),
        near=manifest(VLLM_AGG, {f"{WORKER}/multinode": {"nodeCount": 2}}),
    ),
)

KERNELS = (
    Case(
        rule="PS211",
        bad=trtllm({"hardware": H200, "engine/config/moe_config/backend": "TRITON"}),
        near=trtllm({"hardware": H200, "engine/config/moe_config/backend": "TRITON"} | {EP: 4}),
    ),
    Case(
        rule="PS212",
        bad=trtllm({"hardware": H200}),
        near=trtllm({"hardware": H200, "engine/config/moe_config/backend": "CUTLASS"}),
    ),
    Case(  # slow on this GPU, but not an error
        rule="PS212",
        bad=trtllm({"engine/config/moe_config/backend": "TRITON"}),
        near=trtllm({"hardware": H200, "engine/config/moe_config/backend": "TRITON"}),
    ),
    Case(
        rule="PS213",
        bad=trtllm({"hardware": H200}),
        near=trtllm({"hardware": H200, "engine/config/kv_cache_config/dtype": "auto"}),
    ),
    Case(
        rule="PS213",
        bad=trtllm({"hardware": H100}),
        near=vllm({"hardware": H100, "engine/config/kv-cache-dtype": "fp8"}),
    ),
    Case(
        rule="PS214",
        bad=trtllm({"hardware": H100, "worker/env/OVERRIDE_QUANT_ALGO": "W4A8_MXFP4_MXFP8"}),
        near=trtllm({"worker/env/OVERRIDE_QUANT_ALGO": "W4A8_MXFP4_MXFP8"}),
        is_repaired_by_near=True,
        also=("PS212", "PS213"),
    ),
    Case(
        rule="PS215",
        bad=trtllm({"worker/config/attn_backend": "FLASHINFER"}),
        near=trtllm({"worker/config/attn_backend": "TRTLLM"}),
    ),
    Case(  # a model without attention sinks
        rule="PS215",
        bad=trtllm({"worker/config/attn_backend": "VANILLA"}),
        near=trtllm({"worker/config/attn_backend": "VANILLA", "model/path": DENSE}),
    ),
    Case(
        rule="PS215",
        bad=sglang({"worker/config/decode-attention-backend": "flashinfer"}),
        near=sglang({"worker/config/decode-attention-backend": "fa4"}),
    ),
    Case(
        rule="PS215",
        bad=sglang({"worker/args": ["--attention-backend", "flashinfer"]}),
        near=sglang({"worker/args": ["--attention-backend", "flashinfer"], "model/path": DENSE}),
    ),
    Case(
        rule="PS214",
        bad=vllm({"hardware": H100, "worker/config/quantization-config/moe/activation": "mxfp8"}),
        near=vllm({"worker/config/quantization-config/moe/activation": "mxfp8"}),
    ),
)

CASES: tuple[Case, ...] = (*PARALLEL, *KERNELS, *cases_kv_transfer.CASES, *cases_network.CASES)
