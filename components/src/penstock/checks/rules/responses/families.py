"""The parsers of each model family, as data: how a model writes reasoning and tool calls.

Sources, read at 2a6da14c of ai-dynamo/dynamo if not stated: "Tool Call Parsing" (tool-call-parsing)
and "Reasoning Parsing" (reasoning-parsing) in docs/fern/pages/use-cases, and recipes/. Rule
PS602 reads the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from penstock.models.known import CACHED, QUANTIZED


class Thinks(StrEnum):
    """Whether a model reasons if the request does not say."""

    BY_DEFAULT = "by default"
    ON_REQUEST = "on request"  # or no source states the default
    NEVER = "never"  # or no source names a parser for its reasoning


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    # Matches the last part of an id, in lower case, without the endings of `QUANTIZED`.
    ids: str
    # The parsers that documents and recipes use; empty if none.
    reasoning: str = ""
    tools: str = ""
    # Other parsers that a source names although their format differs.
    also: tuple[str, ...] = ()
    thinks: Thinks = Thinks.BY_DEFAULT
    # Whether NVIDIA's recipes serve it without a reasoning parser, as for a benchmark.
    is_published_without: bool = False
    source: str


DOCUMENTED = "tool-call-parsing, reasoning-parsing"
FAMILIES = (
    Family(
        name="gpt-oss",
        ids=r"gpt-oss-(20b|120b)",
        reasoning="gpt_oss",
        tools="harmony",
        source=f"{DOCUMENTED}; recipes/gpt-oss-120b",
    ),
    Family(
        name="DeepSeek R1",
        ids=r"deepseek-r1(-zero)?",
        reasoning="deepseek_r1",
        is_published_without=True,
        source="reasoning-parsing; recipes/deepseek-r1 set none",
    ),
    Family(
        name="DeepSeek R1 0528",
        ids=r"deepseek-r1-0528",
        reasoning="deepseek_r1",
        tools="deepseek_v3",
        is_published_without=True,
        source=f"{DOCUMENTED}; recipes/deepseek-r1 set none",
    ),
    Family(
        name="a distilled DeepSeek R1",
        ids=r"deepseek-r1-(distill-(llama|qwen)-\d+(\.\d)?b|0528-qwen3-8b)",
        reasoning="deepseek_r1",
        source="reasoning-parsing; dynamo#2596",
    ),
    Family(
        name="DeepSeek V3",
        ids=r"deepseek-v3(-0324)?",
        tools="deepseek_v3",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="DeepSeek V3.1",
        ids=r"deepseek-v3\.1(-terminus)?",
        reasoning="deepseek_r1",
        tools="deepseek_v3_1",
        thinks=Thinks.ON_REQUEST,
        source=DOCUMENTED,
    ),
    Family(
        name="DeepSeek V3.2",
        ids=r"deepseek-v3\.2(-exp)?",
        reasoning="deepseek_r1",
        tools="deepseek_v3_2",
        also=("deepseek_v3_1",),  # V3.2-Exp has the template of V3.1
        thinks=Thinks.ON_REQUEST,
        source=f"{DOCUMENTED}; recipes/deepseek-v32-fp4 set none",
    ),
    Family(
        name="DeepSeek V4",
        ids=r"deepseek-v4-(flash|pro)",
        reasoning="deepseek_v4",
        tools="deepseek_v4",
        source=f"{DOCUMENTED}; recipes/deepseek-v4",
    ),
    Family(
        name="DeepSeek V4.1",
        ids=r"deepseek-v4\.1-flash",
        reasoning="deepseek_v41",
        tools="deepseek_v41",
        also=("deepseek_v4", "deepseek-v4", "deepseekv4"),  # may read it
        thinks=Thinks.ON_REQUEST,  # the early-access image selects the parsers itself
        source="dynamo#15030, dynamo#14690",
    ),
    Family(
        name="Qwen2.5",
        ids=r"qwen2\.5-\d+(\.\d)?b-instruct",
        tools="hermes",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="QwQ",
        ids=r"qwq-32b",
        reasoning="qwen3",
        tools="hermes",
        source=DOCUMENTED,
    ),
    Family(
        name="Qwen3",
        ids=r"qwen3-(0\.6b|1\.7b|4b|8b|14b|32b|30b-a3b|235b-a22b)",
        reasoning="qwen3",
        tools="hermes",
        is_published_without=True,
        source="chat-processors (Qwen3-0.6B); recipes/qwen3-32b, qwen3-32b-fp8 and "
        "qwen3-235b-a22b-fp8 set none",
    ),
    Family(
        name="Qwen3 Thinking",
        ids=r"qwen3-(4b|30b-a3b|235b-a22b)-thinking-2507",
        reasoning="qwen3",
        tools="hermes",
        source=DOCUMENTED,
    ),
    Family(
        name="Qwen3 Instruct",
        ids=r"qwen3-(4b|30b-a3b|235b-a22b)-instruct-2507",
        tools="hermes",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Qwen3-VL",
        ids=r"qwen3-vl-\d+b(-a\d+b)?-instruct",
        tools="hermes",
        thinks=Thinks.NEVER,
        source="examples/backends/vllm/launch/agg_multimodal.sh",
    ),
    Family(
        name="Qwen3-Coder",
        ids=r"qwen3-coder-(30b-a3b|480b-a35b)-instruct",
        tools="qwen3_coder",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Qwen3.5",
        ids=r"qwen3\.5-(0\.8b|2b)",
        reasoning="qwen3",
        tools="qwen3_coder",
        thinks=Thinks.ON_REQUEST,
        source=f"{DOCUMENTED}; the models' cards (thinking is off by default)",
    ),
    *(
        Family(
            name=name,
            ids=rf"{re.escape(name.lower())}-\d+(\.\d)?[bt](-a\d+b)?",
            reasoning="qwen3",
            tools="qwen3_coder",
            source=source,
        )
        for name, source in (
            ("Qwen3.5", f"{DOCUMENTED}; recipes/qwen3.5-122b"),
            ("Qwen3.6", "recipes/qwen3.6-35b; dynamo#14472"),
            ("Qwen3.8", "recipes/qwen3.8-2.4t-a95b-fp8"),
        )
    ),
    Family(
        name="GLM-4",
        ids=r"glm-4\.[567](-air|-flash)?",
        reasoning="glm45",
        tools="glm47",
        source=f"{DOCUMENTED}; examples/backends/sglang/launch/agg_agent.sh; dynamo#9995 (4.6)",
    ),
    Family(
        name="GLM-5",
        ids=r"glm-5(\.1)?",
        reasoning="glm45",
        tools="glm47",
        is_published_without=True,
        source="dynamo#6422, dynamo#9981; recipes/glm-5-nvfp4 set none",
    ),
    Family(
        name="GLM-5.2",
        ids=r"glm-5\.2",
        reasoning="glm45",
        tools="glm47",
        source="recipes/glm-5.2",
    ),
    Family(
        name="Kimi K2 Instruct",
        ids=r"kimi-k2-instruct(-0905)?",
        reasoning="kimi",
        tools="kimi_k2",
        also=("kimi_k25",),
        thinks=Thinks.ON_REQUEST,
        source=DOCUMENTED,
    ),
    Family(
        name="Kimi K2 Thinking",
        ids=r"kimi-k2-thinking",
        reasoning="kimi_k25",
        tools="kimi_k2",
        also=("kimi",),
        source=f"{DOCUMENTED} (kimi or kimi_k25)",
    ),
    Family(
        name="Kimi K2.5",
        ids=r"kimi-k2\.[56]",
        reasoning="kimi_k25",
        tools="kimi_k2",
        source=f"{DOCUMENTED}; recipes/kimi-k2.5 and kimi-k2.6",
    ),
    Family(
        name="Kimi K2.7",
        ids=r"kimi-k2\.7-code",
        reasoning="kimi_k25",
        tools="kimi_k2",
        source="reasoning-parsing (reasons even if the request turns it off)",
    ),
    Family(
        name="Kimi K3",
        ids=r"kimi-k3",
        reasoning="kimi_k3",
        tools="kimi_k3",
        source="recipes/kimi-k3",
    ),
    Family(
        name="MiniMax M2",
        ids=r"minimax-m2(\.[157])?",
        reasoning="minimax_m2",
        tools="minimax_m2",
        source=DOCUMENTED,
    ),
    Family(
        name="MiniMax M3",
        ids=r"minimax-m3",
        reasoning="minimax_m3",
        tools="minimax_m3",
        thinks=Thinks.ON_REQUEST,
        source=DOCUMENTED,
    ),
    *(
        Family(
            name=name,
            ids=ids,
            reasoning=reasoning,
            tools=tools,
            also=("nemotron_deci",),  # of tool-call-parsing, for "Nemotron-Super / -Ultra"
            source=source,
        )
        for name, ids, reasoning, tools, source in (
            (
                "Nemotron 3",
                r"nvidia-nemotron-3-(nano-30b-a3b|super-120b-a12b)"
                r"|nemotron-3-nano-omni-30b-a3b-reasoning",
                "nemotron_nano",
                "nemotron_nano",
                f"{DOCUMENTED}; recipes/nemotron-3-super and nemotron-3-nano-omni",
            ),
            (
                "Nemotron 3 Ultra",
                r"nvidia-nemotron-3-ultra-550b-a55b",
                "nemotron3",
                "qwen3_coder",
                "recipes/nemotron-3-ultra",
            ),
            (
                "Nemotron 3.5",
                r"nvidia-nemotron-3\.5-lightning-30b-a3b",
                "nemotron_nano",
                "nemotron_nano",
                "recipes/nemotron-3.5-lightning",
            ),
        )
    ),
    Family(
        name="Llama-Nemotron",
        ids=r"llama-3[_.][13]-nemotron-(super-49b|ultra-253b)-v1([_.]5)?",
        reasoning="nemotron_deci",
        tools="nemotron_deci",
        thinks=Thinks.ON_REQUEST,
        source=DOCUMENTED,
    ),
    Family(
        name="Mistral",
        ids=r"mistral-(7b|nemo|small|large)(-\d+b)?-instruct(-v0\.\d|-\d{4})?"
        r"|mixtral-8x(7|22)b-instruct-v0\.1",
        tools="mistral",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Magistral",
        ids=r"magistral-(small|medium)-25(07|09)",
        reasoning="mistral",
        tools="mistral",
        source=DOCUMENTED,
    ),
    Family(
        name="Llama 3",
        ids=r"(meta-)?llama-3(\.[123])?-\d+b-instruct",
        tools="llama3_json",
        also=("pythonic",),  # what Llama 3.2 of 1B and 3B may write
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Llama 4",
        ids=r"llama-4-(scout|maverick)-17b-\d+e-instruct",
        tools="pythonic",
        also=("llama3_json",),
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Gemma 4",
        ids=r"gemma-4-(e?\d+b)(-a\d+b)?-it",
        reasoning="gemma4",
        tools="gemma4",
        thinks=Thinks.ON_REQUEST,
        source=DOCUMENTED,
    ),
    Family(
        name="Granite 3",
        ids=r"granite-3\.[23]-[28]b-instruct",
        reasoning="granite",
        thinks=Thinks.ON_REQUEST,
        source="reasoning-parsing",
    ),
    Family(name="Step3", ids=r"step3", reasoning="step3", source="reasoning-parsing"),
    Family(
        name="Phi-4",
        ids=r"phi-4|phi-4-mini-(instruct|reasoning)",
        tools="phi4",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Jamba",
        ids=r"(ai21-)?jamba-(mini|large|1\.5-mini|1\.5-large)(-1\.[567])?",
        tools="jamba",
        thinks=Thinks.NEVER,
        source="tool-call-parsing",
    ),
    Family(
        name="Inkling",
        ids=r"inkling",
        reasoning="inkling",
        tools="inkling",
        thinks=Thinks.ON_REQUEST,
        source="frontend-crates#120; recipes/inkling use SGLang's parsers",
    ),
    Family(
        name="Muse Glimmer",
        ids=r"muse-glimmer-\d+b",
        reasoning="muse_glimmer",
        tools="muse_glimmer",
        thinks=Thinks.ON_REQUEST,
        source="UNIFIED_FAMILIES in lib/llm/src/protocols/openai/chat_completions/"
        "tool_parser_v2.rs",
    ),
)


def family_of(model: str) -> Family | None:
    """The family of an id, the path of a cache, or a folder with the model's name."""
    cached = CACHED.search(model)
    last = (cached[2] if cached else model.rstrip("/").rpartition("/")[2]).lower()
    while (shorter := QUANTIZED.sub("", last)) != last:
        last = shorter
    return next((family for family in FAMILIES if re.fullmatch(family.ids, last)), None)
