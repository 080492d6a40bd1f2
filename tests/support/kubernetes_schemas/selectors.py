"""Label selectors: what they match, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.kubernetes_schemas.syntax import Problem, under

TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
FOR_SETS = ("In", "NotIn")


def matches(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """An empty selector matches everything, as in a NetworkPolicy."""
    match_labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in match_labels.items()) and all(
        TESTS[e["operator"]](labels.get(e["key"]), e.get("values") or ())
        for e in expressions
        if e["operator"] in TESTS
    )


def selector_problems(value: Any, place: str = "") -> Iterator[Problem]:
    """Of every label selector below ``value``: operators, and whether they have values."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from selector_problems(item, under(place, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            where = under(place, str(key))
            if key == "matchExpressions" and "nodeAffinity" not in place:
                for index, expression in enumerate(item or ()):
                    yield from _expression(expression, under(where, index))
            else:
                yield from selector_problems(item, where)


def _expression(expression: Mapping[str, Any], place: str) -> Iterator[Problem]:
    operator, values = expression.get("operator"), expression.get("values")
    if operator not in TESTS:
        yield f"{place}.operator", f"operator {operator!r} is not one of {', '.join(TESTS)}"
    elif bool(values) != (operator in FOR_SETS):
        yield (
            f"{place}.values",
            f"{operator} {'needs' if operator in FOR_SETS else 'takes no'} values",
        )
