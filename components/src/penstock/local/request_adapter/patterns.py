"""Regular expressions and grammars that vLLM compiles for a minute or more. Pure.

An example is `(.{1,100}){1,100}` as the pattern of a string in a JSON schema; all other requests
wait meanwhile (benchmarks/attacks.py). `.{1,10000}`, `maxItems` and `maxLength` compile fast. The
cost grows with the product of the counts of nested repetitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .prompt import Body
from .refusal import Refusal

MOST_REPETITIONS = 1000  # of one within another: (x{1,20}){1,50}
UNBOUNDED = 10  # `x*` in a repetition costs about as much
MOST_COUNTED = 10**9
# A count, another quantifier, a group's begin and end, or what may contain such characters: an
# escape or a class. All are short: to search for an end that is far away, again and again, would
# take minutes too.
REGEX = re.compile(
    r"\{ {0,9}(\d{1,99}) {0,9}(, {0,9}(\d{0,99}))? {0,9}\}|[*+()]|\\."
    r"|\[(?:\\.|[^\]\\]){0,29}\]",
    re.DOTALL,
)
# Also literals, and names of rules.
GRAMMAR = re.compile(REGEX.pattern + r'|"(?:\\.|[^"\\]){0,99}"|[A-Za-z_][\w-]{0,99}', re.DOTALL)
RULE = re.compile(r"^[ \t]*([A-Za-z_][\w-]*)[ \t]*::=", re.MULTILINE)
PARAMS = (
    *("response_format", "text", "tools", "structural_tag", "guided_json", "guided_regex"),
    *("guided_grammar", "guided_whitespace_pattern"),
)
GRAMMARS = ("guided_grammar", "grammar")
REGEXES = ("guided_regex", "guided_whitespace_pattern", "pattern", "regex")


def costly(body: Body) -> Refusal | None:
    """For a constraint of the output in which one repetition repeats another too often."""
    for name in PARAMS:
        for key, pattern in _patterns(name, body.get(name)):
            count = in_grammar if key in GRAMMARS else nested_repetitions
            if (found := count(pattern)) > MOST_REPETITIONS:
                message = (
                    f"{name!r} has a pattern whose nested repetitions multiply to {found}, more "
                    f"than the limit of {MOST_REPETITIONS}. The engine could compile it for "
                    f"minutes and block all other requests. Lower the counts in {pattern[:60]!r}."
                )
                return Refusal(message=message, param=name, code="invalid_value")
    return None


def _patterns(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """(key, regular expression or grammar) of a parameter, such as those of its JSON schema."""
    if name == "guided_json" and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return  # the engine refuses it
    nodes = [(name, value)]
    while nodes:
        key, node = nodes.pop()
        if isinstance(node, list):
            nodes += [(key, item) for item in node]
        elif isinstance(node, dict):
            nodes += node.items()
            if isinstance(named := node.get("patternProperties"), dict):
                yield from (("pattern", one) for one in named)
        elif isinstance(node, str) and key in (*GRAMMARS, *REGEXES):
            yield key, node


def in_grammar(text: str) -> int:
    """As `nested_repetitions`, of a grammar whose rules contain each other."""
    starts = [*RULE.finditer(text)]
    ends = [*(start.start() for start in starts[1:]), len(text)]
    rules = {start[1]: text[start.end() : end] for start, end in zip(starts, ends, strict=False)}
    weights = dict.fromkeys(rules, 1)
    most = nested_repetitions(text, GRAMMAR)
    for _ in range(3):  # deeper ones repeat a repetition too
        for name, rule in rules.items():
            found, weights[name] = _count(rule, GRAMMAR, weights)
            most = max(most, found)
    return most


def nested_repetitions(pattern: str, parts: re.Pattern[str] = REGEX) -> int:
    """The largest product of the counts of repetitions within each other; 1 without any.

    One with a fixed count, such as `x{30}`, is no more than its text to an engine.
    """
    return _count(pattern, parts, {})[0]


def _count(pattern: str, parts: re.Pattern[str], rules: Mapping[str, int]) -> tuple[int, int]:
    """The largest product, and the sum of the counts outside of groups; both at least 1."""
    most, groups, last, end = 1, [0], 1, 0
    for found in parts.finditer(pattern):
        part = found[0]
        if found[1] or part in "*+":
            if found.start() != end:  # after any other character
                groups[-1] += last if last > 1 else 0
                last = 1
            times = _times(found) if found[1] else UNBOUNDED
            most = max(most, min(last * times, MOST_COUNTED) if last > 1 and found[1] else 1)
            is_fixed = bool(found[1]) and (not found[2] or found[1] == found[3])
            last = last if is_fixed and last == 1 else min(last * times, MOST_COUNTED)
        else:
            groups[-1] += last if last > 1 else 0
            last = rules.get(part, 1)
            if part == "(":
                groups.append(0)
            elif part == ")":
                last = max(groups.pop(), 1) if len(groups) > 1 else 1
        end = found.end()
    groups[-1] += last if last > 1 else 0
    return most, max(min(sum(groups), MOST_COUNTED), 1)


def _times(count: re.Match[str]) -> int:
    """Of a quantifier with braces; digits beyond those of MOST_COUNTED do not matter."""
    given = count[3] or count[1]
    return int(given[:10]) + (UNBOUNDED if count[2] and not count[3] else 0)
