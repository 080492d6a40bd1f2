"""`--set path=value`, with Helm's own parser, applied to the values of a graph.

The SDK parses an expression without base values, so `args[0]=x` would drop the other items. The
base values are therefore prepended as an expression, with a numbered placeholder for each leaf. The
SDK makes a text of a decimal such as 0.8; `with_decimals` reads it as YAML does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue

from penstock.errors import Problem
from penstock.helm import HelmError, parse_set
from penstock.strict_yaml.places import Path, place_of, value_at
from penstock.strict_yaml.problems import kind_of, shown
from penstock.strict_yaml.scalars import TOO_LARGE, read_scalar

FILE = "--set"
# From Unicode's private use area, so that no value of a user looks like a placeholder.
_LEAF = "\ue000leaf"
_EMPTY = "\ue000empty"
# Helm rejects paths of more than 30 steps, so --set cannot address deeper values.
_DEEPEST = 25
_STEPS = re.compile(r"\[(?P<index>[0-9]+)\]|\.?(?P<key>[^.\[\]]+)")
# A part of a message of Helm's parser → the reason for readers who do not know Go.
_REASONS = {
    "interface conversion": "a part of the path is a single value in the graph",
    "strconv": "the text between [ and ] is not the number of an item",
    "key map": "a step of the path is empty",
}


@dataclass(frozen=True, kw_only=True)
class Overridden:
    """Values after every --set."""

    values: dict[str, Any]
    # Dotted place → the expression that changed it.
    sets: Mapping[str, str]
    problems: tuple[Problem, ...]


def apply_sets(values: Mapping[str, Any], sets: Sequence[str]) -> Overridden:
    """Apply --set expressions in order, as `helm install --set` would."""
    result = dict(values)
    changed: dict[str, str] = {}
    problems: list[Problem] = []
    for expression in sets:
        try:
            after = _apply(result, expression)
        except HelmError as error:
            problems.append(_refused(expression, str(error), result))
            continue
        if after is None:
            problems.append(_refused(expression, "it sets no value", result))
            continue
        touched = [place_of(path) for path in _changes(result, after, ())]
        changed |= dict.fromkeys(touched, expression)
        problems += _too_large(result, after)
        result = after
    return Overridden(values=result, sets=changed, problems=tuple(problems))


def _apply(values: dict[str, Any], expression: str) -> dict[str, Any] | None:
    parsed_alone = parse_set(expression)
    if not parsed_alone:
        return None
    # Only the sections that the expression names: the text for Helm's parser stays short.
    present = {key: values[key] for key in parsed_alone if key in values}
    base = _Base()
    pairs = [f"{path}={leaf}" for path, leaf in base.pairs(present)]
    parsed = parse_set(",".join([*pairs, expression]))
    return {**values, **base.restored(parsed, present)}


def _refused(expression: str, reason: str, values: Mapping[str, Any]) -> Problem:
    """The problem of an expression that Helm's parser refuses."""
    path = expression.partition("=")[0]
    if "interface conversion" in reason and (conflict := _conflict(path, values)):
        message, fix = conflict
        return Problem(file=FILE, place=path, message=message, fix=fix)
    known = (words for fragment, words in _REASONS.items() if fragment in reason)
    return Problem(
        file=FILE,
        place=path,
        message=f"cannot be applied: {next(known, reason)}",
        fix=r"Write PATH=VALUE, such as `decode.replicas=2`. Escape a comma in a value as `\,`.",
    )


def _conflict(path: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a step of the path expects and the graph does not have, and the fix."""
    node: Any = values
    above = ""
    for step in _STEPS.finditer(path):
        index, key = step["index"], step["key"]
        expected = list if index else dict
        if not isinstance(node, expected) and above:
            below = ".KEY" if isinstance(node, dict) else "[0]" if isinstance(node, list) else ""
            inline = "" if below else " (null)" if node is None else f" {shown((above,), node)}"
            noun = "a list" if index else "a section"
            fix = f"Write `--set {above}{below}=VALUE`."
            if node is None:
                fix = f"Remove `{above}`, which has no value, from the file."
            return f"`{above}` is {kind_of(node)}{inline}, not {noun}", fix
        try:
            node = node[int(index)] if index else node[key]
        except (KeyError, IndexError):
            return None
        above = path[: step.end()]
    return None


@dataclass
class _Base:
    """Converts values to a --set expression and back."""

    leaves: dict[str, Any] = field(default_factory=dict)

    def pairs(self, value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
        if depth < _DEEPEST and isinstance(value, dict) and (value or not path):
            for key, inner in value.items():
                step = f"{path}.{_escaped(key)}" if path else _escaped(key)
                yield from self.pairs(inner, step, depth + 1)
        elif depth < _DEEPEST and isinstance(value, list) and value:
            for index, inner in enumerate(value):
                yield from self.pairs(inner, f"{path}[{index}]", depth + 1)
        else:
            yield self._pair(path, value)

    def _pair(self, path: str, value: Any) -> tuple[str, str]:
        if value == {}:
            return f"{path}.{_EMPTY}", "x"
        if value == []:
            return path, f"{{{_EMPTY}}}"
        if value is None:
            return path, "null"
        leaf = f"{_LEAF}{len(self.leaves)}"
        self.leaves[leaf] = value
        return path, leaf

    def restored(self, after: Any, before: Any) -> Any:
        """The parsed expression with the leaves restored, and maps in their original order."""
        if isinstance(after, dict):
            keys = [k for k in before if k in after] if isinstance(before, dict) else []
            keys += [k for k in after if k not in keys and k != _EMPTY]
            old = before if isinstance(before, dict) else {}
            return {k: self.restored(after[k], old.get(k)) for k in keys}
        if isinstance(after, list):
            return self._restored_list(after, before)
        return self.leaves.get(after, after) if isinstance(after, str) else after

    def _restored_list(self, after: list[Any], before: Any) -> list[Any]:
        if after == [_EMPTY]:
            return []
        old = before if isinstance(before, list) else []
        old = [*old, *[None] * len(after)]
        items = [None if item == _EMPTY else item for item in after]
        return [self.restored(item, was) for item, was in zip(items, old, strict=False)]


def _escaped(key: str) -> str:
    return "".join(f"\\{c}" if c in "\\.,=[]{}" else c for c in key)


def _changes(before: Any, after: Any, path: Path) -> Iterator[Path]:
    """Places whose value is new or changed, with everything below them."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, inner in after.items():
            yield from _changes(before.get(key, _changes), inner, (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for index, inner in enumerate(after):
            was = before[index] if index < len(before) else _changes
            yield from _changes(was, inner, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield path
        for step, inner in _children(after):
            yield from _changes(_changes, inner, (*path, step))


def _children(node: Any) -> list[tuple[str | int, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, list) else []


def _too_large(before: Any, after: Any) -> list[Problem]:
    return [
        Problem(
            file=FILE,
            place=place_of(path),
            message=f"{number} is too large: Helm keeps numbers as 64-bit floats, exact below 2^53",
            fix="Write a number below 2^53.",
        )
        for path in _changes(before, after, ())
        if isinstance(number := value_at(after, path), int) and abs(number) >= TOO_LARGE
    ]


def with_decimals(
    values: Mapping[str, Any], sets: Mapping[str, str], model: type[BaseModel]
) -> dict[str, Any]:
    """The values with the decimals of --set as numbers; ``sets`` has the places that it changed."""
    return {key: _read(value, (key,), sets, model) for key, value in values.items()}


def _read(node: Any, path: Path, sets: Mapping[str, str], model: type[BaseModel]) -> Any:
    if isinstance(node, dict):
        return {key: _read(item, (*path, key), sets, model) for key, item in node.items()}
    if isinstance(node, list):
        return [_read(item, (*path, at), sets, model) for at, item in enumerate(node)]
    if not isinstance(node, str) or place_of(path) not in sets:
        return node
    number = read_scalar(node)
    return number if isinstance(number, float) and _takes_decimals(model, path) else node


def _takes_decimals(annotation: Any, path: Path) -> bool:
    """Whether the field at the path below a type takes decimals, and no text."""
    types = set(_leaves(annotation, path))
    return float in types and str not in types


def _leaves(annotation: Any, path: Path) -> Iterator[Any]:
    """The types at a path; none for an unknown key, and float for an option of any type."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is JsonValue:
        yield float
    elif origin is Annotated:
        yield from _leaves(parts[0], path)
    elif origin in (Union, UnionType):
        for part in parts:
            yield from _leaves(part, path)
    elif not path:
        yield annotation
    elif origin in (dict, tuple):
        yield from _leaves(parts[1] if origin is dict else parts[0], path[1:])
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(path[0]))
        if field is not None:
            yield from _leaves(field.annotation, path[1:])
