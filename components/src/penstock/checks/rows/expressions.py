"""Expressions of rows and templates of their texts → Python source that calls `logic`."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache

from penstock.checks.rows.logic import ARITHMETIC
from penstock.hardware import Gpu
from penstock.manifests.pods import Pod
from penstock.models import ModelShape
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.text.names import KEY_CUTOFF, nearest

# Python's other expressions (lambda, await, walrus, …) have no meaning in a row.
ALLOWED = (
    *(ast.Expression, ast.Load, ast.Store, ast.Name, ast.Constant, ast.Attribute, ast.Subscript),
    *(ast.Call, ast.keyword, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub),
    *(ast.Compare, ast.cmpop, ast.BinOp, ast.operator, ast.IfExp, ast.Tuple, ast.List, ast.Dict),
    *(ast.Set, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.comprehension),
    *(ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue),
)


# The types of the variables of rows. Their public attributes are facts.
TYPES: Mapping[str, type] = {
    "deployment": ServingDeployment,
    **dict.fromkeys(("worker", "prefill", "decode"), Worker),
    "model": ModelShape,
    "gpu": Gpu,
    "pod": Pod,
}
# Private names, and public ones through which Python's own objects reach private ones.
PRIVATE = re.compile(r"_|(gi|cr|ag|f|tb|co|func)_|(format|format_map|mro)$")
NEVER_NONE = ("deployment", "worker", "prefill", "decode", "component", "pod")
# The names that an expression may use; None: all.
Names = Collection[str] | None


class ExpressionError(ValueError):
    """An expression that is not valid. The text states why, and may suggest a name."""


def compiled(text: str, names: Names) -> str:
    """The Python source of an expression; ExpressionError if it is not one, or if a name is
    neither in ``names`` nor bound by a comprehension of the expression."""
    return ast.unparse(_Translator(names).visit(_parsed(text)))


def compiled_condition(text: str, names: Names) -> str:
    """As `compiled`, for a condition: a condition that is not known counts as false."""
    return ast.unparse(_Translator(names).truth(_parsed(text)))


def names_in(text: str) -> set[str]:
    """The names in an expression."""
    return {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}


def compiled_clauses(text: str, names: Names) -> tuple[list[str], set[str]]:
    """The statements `for` and `if` of clauses such as `worker in deployment.workers if
    worker.is_trtllm`, outermost first, and the names that they bind."""
    comprehension = _parsed(f"[None for {text}]")
    if not isinstance(comprehension, ast.ListComp):
        raise ExpressionError(f"{text!r} is not `NAME in EXPRESSION`")
    translator = _Translator(names)
    statements, bound = [], set()
    for clause in comprehension.generators:
        group = ast.unparse(translator.visit(clause.iter))
        bound |= _bound(clause.target)
        translator.bind(bound)
        statements.append(f"for {ast.unparse(clause.target)} in elements({group}):")
        for condition in clause.ifs:
            statements.append(f"if {ast.unparse(translator.truth(condition))}:")
    return statements, bound


def compiled_template(text: str, names: Names) -> str:
    """The Python source of a text that contains `{expression}`, `{expression:format}` or
    `{expression!r}`."""
    parts = []
    try:
        for literal, field, form, conversion in string.Formatter().parse(text):
            if literal:
                parts.append(repr(literal))
            if field is not None:
                inserted = compiled(field, names)
                inserted = f"repr({inserted})" if conversion == "r" else inserted
                parts.append(f"format({inserted}, {form or ''!r})")
    except ExpressionError:
        raise
    except ValueError as error:
        raise ExpressionError(f"{text!r}: {error}") from error
    return f"''.join(({', '.join(parts)},))" if len(parts) > 1 else "".join(parts) or "''"


def _parsed(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ExpressionError(f"{text!r} is not an expression: {error.msg}") from error
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise ExpressionError(f"{text!r} has {type(node).__name__}, which no row may have")
    return tree.body


def _bound(target: ast.expr) -> set[str]:
    """The names that a clause binds; ExpressionError for anything but names."""
    for node in ast.walk(target):
        if not isinstance(node, (ast.Name, ast.Tuple, ast.Store)):
            raise ExpressionError(f"{ast.unparse(target)!r} is not a name")
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


class _Translator(ast.NodeTransformer):
    """Writes calls of `logic` for operators. ``names``: as for `compiled`."""

    def __init__(self, names: Names) -> None:
        self.names = None if names is None else {*names}

    def bind(self, names: set[str]) -> None:
        if self.names is not None:
            self.names |= names

    def truth(self, node: ast.expr) -> ast.expr:
        """A condition. Not known counts as false, so Python's own operators suffice."""
        match node:
            case ast.BoolOp():
                return ast.BoolOp(node.op, [self.truth(operand) for operand in node.values])
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=constant)]):
                if constant is not None:
                    return ast.Compare(self.visit(node.left), node.ops, node.comparators)
            case ast.Compare(ops=[ast.In()], comparators=[ast.Tuple(elts=members)]):
                if all(isinstance(m, ast.Constant) and m.value is not None for m in members):
                    return ast.Compare(self.visit(node.left), node.ops, node.comparators)
        return self.visit(node)  # type: ignore[no-any-return]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if self.names is not None and node.id not in self.names:
            raise _unknown(node.id, self.names)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if PRIVATE.match(node.attr):
            raise ExpressionError(f"{node.attr!r} is not public")
        if self.names is not None and isinstance(node.value, ast.Name):
            _require_attribute(node.value.id, node.attr)
        if _is_sure(node.value):
            return ast.Attribute(self.visit(node.value), node.attr)
        return _call("attribute", self.visit(node.value), ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Slice):
            return self.generic_visit(node)  # type: ignore[return-value]
        return _call("element", self.visit(node.value), self.visit(node.slice))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(word.arg, self.visit(word.value)) for word in node.keywords]
        function = self.visit(node.func)
        is_method = isinstance(node.func, ast.Attribute) and _is_sure(node.func.value)
        if isinstance(node.func, ast.Name) or is_method:
            return ast.Call(function, args, keywords)
        return ast.Call(ast.Name("called"), [function, *args], keywords)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        last = node.values[-1]
        if name == "any_of" and isinstance(last, ast.Constant) and not isinstance(last.value, bool):
            # `x or 0`: the default also applies if x is not known.
            return ast.BoolOp(ast.Or(), [*map(self.visit, node.values[:-1]), last])
        return _call(name, *(_deferred(self.visit(operand)) for operand in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return _call("negated", self.visit(node.operand))
        return _call("calculated", ast.Constant("Sub"), ast.Constant(0), self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        name = ast.Constant(type(node.op).__name__)
        if name.value not in ARITHMETIC:
            raise ExpressionError(f"{ast.unparse(node)!r} has an operator that no row may have")
        return _call("calculated", name, self.visit(node.left), self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(side) for side in (node.left, *node.comparators)]
        pairs = [
            _comparison(op, left, right)
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else _call("all_of", *map(_deferred, pairs))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return ast.IfExp(self.truth(node.test), self.visit(node.body), self.visit(node.orelse))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> ast.expr:
        outer = self.names
        self.names = None if outer is None else {*outer}
        for clause in node.generators:
            clause.iter = _call("elements", self.visit(clause.iter))
            self.bind(_bound(clause.target))
            clause.ifs = [self.truth(condition) for condition in clause.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        self.names = outer
        return node

    # The names that NodeTransformer calls.
    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension  # noqa: N815


def _is_sure(node: ast.expr) -> bool:
    """Whether the node is a variable that is never None, or a class."""
    return isinstance(node, ast.Name) and (node.id in NEVER_NONE or node.id[0].isupper())


def _comparison(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
    if isinstance(operator, (ast.Is, ast.IsNot)):
        return ast.Compare(left, [operator], [right])
    return _call("compared", ast.Constant(type(operator).__name__), left, right)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), [*args], [])


def _deferred(operand: ast.expr) -> ast.expr:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, operand)


@cache
def attributes(owner: type) -> frozenset[str]:
    """The public attributes of a dataclass."""
    names = {*dir(owner), *(field.name for field in fields(owner))}
    return frozenset(name for name in names if not name.startswith("_"))


def _require_attribute(variable: str, name: str) -> None:
    """Raise ExpressionError if a variable of `TYPES` has no such attribute."""
    if variable in TYPES and name not in attributes(TYPES[variable]):
        close = nearest(name, attributes(TYPES[variable]))
        suggestion = f"; did you mean {variable}.{close}?" if close else ""
        raise ExpressionError(f"there is no {variable}.{name}{suggestion}")


def _unknown(name: str, names: Collection[str]) -> ExpressionError:
    close = nearest(name, names, KEY_CUTOFF)
    return ExpressionError(
        f"there is no fact {name!r}" + (f"; did you mean {close}?" if close else "")
    )
