"""What the expressions of rows call: three-valued logic. None is a fact that is not known.

`expressions.compiled` writes these calls in place of Python's operators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

Operand = Callable[[], Any]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda member, group: member in group,
    "NotIn": lambda member, group: member not in group,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "BitOr": operator.or_,
}


def all_of(*operands: Operand) -> Any:
    """`and`: the first operand that is false, else None if one is not known, else the last."""
    return all_elements(operand() for operand in operands)


def all_elements(group: Iterable[Any] | None) -> Any:
    """`all`: as `all_of`, for elements; None if the group is not known."""
    if group is None:
        return None
    last: Any = True
    is_known = True
    for last in group:
        if last is None:
            is_known = False
        elif not last:
            return last
    return last if is_known else None


def any_of(*operands: Operand) -> Any:
    """`or`: the first operand that is true, else None if one is not known, else the last."""
    return any_element(operand() for operand in operands)


def any_element(group: Iterable[Any] | None) -> Any:
    """`any`: as `any_of`, for elements; None if the group is not known."""
    if group is None:
        return None
    last: Any = False
    is_known = True
    for last in group:
        if last is None:
            is_known = False
        elif last:
            return last
    return last if is_known else None


def negated(operand: Any) -> bool | None:
    return None if operand is None else not operand


def compared(name: str, left: Any, right: Any) -> bool | None:
    """A comparison; None if a side is not known, or if the two have no order, like 1 and "a"."""
    if left is None or right is None:
        return None
    try:
        return bool(COMPARISONS[name](left, right))
    except TypeError:
        return None


def calculated(name: str, left: Any, right: Any) -> Any:
    """Arithmetic; None if an operand is not known, or for a division by 0."""
    if left is None or right is None:
        return None
    try:
        return ARITHMETIC[name](left, right)
    except ZeroDivisionError:
        return None


def attribute(owner: Any, name: str) -> Any:
    return None if owner is None else getattr(owner, name)


def element(owner: Any, key: Any) -> Any:
    """`owner[key]`; None if the key is missing."""
    if owner is None or key is None:
        return None
    try:
        return owner[key]
    except (KeyError, IndexError, TypeError):  # a mapping is the key of nothing
        return None


def called(function: Any, *args: Any, **keywords: Any) -> Any:
    """A call of a method; None if its object is not known."""
    return None if function is None else function(*args, **keywords)


def elements(group: Iterable[Any] | None) -> Iterable[Any]:
    return () if group is None else group


def is_instance(operand: Any, kinds: Any) -> bool:
    """`isinstance`, also for the types that `BUILTINS` has as functions."""
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    types: tuple[Any, ...] = tuple(getattr(kind, "__wrapped__", kind) for kind in listed)
    return isinstance(operand, types)


def _of_known(function: Callable[..., Any]) -> Callable[..., Any]:
    def known(*args: Any, **keywords: Any) -> Any:
        if any(arg is None for arg in args):
            return None
        try:
            return function(*args, **keywords)
        except ValueError:  # such as max(()) and int('text')
            return None

    known.__wrapped__ = function  # type: ignore[attr-defined]
    return known


OF_KNOWN: tuple[Any, ...] = (
    *(len, min, max, abs, sum, sorted, round, int, float, range, zip, enumerate, math.gcd),
)
# Functions of Python that expressions may call. The first ones return None if an argument is None.
BUILTINS: dict[str, Any] = {
    **{function.__name__: _of_known(function) for function in OF_KNOWN},
    **{function.__name__: function for function in (str, bool, tuple, list, dict, set)},
    "isinstance": is_instance,
    "any": any_element,
    "all": all_elements,
}
