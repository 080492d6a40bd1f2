"""What the adapter needs to know about the served model, read from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class Model:
    """Facts about a model; the defaults apply to one whose files are not known."""

    renders_tools: bool = True
    """Whether the chat template writes the `tools` of a request into the prompt."""
    renders_tool_calls: bool = True
    """Whether it writes the tool calls of earlier messages into the prompt."""
    vocabulary: int | None = None
    """Number of token ids; None: unknown."""
    tool_call_parser: str | None = None
    """Dynamo's parser of its output."""
    has_tokenizer: bool = False
    """Whether its tokens can be decoded here."""


def read_model(
    folder: Path | None, template: Path | None = None, tool_call_parser: str | None = None
) -> Model:
    """``folder``: of its config and tokenizer files; ``template``: instead of the model's own."""
    if folder is None:
        return Model()
    if template is None:
        own = chat_templates(folder)
    else:  # that of a graph may be missing: its workers then do not start
        own = [template.read_text("utf-8")] if template.is_file() else []
    size = _json(folder / "config.json").get("vocab_size")
    return Model(
        renders_tools=not own or any("tools" in one for one in own),
        renders_tool_calls=not own or any("tool_calls" in one for one in own),
        vocabulary=size if isinstance(size, int) else None,
        tool_call_parser=tool_call_parser,
        has_tokenizer=(folder / TOKENIZER).is_file(),
    )


def chat_templates(folder: Path) -> list[str]:
    """The chat template of the model in ``folder``, or several, for example one for tools."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return [file.read_text("utf-8")]
    given = _json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(given, list):
        return [str(one.get("template")) for one in given if isinstance(one, dict)]
    return [given] if isinstance(given, str) else []


def _json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
