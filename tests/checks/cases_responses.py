"""Cases of responses: output parsers, model names and chat processing (PS6xx)."""

from __future__ import annotations

from tests.checks.support import (
    MODEL,
    REMOVE,
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
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
    Case(
        rule="PS601",  # a prefill worker generates one token
        bad=graph(TRTLLM_DISAGG, {"decode/config/stream_interval": 20}),
        near=graph(TRTLLM_DISAGG, {"prefill/config/stream_interval": 20}),
    ),
    Case(
        rule="PS601",
        bad=graph(VLLM_AGG, {"worker/config/stream-interval": 2}),
        near=graph(VLLM_AGG, {"worker/config/stream-interval": 1}),
    ),
    Case(
        rule="PS601",
        bad=graph(SGLANG_AGG, {"worker/args": ["--stream-interval", "8"]}),
        near=graph(
            SGLANG_AGG,
            {
                "worker/args": ["--stream-interval", "8"],
                "model/reasoning_parser": "qwen3",
                "model/tool_call_parser": "hermes",
            },
        ),
    ),
    Case(
        rule="PS602",
        bad=graph(TRTLLM_AGG, {"model/tool_call_parser": REMOVE}),
        near=graph(
            TRTLLM_AGG,
            {
                "model/tool_call_parser": REMOVE,
                "worker/args": ["--dyn-tool-call-parser", "harmony"],
            },
        ),
    ),
    Case(
        rule="PS602",
        bad=graph(VLLM_AGG, {"model/reasoning_parser": "basic"}),
        near=graph(VLLM_AGG, serves(LLAMA, "basic", "llama3_json")),
    ),
    Case(
        rule="PS602",  # what reads <think>, whatever its name
        bad=graph(SGLANG_AGG, serves("Qwen/Qwen3.6-35B-A3B", None, "qwen3_coder")),
        near=graph(SGLANG_AGG, serves("Qwen/Qwen3.6-35B-A3B", "deepseek_r1", "nemotron_nano")),
    ),
    Case(
        rule="PS602",  # a note; the other reasons only on request
        bad=graph(VLLM_AGG, serves("Qwen/Qwen3-32B-FP8")),
        near=graph(VLLM_AGG, serves("nvidia/DeepSeek-V3.1-NVFP4")),
    ),
    Case(
        rule="PS602",  # Instruct models of Qwen3 do not reason
        bad=graph(VLLM_AGG, serves("Qwen/Qwen3-30B-A3B-Thinking-2507")),
        near=graph(VLLM_AGG, serves("Qwen/Qwen3-30B-A3B-Instruct-2507")),
    ),
    Case(
        rule="PS602",  # thinking is off
        bad=graph(VLLM_AGG, serves("Qwen/Qwen3-8B")),
        near=graph(
            VLLM_AGG,
            serves("Qwen/Qwen3-8B") | {"worker/args": ["--dyn-default-thinking-mode", "disabled"]},
        ),
    ),
    Case(
        rule="PS602",  # Qwen3-Coder writes XML
        bad=graph(VLLM_AGG, serves("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, "hermes")),
        near=graph(VLLM_AGG, serves("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, "qwen3_coder")),
    ),
    Case(
        rule="PS602",  # an alias, and another release's
        bad=graph(VLLM_AGG, serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseek_v3_1")),
        near=graph(VLLM_AGG, serves("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek_v4", "deepseekv4")),
    ),
    Case(
        rule="PS602",  # K3 has no <think>
        bad=graph(VLLM_AGG, serves("moonshotai/Kimi-K3", "kimi_k25", "kimi_k3")),
        near=graph(VLLM_AGG, serves("moonshotai/Kimi-K2.6", "kimi_k25", "kimi_k2")),
    ),
    Case(
        rule="PS602",  # a note: the reasoning is separated, tool calls are not
        bad=graph(VLLM_AGG, serves("zai-org/GLM-5.2-FP8", "glm45")),
        near=graph(VLLM_AGG, serves("stepfun-ai/step3-fp8", "step3")),
    ),
    Case(
        rule="PS602",  # vLLM's parsers are in the frontend
        bad=graph(VLLM_AGG, serves("MiniMaxAI/MiniMax-M2.5")),
        near=graph(
            VLLM_AGG,
            serves("MiniMaxAI/MiniMax-M2.5") | {"frontend/args": ["--dyn-chat-processor", "vllm"]},
        ),
    ),
    Case(
        rule="PS602",  # a template of one's own may ask for another format
        bad=graph(VLLM_AGG, serves("meta-llama/Llama-3.3-70B-Instruct", None, "hermes")),
        near=graph(
            VLLM_AGG,
            serves("meta-llama/Llama-3.3-70B-Instruct", None, "hermes")
            | {"worker/args": ["--custom-jinja-template", "/etc/template.jinja"]},
        ),
    ),
    Case(
        rule="PS603",
        bad=graph(TRTLLM_AGG, {"model/reasoning_parser": "gpt-oss"}),
        near=graph(TRTLLM_AGG, {"model/reasoning_parser": "gpt_oss"}),
        also=("PS602",),
    ),
    Case(
        rule="PS603",
        bad=graph(
            TRTLLM_AGG, {"worker/env/DYN_TOOL_CALL_PARSER": "", "model/tool_call_parser": "x"}
        ),
        near=graph(TRTLLM_AGG, {"model/tool_call_parser": "hermes"}),
    ),
    Case(
        rule="PS604",
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--dyn-reasoning-parser", "basic"]}),
        near=graph(TRTLLM_DISAGG, {"engine/args": ["--dyn-reasoning-parser", "basic"]}),
        also=("PS150", "PS602"),
    ),
    Case(
        rule="PS604",
        bad=manifest(VLLM_DISAGG, NO_PARSER),
        near=manifest(VLLM_DISAGG, {**NO_PARSER, f"{DECODE_ENV}/R": PARSER}),
    ),
    Case(
        rule="PS605",
        bad=graph(VLLM_AGG, {"frontend/args": ["--dyn-chat-processor", "vllm"]}),
        near=graph(VLLM_AGG, {"frontend/args": ["--dyn-chat-processor", "dynamo"]}),
    ),
    Case(
        rule="PS605",
        bad=graph(SGLANG_AGG, {"frontend/env/DYN_CHAT_PROCESSOR": "sglang"}),
        near=graph(SGLANG_AGG, {"frontend/env/DYN_CHAT_PROCESSOR": "sglang", "model/id": LLAMA}),
    ),
    Case(
        rule="PS606",
        bad=graph(TRTLLM_AGG),
        near=graph(TRTLLM_AGG, {"model/harmony_vocabulary": "/opt/model-cache/encodings"}),
    ),
    Case(
        rule="PS607",
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--served-model-name", "gpt-oss"]}),
        near=graph(TRTLLM_DISAGG, {"engine/args": ["--served-model-name", "gpt-oss"]}),
        also=("PS150",),
    ),
    Case(
        rule="PS607",  # set in the engine file
        bad=manifest(VLLM_DISAGG, {**UNNAMED, "decode/served-model-name": "gpt-oss"}),
        near=manifest(VLLM_DISAGG, {**UNNAMED, "decode/served-model-name": [MODEL["id"], "b"]}),
    ),
    Case(
        rule="PS608",
        bad=graph(SGLANG_AGG, {"model/served_name": "gpt-oss:120b"}),
        near=graph(VLLM_AGG, {"model/served_name": "gpt-oss:120b"}),
    ),
    Case(
        rule="PS609",
        bad=graph(SGLANG_AGG, {"worker/args": ["--tool-call-parser", "gpt-oss"]}),
        near=graph(SGLANG_AGG, {"worker/args": ["--reasoning-parser", "gpt-oss"]}),
    ),
    Case(
        rule="PS609",
        bad=graph(SGLANG_AGG, {"worker/config/tool-call-parser": "gpt-oss"}),
        near=graph(
            SGLANG_AGG,
            {"worker/config/tool-call-parser": "gpt-oss", "model/tool_call_parser": REMOVE},
        ),
    ),
    Case(
        rule="PS610",
        bad=graph(TRTLLM_DISAGG, {"engine/args": ["--modality", "multimodal"]} | OF_1_2),
        near=graph(TRTLLM_AGG, {"engine/args": ["--modality", "multimodal"]} | OF_1_2),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS610",
        bad=graph(TRTLLM_DISAGG, {"engine/args": ["--enable-multimodal"]} | OF_1_2),
        near=graph(TRTLLM_DISAGG, {"engine/args": ["--enable-multimodal"]}),
    ),
    Case(
        rule="PS613",
        bad=graph(TRTLLM_AGG, VISION),
        near=graph(TRTLLM_AGG, VISION | {"worker/args": ["--modality", "multimodal"]}),
    ),
)
