"""The parsers of Dynamo, with the first release that has each: get_reasoning_parser_names and
get_tool_parser_names of its runtime. No release up to 1.7 removed one.

tests/engines/test_flags.py compares the names with the installed package.
"""

from __future__ import annotations

from collections.abc import Mapping


def _since(names: Mapping[str, str]) -> Mapping[str, str]:
    """Each name with the first release that has it, of a release's names in one text."""
    return {name: release for release, text in names.items() for name in text.split()}


REASONING = _since(
    {
        "0.5": "basic deepseek_r1 gpt_oss granite kimi mistral nemotron_deci qwen3 step3",
        "0.9": "nemotron_nano",
        "1.0": "glm45 kimi_k25 minimax_append_think nemotron3",
        "1.2": "deepseek-v4 deepseek_v4 deepseekv4 gemma-4 gemma4 nemotron_v3",
        "1.3": "deepseek_v3 deepseek_v3_1 deepseek_v3_2 minimax-m3 minimax_m2 minimax_m3",
        "1.4": "inkling kimi-k3 kimi_k3",
        "1.5": "muse muse_glimmer",
        "1.6": "deepseek_v41 glm47 kimi_k2 qwen3_coder",
    }
)
TOOL_CALL = _since(
    {
        "0.5": "deepseek_v3_1 default harmony hermes llama3_json mistral nemotron_deci phi4 "
        "pythonic",
        "0.7": "deepseek_v3 jamba qwen3_coder",
        "0.8": "deepseek_v3_2",
        "0.9": "minimax_m2 nemotron_nano",
        "1.0": "glm47 kimi_k2",
        "1.2": "deepseek-v4 deepseek_v4 deepseekv4 gemma-4 gemma4 qwen25",
        "1.3": "minimax-m3 minimax-m3-nom minimax_m3 minimax_m3_nom",
        "1.4": "inkling kimi-k3 kimi_k3",
        "1.5": "muse muse_glimmer",
        "1.6": "deepseek_v41 glm45 kimi_k25 qwen3",
    }
)
