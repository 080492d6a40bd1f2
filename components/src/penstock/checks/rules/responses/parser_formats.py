"""What Dynamo's parsers read: the names of those that read the same text.

Source: `get_reasoning_parser_map` and `get_tool_parser_map` of parsers/v1 in
ai-dynamo/frontend-crates@07175ff5 and @9689b20c. Names of 1.6.1 that they do not have, such as the
reasoning parsers glm47 and kimi_k2, are not listed, nor is `default`: nothing says what they read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Format:
    # What the model writes, after "writes".
    text: str
    # The names of Dynamo's parsers that read it.
    parsers: tuple[str, ...]


REASONING_FORMATS = (
    Format(
        text="its reasoning as <think>…</think>",
        parsers=(
            *("basic", "deepseek_r1", "deepseek_v3", "deepseek_v3_1", "deepseek_v3_2"),
            *("deepseek_v4", "deepseek-v4", "deepseekv4", "glm45", "kimi_k25", "minimax_m2"),
            *("minimax_append_think", "nemotron3", "nemotron_deci", "nemotron_nano"),
            *("nemotron_v3", "qwen3", "step3"),
        ),
    ),
    Format(text="its reasoning as ◁think▷…◁/think▷", parsers=("kimi",)),
    Format(text="its reasoning in a channel of K3", parsers=("kimi_k3", "kimi-k3")),
    Format(text="its reasoning as <mm:think>…</mm:think>", parsers=("minimax_m3", "minimax-m3")),
    Format(text="its reasoning as [THINK]…[/THINK]", parsers=("mistral",)),
    Format(text='its reasoning after "Here\'s my thought process:"', parsers=("granite",)),
    Format(text="its reasoning in <|channel>…<channel|>", parsers=("gemma4", "gemma-4")),
    Format(text="its reasoning in blocks of Inkling", parsers=("inkling",)),
    Format(text="its reasoning in the format of Muse", parsers=("muse", "muse_glimmer")),
    Format(text="the harmony format", parsers=("gpt_oss",)),
)
TOOL_FORMATS = (
    Format(text="tool calls as JSON in <tool_call>", parsers=("hermes", "qwen25")),
    Format(
        text="tool calls as <tool_call><function=…>",
        parsers=("qwen3_coder", "nemotron_nano"),
    ),
    Format(text="tool calls as <TOOLCALL>[…]", parsers=("nemotron_deci",)),
    Format(text="tool calls between DeepSeek V3's markers", parsers=("deepseek_v3",)),
    Format(text="tool calls between DeepSeek V3.1's markers", parsers=("deepseek_v3_1",)),
    Format(text="tool calls as DSML function_calls", parsers=("deepseek_v3_2",)),
    Format(
        text="tool calls as DSML tool_calls",
        parsers=("deepseek_v4", "deepseek-v4", "deepseekv4"),
    ),
    Format(text="tool calls with <arg_key> and <arg_value>", parsers=("glm47",)),
    Format(text="tool calls as <|tool_calls_section_begin|>", parsers=("kimi_k2",)),
    Format(text="tool calls in a channel of K3", parsers=("kimi_k3", "kimi-k3")),
    Format(text="tool calls as <minimax:tool_call>", parsers=("minimax_m2",)),
    Format(
        text="tool calls in MiniMax M3's namespace",
        parsers=("minimax_m3", "minimax-m3", "minimax_m3_nom", "minimax-m3-nom"),
    ),
    Format(text="tool calls as <|tool_call>…<tool_call|>", parsers=("gemma4", "gemma-4")),
    Format(text="tool calls as [TOOL_CALLS]", parsers=("mistral",)),
    Format(text="tool calls as a Python list", parsers=("pythonic",)),
    Format(text="tool calls as JSON, after <|python_tag|> or alone", parsers=("llama3_json",)),
    Format(text="tool calls as functools[…]", parsers=("phi4",)),
    Format(text="tool calls as JSON in <tool_calls>", parsers=("jamba",)),
    Format(text="tool calls in blocks of Inkling", parsers=("inkling",)),
    Format(text="tool calls in the format of Muse", parsers=("muse", "muse_glimmer")),
    Format(text="the harmony format", parsers=("harmony",)),
)


def format_of(parser: str, formats: tuple[Format, ...]) -> Format | None:
    """What a parser reads; None if it is not known."""
    return next((one for one in formats if parser in one.parsers), None)
