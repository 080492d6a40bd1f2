"""TensorRT-LLM's engine file: what the engine refuses in it, from a table of its arguments.

The table has the keys of the file with their types, limits and choices. Values are converted as in
the engine, which uses pydantic's lax types: "64" is a number. PS101 to PS103 report the refusals.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from penstock.engines.equivalent_flags import SAME, owner, same_meaning
from penstock.engines.flags import load
from penstock.engines.trtllm_history import (
    ADDED,
    IGNORED,
    REMOVED,
    REMOVED_VALUES,
    RemovedKey,
    Version,
)
from penstock.text.names import nearest, nearest_name

TABLE = "trtllm_arguments.json"
# vLLM's and SGLang's names → TensorRT-LLM's.
OTHER_NAMES = {
    ("kv_cache_config.dtype", "fp8_e4m3"): "fp8",
    ("kv_cache_config.dtype", "fp8_e5m2"): "fp8",
    ("load_format", "safetensors"): "auto",
    ("load_format", "mistral"): "auto",
}
NEAR = 0.75  # how similar a name must be to be suggested
# The texts that pydantic converts to a boolean, in any case (pydantic_core, `str_as_bool`).
BOOLEANS = {
    **dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True),
    **dict.fromkeys(("0", "f", "false", "n", "no", "off"), False),
}
LIMITS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "greater than or equal to {}"),
    "gt": (operator.gt, "greater than {}"),
    "le": (operator.le, "less than or equal to {}"),
    "not": (operator.ne, "a number other than {}"),
}
Path = tuple[str | int, ...]
# A value's part of the table: its `type`, and `null` if the value may be null.
Node = Mapping[str, Any]


class Kind(StrEnum):
    UNKNOWN = "unknown"
    VALUE = "value"
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A key or value that TensorRT-LLM rejects."""

    path: Path
    kind: Kind = Kind.VALUE
    message: str
    fix: str
    # The first Dynamo that rejects it, if known.
    dynamo: Version = (1, 0)
    # What to set, by dotted key, if that is certain.
    config: Mapping[str, Any] = field(default_factory=dict)
    # The key to remove, if `config` sets it under another name.
    replaces: str | None = None
    # Whether it may be a key or a value of another version, because it resembles no known one.
    is_of_others: bool = False


def refused_settings(values: Mapping[str, Any]) -> Iterator[Refusal]:
    """Everything that TensorRT-LLM rejects in the file, in the order of the table."""
    accepted = {k: v for k, v in values.items() if (k, str(v)) not in IGNORED}
    yield from _refused(_file(), accepted, ())


def converted(key: str, value: Any) -> Any:
    """The value of a dotted key. Booleans that are written as text are converted: 'yes' is true."""
    node = _file()
    for step in key.split("."):
        node = node.get("keys", {}).get(step, {})
    return _with_booleans(node, value)


def _file() -> Node:
    table: Node = load(TABLE)["file"]
    return table


def _with_booleans(node: Node, argument: Any) -> Any:
    if isinstance(argument, Mapping):
        keys = node.get("keys", {})
        return {key: _with_booleans(keys.get(key, {}), inner) for key, inner in argument.items()}
    types = (node.get("type"), *(option["type"] for option in node.get("options", ())))
    return BOOLEANS.get(str(argument).lower(), argument) if "bool" in types else argument


def _refused(node: Node, argument: Any, path: Path) -> Iterator[Refusal]:
    if argument is None:
        if not node.get("null"):
            dotted = _dotted(path)
            fix = f"Remove {dotted}, or set a value."
            yield Refusal(path=path, message=f"{dotted} must not be null", fix=fix)
    elif node["type"] in NESTED:
        yield from NESTED[node["type"]](node, argument, path)
    elif node["type"] == "choice":
        yield from _choice(node, argument, path)
    elif node["type"] != "any":
        yield from _expected(path, argument, READ[node["type"]], node)


def _section(node: Node, values: Any, path: Path) -> Iterator[Refusal]:
    if not isinstance(values, Mapping):
        yield _wrong(path, values, "a mapping of keys")
        return
    aliases = node.get("aliases", {})
    # The name of each key in the table. An alias next to its own name is unknown.
    names = {key if aliases.get(key) in values else aliases.get(key, key): key for key in values}
    if missing := [name for name in node.get("required", ()) if name not in names]:
        dotted = _dotted((*path, missing[0]))
        # The section has a place in the file, what it lacks has none.
        yield Refusal(path=path, message=f"{dotted} is missing", fix=f"Set {dotted}.")
    for name, inner in node["keys"].items():
        if name in names:
            yield from _refused(inner, values[names[name]], (*path, names[name]))
    for name, key in names.items():
        if name not in node["keys"]:
            yield _unknown((*path, str(key)), values[key], sorted(node["keys"]))


def _tagged(node: Node, values: Any, path: Path) -> Iterator[Refusal]:
    """A section whose keys depend on the value of one of them."""
    if not isinstance(values, Mapping):
        yield _wrong(path, values, "a mapping of keys")
        return
    tag, options = node["tag"], node["options"]
    kind, at = values.get(tag), (*path, tag)
    if tag not in values:
        message = f"{_dotted(at)} is missing"
        yield Refusal(path=path, message=message, fix=f"Set {_dotted(at)}. {_one_of(options)}")
    elif removed := REMOVED_VALUES.get((_dotted(at), str(kind))):
        yield _removed(at, repr(kind), removed)
    elif isinstance(kind, str) and kind in options:
        yield from _refused(options[kind], values, path)
    else:
        message = f"{kind!r} is not a {tag.replace('_', ' ')}"
        yield _not_a_choice(at, message, nearest(str(kind), options, NEAR), options)


def _one_of_options(node: Node, argument: Any, path: Path) -> Iterator[Refusal]:
    """What the option for this kind of value refuses, if none accepts the value."""
    options: list[Node] = node["options"]
    all_refused = [[*_refused(option, argument, path)] for option in options]
    if all(all_refused):
        is_section = isinstance(argument, Mapping)
        likely = [option["type"] == "section" for option in options]
        yield from all_refused[likely.index(True) if is_section and True in likely else 0]


def _list(node: Node, values: Any, path: Path) -> Iterator[Refusal]:
    if not isinstance(values, (list, tuple)):
        yield _wrong(path, values, "a valid list")
    elif len(values) < node.get("min_length", 0):
        yield _wrong(path, values, "a value that is not empty")
    else:
        for at, value in enumerate(values):
            yield from _refused(node["items"], value, (*path, at))


def _dict(node: Node, values: Any, path: Path) -> Iterator[Refusal]:
    if not isinstance(values, Mapping):
        yield _wrong(path, values, "a valid dictionary")
        return
    for name, value in values.items():
        yield from _refused(node.get("names", {"type": "str"}), name, (*path, name))
        yield from _refused(node["values"], value, (*path, name))


NESTED: Mapping[str, Callable[[Node, Any, Path], Iterator[Refusal]]] = {
    "section": _section,
    "tagged": _tagged,
    "one of": _one_of_options,
    "list": _list,
    "dict": _dict,
}


def _choice(node: Node, argument: Any, path: Path) -> Iterator[Refusal]:
    names: Sequence[str] = node["of"]
    if node.get("by_number") and type(argument) is int and argument in range(len(names)):
        return
    text = argument.lower() if node.get("any_case") and isinstance(argument, str) else argument
    if isinstance(text, str) and text in (*names, *node.get("also", ())):
        return
    dotted = _dotted(path)
    if removed := REMOVED_VALUES.get((dotted, str(argument))):
        yield _removed(path, repr(argument), removed)
        return
    quoted = [f"'{name}'" for name in names]
    choices = " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
    message = f"{_short(argument)} is not accepted: input should be {choices}"
    near = OTHER_NAMES.get((dotted, str(argument))) or nearest(str(argument), names, NEAR)
    yield _not_a_choice(path, message, near, names)


def _not_a_choice(path: Path, message: str, near: str, names: Iterable[str]) -> Refusal:
    is_in_list = any(isinstance(step, int) for step in path)
    return Refusal(
        path=path,
        message=message,
        fix=f"Did you mean `{near}`?" if near else _one_of(names),
        config={_dotted(path): near} if near and not is_in_list else {},
        is_of_others=not near,
    )


def _expected(
    path: Path, argument: Any, read: Callable[[Node, Any], object], node: Node
) -> Iterator[Refusal]:
    try:
        read(node, argument)
    except ValueError as error:
        yield _wrong(path, argument, str(error))


def _wrong(path: Path, argument: Any, expected: str) -> Refusal:
    """The refusal in pydantic's words: `a valid integer, unable to parse string as an integer`."""
    kind = expected.partition(",")[0].replace("valid ", "").replace("a integer", "an integer")
    kind = kind if kind.startswith(("a ", "an ")) else f"a number {kind}"
    message = f"{_short(argument)} is not accepted: input should be {expected}"
    return Refusal(path=path, message=message, fix=f"Write {kind}.")


def _integer(node: Node, argument: Any) -> int:
    number: int
    if node.get("strict") and type(argument) is not int:
        raise ValueError("a valid integer")
    if isinstance(argument, str):
        try:
            number = int(argument.strip().removesuffix(".0"))
        except ValueError:
            text = "a valid integer, unable to parse string as an integer"
            raise ValueError(text) from None
    elif isinstance(argument, float):
        if not math.isfinite(argument):
            raise ValueError("a finite number")
        if argument != int(argument):
            raise ValueError("a valid integer, got a number with a fractional part")
        number = int(argument)
    elif isinstance(argument, int):
        number = int(argument)
    else:
        raise ValueError("a valid integer")
    _require_limits(node, number)
    return number


def _float(node: Node, argument: Any) -> float:
    if not isinstance(argument, (int, float, str)):
        raise ValueError("a valid number")
    try:
        number = float(argument)
    except ValueError:
        text = "a valid number, unable to parse string as a number"
        raise ValueError(text) from None
    _require_limits(node, number)
    return number


def _require_limits(node: Node, number: float) -> None:
    for name, (holds, words) in LIMITS.items():
        if name in node and not holds(number, node[name]):
            raise ValueError(words.format(node[name]))


def _boolean(_: Node, argument: Any) -> None:
    if not isinstance(argument, (bool, int, float, str)):
        raise ValueError("a valid boolean")
    if argument not in (0, 1) and str(argument).lower() not in BOOLEANS:
        raise ValueError("a valid boolean, unable to interpret input")


def _text(node: Node, argument: Any) -> None:
    if not isinstance(argument, str):
        raise ValueError("a valid string")
    if len(argument) < node.get("min_length", 0):
        raise ValueError("a value that is not empty")


def _text_or_number(_: Node, argument: Any) -> None:
    """The value of an environment variable, which the engine converts."""
    if not isinstance(argument, (str, int, float)):
        raise ValueError("a valid string")


READ: Mapping[str, Callable[[Node, Any], object]] = {
    "int": _integer,
    "float": _float,
    "bool": _boolean,
    "str": _text,
    "text": _text_or_number,
}


def _unknown(path: Path, argument: Any, names: Sequence[str]) -> Refusal:
    dotted = _dotted(path)
    if removed := REMOVED.get(dotted):
        refusal = _removed(path, dotted, removed)
        takes_value = removed.key and not isinstance(argument, Mapping)
        return replace(refusal, config={removed.key: argument}) if takes_value else refusal
    if added := ADDED.get(dotted):
        message = f"{dotted} requires TensorRT-LLM {added.since}"
        fix = f"Remove it, or use an image of Dynamo {'.'.join(map(str, added.dynamo))} or later."
        return Refusal(path=path, kind=Kind.UNKNOWN, message=message, fix=fix)
    above = _dotted(path[:-1])
    flag = "" if above else f"--{str(path[-1]).replace('_', '-')}"
    near, where = _near(flag, str(path[-1]), names), owner(flag)
    advice = f"Remove it: it is {where}." if where else "Remove it."
    return Refusal(
        path=path,
        kind=Kind.UNKNOWN,
        message=f"unknown key {path[-1]!r} in {above or 'the file'}",
        fix=f"Did you mean `{near}`?" if near else f"{advice} Known keys: {', '.join(names[:12])}.",
        config={f"{above}.{near}".lstrip("."): argument} if near else {},
        replaces=str(path[-1]) if near else None,
        is_of_others=not near,
    )


def _near(flag: str, key: str, names: Sequence[str]) -> str:
    """The existing key that an unknown one resembles. ``flag``: the key as a flag of another
    engine; empty for a key of a section."""
    if same := same_meaning(flag, [f"--{name.replace('_', '-')}" for name in names], SAME):
        return same.removeprefix("--").replace("-", "_")
    return "" if flag and owner(flag) else nearest_name(key, names, NEAR)


def _removed(path: Path, what: str, removed: RemovedKey) -> Refusal:
    message = f"{what} was never a key of TensorRT-LLM's file"
    if removed.since:
        message = f"{what} was removed in TensorRT-LLM {removed.since}"
    message += f" ({removed.note})" if removed.note else ""
    fix = f"Use {removed.replacement} instead." if removed.replacement else "Remove it."
    return Refusal(
        path=path,
        kind=Kind.REMOVED,
        message=message,
        fix=fix,
        dynamo=removed.dynamo,
        replaces=str(path[-1]) if removed.replacement else None,
    )


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _one_of(names: Iterable[str]) -> str:
    return f"Use one of {', '.join(names)}."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
