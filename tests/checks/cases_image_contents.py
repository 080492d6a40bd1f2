"""Cases of what an image contains: model architectures and GPU kernels (PS923, PS924)."""

from __future__ import annotations

from tests.checks.cases_responses import serves
from tests.checks.support import (
    SGLANG_AGG,
    TRTLLM_AGG,
    VLLM_AGG,
    Case,
    Words,
    graph,
    sglang_agg,
    trtllm_agg,
    vary,
    vllm_agg,
)

NVIDIA = "nvcr.io/nvidia/ai-dynamo"


def runs(engine: str, tag: str, registry: str = NVIDIA) -> dict[str, object]:
    return {"engine/image": f"{registry}/{engine}-runtime:{tag}"}


def on(gpu: str) -> dict[str, object]:
    return {"hardware/gpu": gpu, "hardware/gpus_per_node": 4 if gpu == "gb300" else 8}


K3 = serves("moonshotai/Kimi-K3", "kimi_k3", "kimi_k3")
V4 = serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseek_v4")
GLM = serves("zai-org/GLM-5.2-FP8", "glm45", "glm47")
CASES: tuple[Case, ...] = (
    # NVIDIA's build for it
    vary("PS923", vllm_agg)(
        K3 | runs("vllm", "1.4.2"), K3 | runs("vllm", "1.4.0-kimi-k3-dev.1"), also=("PS141",)
    ),
    # images of one's own may have a newer engine
    vary("PS923", sglang_agg)(
        V4 | runs("sglang", "1.2.1"), V4 | runs("sglang", "1.2.1", "registry.example.com/dynamo")
    ),
    # SGLang of 1.0 has it, vLLM has not
    vary("PS923", graph)(
        Words(VLLM_AGG, serves("Qwen/Qwen3.5-27B", "qwen3") | runs("vllm", "1.0.2")),
        Words(SGLANG_AGG, serves("Qwen/Qwen3.5-27B", "qwen3") | runs("sglang", "1.0.2")),
    ),
    # of TensorRT-LLM's release notes
    vary("PS923", trtllm_agg)(
        GLM | runs("tensorrtllm", "1.0.2"), V4 | runs("tensorrtllm", "1.0.2")
    ),
    # the engine loads another class
    vary("PS923", vllm_agg)(
        V4 | runs("vllm", "1.1.1"),
        V4 | runs("vllm", "1.1.1") | {"worker/config/model-impl": "transformers"},
    ),
    vary("PS924", vllm_agg)(
        on("gb300") | runs("vllm", "1.2.1"), on("gb300") | runs("vllm", "1.2.1-cuda13")
    ),
    # B200 is sm_100
    vary("PS924", sglang_agg)(
        on("b300") | runs("sglang", "1.1.1"), on("b200") | runs("sglang", "1.1.1")
    ),
    # there is no 0.9.1-cuda13
    vary("PS924", graph)(
        Words(VLLM_AGG, on("b300") | runs("vllm", "0.9.1")),
        Words(TRTLLM_AGG, on("b300") | runs("tensorrtllm", "0.9.1")),
    ),
)
