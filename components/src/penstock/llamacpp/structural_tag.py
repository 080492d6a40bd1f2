"""A structural tag of Dynamo as a grammar for llguidance. Pure.

With a tool-call parser, Dynamo describes the calls that a response may contain by a structural tag,
in the format of xgrammar: free text, and after a trigger such as `<tool_call>` one of several tags
with JSON inside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.llguidance import START

Format = Mapping[str, Any]
ANY = "/(?s:.*)/"
SPACE = r"/\n?/"  # with more, a small model writes nothing else until the limit
EMPTY = '""'
# As Python's json.dumps writes. With any white space, a small model writes nothing else.
ONE_LINE = {
    "x-guidance": {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
    }
}


def grammar_of(structural_tag: Format | str) -> str:
    """``structural_tag``: an object, or its text. InvalidArgument if it is unknown or malformed."""
    grammar = _Grammar()
    try:
        start = grammar.expression(_format(structural_tag))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"The structural tag of this request is invalid: {error}.") from None
    return "\n".join((f"{START}{start}", *grammar.rules))


def requires_tag(structural_tag: Format | str) -> bool:
    """Whether the output must contain a tag, so that the grammar cannot be left out."""
    return _format(structural_tag).get("at_least_one") is not False


def _format(structural_tag: Format | str) -> Format:
    read = json.loads(structural_tag) if isinstance(structural_tag, str) else structural_tag
    outer = read.get("format")
    if not isinstance(outer, Mapping):
        raise InvalidArgument("The structural tag of this request has no format.")
    return outer


@dataclass
class _Grammar:
    rules: list[str] = field(default_factory=list)
    _contents: dict[str, str] = field(default_factory=dict)
    """Schema → its rule: compiling one takes long."""

    def expression(self, part: Format) -> str:
        """The right side of a rule for the format."""
        translate = EXPRESSIONS.get(str(part.get("type")))
        if translate is None:
            raise InvalidArgument(
                f"llama.cpp does not support structural tags with the format {part.get('type')!r}."
            )
        return translate(self, part)

    def rule(self, expression: str, name: str = "rule", attributes: str = "") -> str:
        """Adds a rule; returns its name."""
        full = f"{name}_{len(self.rules)}"
        self.rules.append(f"{full}{attributes}: {expression}")
        return full

    def tag(self, part: Format, begun: str = "") -> str:
        """``begun``: the part of its beginning that was generated."""
        parts = [_literal(str(part["begin"]).removeprefix(begun))]
        content = self.expression(part["content"])
        if content not in self._contents:
            self._contents[content] = self.rule(content)
        parts.append(self._contents[content])
        parts.append(_any_of(_literal(end) for end in _texts(part.get("end", ""))))
        return " ".join(part for part in parts if part)

    def tags(self, parts: list[Format], begun: str = "") -> str:
        return self.rule(" | ".join(self.tag(part, begun) for part in parts))

    def triggered_tags(self, part: Format) -> str:
        """Free text, then tags; only one tag if one is required.

        xgrammar would allow text after a tag, and more tags. But the tags are tool calls, and a
        small model then repeats its call or continues to write until the limit.
        """
        triggers, tags = _texts(part["triggers"]), list(part["tags"])
        if part.get("at_least_one"):
            return self.tags(tags)
        names = " | ".join(_literal(trigger) for trigger in triggers)
        free = self.rule(self.rule(f"{ANY} & ~({ANY} ({names}) {ANY})", "FREE"))
        after = self.rule(" | ".join(self._after(trigger, tags) for trigger in triggers))
        if part.get("stop_after_first"):
            return f"{free} | {after}"
        space = self.rule(SPACE, "SPACE")
        return f"{free} | {after} ({space} {self.tags(tags)})* {space}"

    def _after(self, trigger: str, tags: list[Format]) -> str:
        """Text until the trigger, and the rest of a tag that begins with it."""
        begun = [tag for tag in tags if str(tag["begin"]).startswith(trigger)]
        until = self.rule(self.rule(f"{ANY} {_literal(trigger)}", "UNTIL"), "until", "[lazy]")
        return f"{until} {self.tags(begun, begun=trigger)}"

    def tags_with_separator(self, part: Format) -> str:
        tag, separator = self.tags(list(part["tags"])), _literal(str(part["separator"]))
        more = "" if part.get("stop_after_first") else f" ({separator} {tag})*"
        return f"{tag}{more}" if part.get("at_least_one") else f"({tag}{more})?"


def _texts(texts: Any) -> list[str]:
    return [str(text) for text in texts] if isinstance(texts, list) else [str(texts)]


def _literal(text: str) -> str:
    """A string of llguidance's Lark, which has JSON's escapes; nothing for the empty one."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def _any_of(literals: Iterable[str]) -> str:
    unique = list(literals)
    return unique[0] if len(unique) == 1 else f"({' | '.join(text or EMPTY for text in unique)})"


def _schema(grammar: _Grammar, part: Format) -> str:
    schema = part["json_schema"]
    return f"%json {json.dumps(ONE_LINE | ({} if schema is True else schema))}"


EXPRESSIONS: Mapping[str, Callable[[_Grammar, Format], str]] = {
    "any_text": lambda grammar, part: grammar.rule(ANY, name="TEXT"),
    "const_string": lambda grammar, part: _literal(str(part["value"])),
    "json_schema": _schema,
    "or": lambda grammar, part: " | ".join(
        grammar.rule(grammar.expression(element)) for element in part["elements"]
    ),
    "sequence": lambda grammar, part: " ".join(
        grammar.rule(grammar.expression(element)) for element in part["elements"]
    ),
    "tag": _Grammar.tag,
    "tags_with_separator": _Grammar.tags_with_separator,
    "triggered_tags": _Grammar.triggered_tags,
}
