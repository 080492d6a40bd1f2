"""Cases of responses: output parsers, model names and chat processing (PS6xx)."""

from __future__ import annotations

from tests.checks.support import (
    MODEL,
    OMIT,
    REMOVE,
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    Case,
    X,
    graph,
    sglang_agg,
    trtllm_agg,
    trtllm_disagg,
    vary,
    vllm_agg,
    vllm_disagg_dgd,
)

# A known issue of that release.
OF_1_2 = {"engine/image": "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.2.1"}

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
MAIN = "podTemplate/spec/containers/main"
DECODE_ARGS = f"dgd/spec/components/decode/{MAIN}/args"
DECODE_ENV = f"dgd/spec/components/decode/{MAIN}/env"
PARSER = {"name": "DYN_REASONING_PARSER", "value": "gpt_oss"}
NO_PARSER = {f"{DECODE_ARGS}/--dyn-reasoning-parser": REMOVE, f"{DECODE_ARGS}/gpt_oss": REMOVE}
ALIKE = ["--model", MODEL["id"], "--disaggregation-mode", "decode", "--config"]
UNNAMED = {DECODE_ARGS: [*ALIKE, "/etc/penstock/engine.yaml"]}


def serves(model: str, reasoning: object = None, tools: object = None) -> dict[str, object]:
    """Changes that serve another model with these parsers; None: without."""
    return {
        "model/id": model,
        "model/reasoning_parser": reasoning or REMOVE,
        "model/tool_call_parser": tools or REMOVE,
    }


VISION = {"model/id": "Qwen/Qwen3-VL-8B-Instruct", "model/revision": None}

CASES: tuple[Case, ...] = (
    # a prefill worker generates one token
    vary("PS601", trtllm_disagg)(
        {"decode/config/stream_interval": 20}, {"prefill/config/stream_interval": 20}
    ),
    vary("PS601", vllm_agg, {"worker/config/stream-interval": X})(2, 1),
    vary("PS601", sglang_agg)(
        {"worker/args": ["--stream-interval", "8"]},
        {
            "worker/args": ["--stream-interval", "8"],
            "model/reasoning_parser": "qwen3",
            "model/tool_call_parser": "hermes",
        },
    ),
    vary("PS602", trtllm_agg, {"model/tool_call_parser": REMOVE, "worker/args": X})(
        OMIT, ["--dyn-tool-call-parser", "harmony"]
    ),
    vary("PS602", vllm_agg)(
        {"model/reasoning_parser": "basic"}, serves(LLAMA, "basic", "llama3_json")
    ),
    # what reads <think>, whatever its name
    vary("PS602", sglang_agg)(
        serves("Qwen/Qwen3.6-35B-A3B", None, "qwen3_coder"),
        serves("Qwen/Qwen3.6-35B-A3B", "deepseek_r1", "nemotron_nano"),
    ),
    # a note; the other reasons only on request
    vary("PS602", vllm_agg)(serves("Qwen/Qwen3-32B-FP8"), serves("nvidia/DeepSeek-V3.1-NVFP4")),
    # Instruct models of Qwen3 do not reason
    vary("PS602", vllm_agg)(
        serves("Qwen/Qwen3-30B-A3B-Thinking-2507"), serves("Qwen/Qwen3-30B-A3B-Instruct-2507")
    ),
    # thinking is off
    vary("PS602", vllm_agg)(
        serves("Qwen/Qwen3-8B"),
        serves("Qwen/Qwen3-8B") | {"worker/args": ["--dyn-default-thinking-mode", "disabled"]},
    ),
    # Qwen3-Coder writes XML
    vary("PS602", vllm_agg)(
        serves("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, "hermes"),
        serves("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, "qwen3_coder"),
    ),
    # an alias, and another release's
    vary("PS602", vllm_agg)(
        serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseek_v3_1"),
        serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseekv4"),
    ),
    # K3 has no <think>
    vary("PS602", vllm_agg)(
        serves("moonshotai/Kimi-K3", "kimi_k25", "kimi_k3"),
        serves("moonshotai/Kimi-K2.6", "kimi_k25", "kimi_k2"),
    ),
    # a note: the reasoning is separated, tool calls are not
    vary("PS602", vllm_agg)(
        serves("zai-org/GLM-5.2-FP8", "glm45"), serves("stepfun-ai/step3-fp8", "step3")
    ),
    # vLLM's parsers are in the frontend
    vary("PS602", vllm_agg)(
        serves("MiniMaxAI/MiniMax-M2.5"),
        serves("MiniMaxAI/MiniMax-M2.5") | {"frontend/args": ["--dyn-chat-processor", "vllm"]},
    ),
    # a template of one's own may ask for another format
    vary("PS602", vllm_agg)(
        serves("meta-llama/Llama-3.3-70B-Instruct", None, "hermes"),
        serves("meta-llama/Llama-3.3-70B-Instruct", None, "hermes")
        | {"worker/args": ["--custom-jinja-template", "/etc/template.jinja"]},
    ),
    vary("PS603", trtllm_agg, {"model/reasoning_parser": X})("gpt-oss", "gpt_oss", also=("PS602",)),
    vary("PS603", trtllm_agg)(
        {"worker/env/DYN_TOOL_CALL_PARSER": "", "model/tool_call_parser": "x"},
        {"model/tool_call_parser": "hermes"},
    ),
    vary("PS604", trtllm_disagg)(
        {"decode/args": ["--dyn-reasoning-parser", "basic"]},
        {"engine/args": ["--dyn-reasoning-parser", "basic"]},
        also=("PS150", "PS602"),
    ),
    vary("PS604", vllm_disagg_dgd)(NO_PARSER, {**NO_PARSER, f"{DECODE_ENV}/R": PARSER}),
    vary("PS605", vllm_agg, {"frontend/args": X})(
        ["--dyn-chat-processor", "vllm"], ["--dyn-chat-processor", "dynamo"]
    ),
    vary("PS605", sglang_agg, {"frontend/env/DYN_CHAT_PROCESSOR": "sglang", "model/id": X})(
        OMIT, LLAMA
    ),
    vary("PS606", trtllm_agg)(OMIT, {"model/harmony_vocabulary": "/opt/model-cache/encodings"}),
    vary("PS607", trtllm_disagg)(
        {"decode/args": ["--served-model-name", "gpt-oss"]},
        {"engine/args": ["--served-model-name", "gpt-oss"]},
        also=("PS150",),
    ),
    # set in the engine file
    vary("PS607", vllm_disagg_dgd, {**UNNAMED, "decode/served-model-name": X})(
        "gpt-oss", [MODEL["id"], "b"]
    ),
    vary("PS608", graph, X, {"model/served_name": "gpt-oss:120b"})(SGLANG_AGG, VLLM_AGG),
    vary("PS609", sglang_agg, {"worker/args": X})(
        ["--tool-call-parser", "gpt-oss"], ["--reasoning-parser", "gpt-oss"]
    ),
    vary(
        "PS609",
        sglang_agg,
        {"worker/config/tool-call-parser": "gpt-oss", "model/tool_call_parser": X},
    )(OMIT, REMOVE),
    vary("PS610", graph, X, {"engine/args": ["--modality", "multimodal"]} | OF_1_2)(
        TRTLLM_DISAGG, TRTLLM_AGG, is_repaired_by_near=True
    ),
    vary("PS610", trtllm_disagg)(
        {"engine/args": ["--enable-multimodal"]} | OF_1_2, {"engine/args": ["--enable-multimodal"]}
    ),
    vary("PS613", trtllm_agg)(VISION, VISION | {"worker/args": ["--modality", "multimodal"]}),
)
