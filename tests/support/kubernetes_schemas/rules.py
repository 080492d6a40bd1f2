"""The CEL rules of a CRD (x-kubernetes-validations), compiled once and evaluated for every value.

`crd` passes the nodes of a document. Rust's cel lacks `.?` and `[?…]`; rules with them do not
compile. Strings with the format date-time stay strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from tests.support.kubernetes_schemas.structure import ABSENT, Node, Schema
from tests.support.kubernetes_schemas.syntax import Problem, quantity

KEYS = ("rule", "message", "messageExpression", "fieldPath", "optionalOldSelf")
# What cel raises if a rule accesses a missing value or mixes types.
FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One compiled rule; a transition rule needs an old value unless ``old_is_optional``."""

    program: Any
    functions: Mapping[str, Callable[..., Any]]  # called by the program
    message: str
    explains: Any | None  # the compiled messageExpression
    is_transition: bool
    old_is_optional: bool
    field: str


def rules_of(schema: Schema) -> tuple[Rule, ...]:
    """Raises ValueError if a rule does not compile."""
    declared = schema.get("x-kubernetes-validations", ())
    return tuple(_rule(*(rule.get(key, "") for key in KEYS)) for rule in declared)


def rule_problems(node: Node) -> Iterator[Problem]:
    """The rules that the node breaks, each with its own message."""
    rules = [rule for rule in rules_of(node.schema) if _applies(rule, node)]
    contexts: dict[bool, Any] = {}  # shared by rules: 1 ms each for a whole spec
    for rule in rules:
        if rule.old_is_optional not in contexts:
            contexts[rule.old_is_optional] = _context(node, rules, rule.old_is_optional)
        message = _verdict(rule, contexts[rule.old_is_optional])
        if message is not None:
            yield node.place + rule.field, message


def _applies(rule: Rule, node: Node) -> bool:
    return not rule.is_transition or rule.old_is_optional or node.old is not ABSENT


def _verdict(rule: Rule, context: Any) -> str | None:
    """The message of a broken rule; None if the rule holds."""
    try:
        if rule.program.execute(context) is True:
            return None
    except FAILURES as error:
        return f"{rule.message}: rule cannot be evaluated: {error}"
    return _explained(rule, context) or rule.message


def _explained(rule: Rule, context: Any) -> str:
    if rule.explains is None:
        return ""
    try:
        text = rule.explains.execute(context)
    except FAILURES:
        return ""
    return text.strip() if isinstance(text, str) else ""


def _context(node: Node, rules: Iterable[Rule], old_is_optional: bool) -> Any:
    import cel

    variables = {"self": node.value}
    if old_is_optional:
        present, none = cel.OptionalValue.of, cel.OptionalValue.none
        variables["oldSelf"] = none() if node.old is ABSENT else present(node.old)
    elif node.old is not ABSENT:
        variables["oldSelf"] = node.old
    called = {name: function for rule in rules for name, function in rule.functions.items()}
    return cel.Context(variables, called)


@cache
def _rule(text: str, message: str, expression: str, field: str, old_is_optional: bool) -> Rule:
    program = compiled(text)
    explains = compiled(expression) if expression else None
    called = set(program.functions()).union(explains.functions() if explains else ())
    return Rule(
        program=program,
        functions={name: functions()[name] for name in called & functions().keys()},
        message=message or f"failed rule: {text.strip()}",
        explains=explains,
        is_transition="oldSelf" in program.variables(),
        old_is_optional=bool(old_is_optional),
        field=field,
    )


@cache
def compiled(text: str) -> Any:
    import cel

    return cel.compile(text)


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Kubernetes' quantity functions, and the string functions of `cel.stdlib`.

    In CEL a quantity is represented by its text.
    """
    from cel.stdlib import STDLIB_FUNCTIONS

    return {
        **STDLIB_FUNCTIONS,
        "quantity": _quantity,
        "isQuantity": lambda text: isinstance(text, str) and quantity(text) is not None,
        "isGreaterThan": lambda a, b: _amount(a) > _amount(b),
        "isLessThan": lambda a, b: _amount(a) < _amount(b),
        "compareTo": lambda a, b: (_amount(a) > _amount(b)) - (_amount(a) < _amount(b)),
    }


def _quantity(text: Any) -> str:
    _amount(text)
    return str(text)


def _amount(text: Any) -> Fraction:
    number = quantity(text)
    if number is None:
        raise ValueError(f"{text!r} is not a quantity")
    return number
