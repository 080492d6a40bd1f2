"""Lines about what no mocker simulates, said alike for every engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def speculation_line(kind: str, tokens: Any) -> str:
    drafted = f", {tokens} tokens" if tokens else ""
    return (
        f"speculative decoding ({kind}{drafted}): the mocker needs a measured acceptance rate,"
        " so it decodes one token a step"
    )


def parser_lines(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Dynamo's own worker settings, alike in every engine's parser."""
    lines = []
    names = (settings.get("dyn_reasoning_parser"), settings.get("dyn_tool_call_parser"))
    if found := [name for name in names if name]:
        lines.append(
            f"reasoning and tool parsers ({', '.join(found)}): the mocker's answers are random"
            " tokens, with nothing in them to parse"
        )
    if settings.get("enable_multimodal"):
        lines.append("multimodal input: the mocker reads text alone")
    advertised = settings.get("router_advertisement") or {}
    if mode := advertised.get("router_mode"):
        lines.append(
            f"--router-mode {mode} advertised by the worker: the frontend's own mode holds"
        )
    return tuple(lines)
