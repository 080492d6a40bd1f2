"""What the adapter needs to know about the served model, read from its folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Model:
    """Facts about a model; the defaults apply to one whose files are not known."""

    renders_tools: bool = True
    """Whether the chat template writes the `tools` of a request into the prompt."""
    renders_tool_calls: bool = True
    """Whether it writes the tool calls of earlier messages into the prompt."""
    vocabulary: int | None = None
    """Number of token ids; None: unknown."""


def read_model(folder: Path | None) -> Model:
    """The model in ``folder``."""
    if folder is None:
        return Model()
    template = _template(folder)
    size = _json(folder / "config.json").get("vocab_size")
    return Model(
        renders_tools=template is None or "tools" in template,
        renders_tool_calls=template is None or "tool_calls" in template,
        vocabulary=size if isinstance(size, int) else None,
    )


def _template(folder: Path) -> str | None:
    """The text of the chat template. Of several, for example one for tools, all of them."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    given = _json(folder / "tokenizer_config.json").get("chat_template")
    return None if given is None else json.dumps(given)


def _json(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
