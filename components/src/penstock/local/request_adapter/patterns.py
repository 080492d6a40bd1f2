"""Regular expressions and grammars that vLLM compiles for a minute or more. Pure.

So it does with `(.{1,100}){1,100}`, the pattern of a string in a JSON schema, and other requests
wait meanwhile (benchmarks/attacks.py). `.{1,10000}`, `maxItems` and `maxLength` cost it little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .prompt import Body
from .refusal import Refusal

MOST_REPETITIONS = 1000  # of one within another: (x{1,20}){1,50}
UNBOUNDED = 10  # `x*` in a repetition costs about as much
MOST_COUNTED = 10**9
# A count, another quantifier, a group's begin and end, or what may contain such characters: an
# escape, a class, or a literal of a grammar.
# All are short: to search for an end that is far away, again and again, would take minutes too.
PART = re.compile(
    r"\{ {0,9}(\d{1,99}) {0,9}(, {0,9}(\d{0,99}))? {0,9}\}|[*+()]|\\."
    r'|\[(?:\\.|[^\]\\]){0,29}\]|"(?:\\.|[^"\\]){0,99}"',
    re.DOTALL,
)
PARAMS = ("response_format", "text", "tools", "guided_json", "guided_regex", "guided_grammar")


def costly(body: Body) -> Refusal | None:
    """For a constraint of the output in which one repetition repeats another too often."""
    for name in PARAMS:
        for pattern in _patterns(body.get(name)):
            if (found := nested_repetitions(pattern)) > MOST_REPETITIONS:
                message = (
                    f"{name!r} has a pattern in which a repetition repeats another {found} times, "
                    f"more than the limit of {MOST_REPETITIONS}: the engine would compile it for "
                    f"minutes, while all other requests wait. Shorten it: {pattern[:60]!r}."
                )
                return Refusal(message=message, param=name, code="invalid_value")
    return None


def _patterns(value: Any) -> Iterator[str]:
    """A regular expression or grammar itself, or those of a JSON schema."""
    if isinstance(value, str):
        yield value
    nodes = [value]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            nodes += node.values()
            named = node.get("patternProperties")
            found = [node.get("pattern"), *(named if isinstance(named, dict) else ())]
            yield from (one for one in found if isinstance(one, str))


def nested_repetitions(pattern: str) -> int:
    """The largest product of the counts of repetitions within each other; 1 without any.

    One with a fixed count, such as `x{30}`, is no more than its text to an engine.
    """
    most, groups, last, end = 1, [1], 1, 0
    for found in PART.finditer(pattern):
        part = found[0]
        last = last if found.start() == end else 1  # after any other character
        end = found.end()
        if found[1]:
            most = max(most, min(last * _times(found), MOST_COUNTED) if last > 1 else 1)
            is_fixed = not found[2] or found[1] == found[3]
            last = last if is_fixed and last == 1 else min(last * _times(found), MOST_COUNTED)
        elif part in "*+":
            last = min(last * UNBOUNDED, MOST_COUNTED)
        elif part == "(":
            groups.append(1)
            last = 1
            continue
        elif part == ")":
            last = groups.pop() if len(groups) > 1 else last
        else:
            last = 1
        groups[-1] = max(groups[-1], last)
    return most


def _times(count: re.Match[str]) -> int:
    """Of a quantifier with braces; digits beyond those of MOST_COUNTED do not matter."""
    given = count[3] or count[1]
    return int(given[:10]) + (UNBOUNDED if count[2] and not count[3] else 0)
