"""Cases of what an image contains: model architectures and GPU kernels (PS923, PS924)."""

from __future__ import annotations

from tests.checks.cases_responses import serves
from tests.checks.support import SGLANG_AGG, TRTLLM_AGG, VLLM_AGG, Case, graph

NVIDIA = "nvcr.io/nvidia/ai-dynamo"


def runs(engine: str, tag: str, registry: str = NVIDIA) -> dict[str, object]:
    return {"engine/image": f"{registry}/{engine}-runtime:{tag}"}


def on(gpu: str) -> dict[str, object]:
    return {"hardware/gpu": gpu, "hardware/gpus_per_node": 4 if gpu == "gb300" else 8}


K3 = serves("moonshotai/Kimi-K3", "kimi_k3", "kimi_k3")
V4 = serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseek_v4")
GLM = serves("zai-org/GLM-5.2-FP8", "glm45", "glm47")
CASES: tuple[Case, ...] = (
    Case(
        rule="PS923",
        bad=graph(VLLM_AGG, K3 | runs("vllm", "1.4.2")),
        near=graph(VLLM_AGG, K3 | runs("vllm", "1.4.0-kimi-k3-dev.1")),  # NVIDIA's build for it
        also=("PS141",),
    ),
    Case(
        rule="PS923",  # images of one's own may have a newer engine
        bad=graph(SGLANG_AGG, V4 | runs("sglang", "1.2.1")),
        near=graph(SGLANG_AGG, V4 | runs("sglang", "1.2.1", "registry.example.com/dynamo")),
    ),
    Case(
        rule="PS923",  # SGLang of 1.0 has it, vLLM has not
        bad=graph(VLLM_AGG, serves("Qwen/Qwen3.5-27B", "qwen3") | runs("vllm", "1.0.2")),
        near=graph(SGLANG_AGG, serves("Qwen/Qwen3.5-27B", "qwen3") | runs("sglang", "1.0.2")),
    ),
    Case(
        rule="PS923",  # of TensorRT-LLM's release notes
        bad=graph(TRTLLM_AGG, GLM | runs("tensorrtllm", "1.0.2")),
        near=graph(TRTLLM_AGG, V4 | runs("tensorrtllm", "1.0.2")),
    ),
    Case(
        rule="PS923",  # the engine loads another class
        bad=graph(VLLM_AGG, V4 | runs("vllm", "1.1.1")),
        near=graph(
            VLLM_AGG, V4 | runs("vllm", "1.1.1") | {"worker/config/model-impl": "transformers"}
        ),
    ),
    Case(
        rule="PS924",
        bad=graph(VLLM_AGG, on("gb300") | runs("vllm", "1.2.1")),
        near=graph(VLLM_AGG, on("gb300") | runs("vllm", "1.2.1-cuda13")),
    ),
    Case(
        rule="PS924",  # B200 is sm_100
        bad=graph(SGLANG_AGG, on("b300") | runs("sglang", "1.1.1")),
        near=graph(SGLANG_AGG, on("b200") | runs("sglang", "1.1.1")),
    ),
    Case(
        rule="PS924",  # there is no 0.9.1-cuda13
        bad=graph(VLLM_AGG, on("b300") | runs("vllm", "0.9.1")),
        near=graph(TRTLLM_AGG, on("b300") | runs("tensorrtllm", "0.9.1")),
    ),
)
