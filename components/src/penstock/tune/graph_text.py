"""Writes router settings into the text of a graph, with the evidence as a comment above them."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from penstock.graph.edit import set_values
from penstock.graph.load import parse_graph
from penstock.strict_yaml.loader import SafeLoader
from penstock.tune.settings import RouterSettings

SECTION = "router"
MARK = "# tuned by: "
MORE = "#   "  # the following lines of the comment


def tuned_text(
    text: str,
    settings: RouterSettings,
    base: RouterSettings,
    comment: Sequence[str],
    source: str = "graph.yaml",
) -> str:
    """The graph with these settings instead of ``base``; the rest keeps its formatting.

    GraphError if the graph is invalid, or if a setting cannot be changed alone.
    """
    keys = settings.keys
    # A setting that the graph does not have, and that stays, is not added.
    changed = {key: value for key, value in keys.items() if value != base.keys[key]}
    edited = set_values(text, SECTION, changed, source)
    commented = _with_comment(edited, comment)
    assert parse_graph(commented, source).values == parse_graph(edited, source).values
    return commented


def _with_comment(text: str, comment: Sequence[str]) -> str:
    """The text with the comment above `router`, in place of an earlier one of `tune`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    at, indent = _section_start(text)
    before, after = text[:at], text[at:]
    lines = before.splitlines(keepends=True)
    while lines and lines[-1].lstrip().startswith((MARK, MORE)):
        is_first = lines.pop().lstrip().startswith(MARK)
        if is_first:
            break
    else:
        lines = before.splitlines(keepends=True)  # no comment of `tune`
    first, *more = comment
    new = [f"{indent}{MARK}{first}", *(f"{indent}{MORE}{line}" for line in more)]
    return "".join([*lines, *(f"{line}{newline}" for line in new), after])


def _section_start(text: str) -> tuple[int, str]:
    """Where the line of `router` begins, and its indentation; in flow style, that of the graph."""
    # libyaml's marks do not count a byte order mark.
    offset = 1 if text.startswith("\ufeff") else 0
    root = yaml.compose(text[offset:], Loader=SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    if root.flow_style:
        return offset, ""
    mark = next(key.start_mark for key, _ in root.value if key.value == SECTION)
    return mark.index - mark.column + offset, " " * mark.column
