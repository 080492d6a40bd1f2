"""`${…}`: defaults, lengths, substrings, pattern removal and replacement, arrays, positionals."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.manifests.shell.text import (
    Text,
    UnknownError,
    Value,
    as_text,
    certain,
    first,
    is_filled,
    pattern_of,
)

if TYPE_CHECKING:
    from penstock.manifests.shell.words import Expander

_PARAMETER = re.compile(
    r"(?P<mark>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?!$-])(\[(?P<index>[^]]*)\])?(?P<rest>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Default:
    """The word to use instead, which is not expanded yet."""

    word: str


class Joined(tuple[Text, ...]):
    """`$*`, `${a[*]}`: one text inside of quotes, several fields outside."""


Result = Value | Default


def expand(inner: str, spelling: str, expander: Expander) -> Result:
    """The value of `${inner}`; it keeps its spelling if only the cluster knows it."""
    match = _PARAMETER.fullmatch(inner)
    if match is None:
        return Text.unknown(spelling, f"{spelling}: an expansion that penstock does not support")
    mark, name, index, rest = match.group("mark", "name", "index", "rest")
    try:
        if mark and name == "#" and not rest and index is None:
            mark, name = "", "#"
        if mark == "#":
            return _length(name, index, spelling, expander)
        if mark == "!":
            return _indirect(name, index, rest, spelling, expander)
        return _operate(name, index, rest, spelling, expander)
    except UnknownError as error:
        return Text.unknown(spelling, str(error))


def _value(name: str, index: str | None, spelling: str, expander: Expander) -> Value:
    scope = expander.scope
    if name in ("@", "*"):
        return scope.positional if name == "@" else Joined(scope.positional)
    if name == "#":
        return Text.known(str(len(scope.positional)))
    if name == "0":
        return scope.program
    if name.isdigit():
        at = int(name) - 1
        return scope.positional[at] if at < len(scope.positional) else Text()
    if not (name[0].isalpha() or name[0] == "_"):
        raise UnknownError(f"{spelling}: its value is known only at run time")
    variable = scope.get(name, spelling)
    if index is None:
        return first(variable)
    if index in ("@", "*"):
        items = variable if isinstance(variable, tuple) else (variable,) if variable.pieces else ()
        return items if index == "@" else Joined(items)
    return _item(variable, expander.number(index))


def _item(variable: Value, at: int) -> Text:
    items = variable if isinstance(variable, tuple) else (variable,)
    return items[at] if -len(items) <= at < len(items) else Text()


def _length(name: str, index: str | None, spelling: str, expander: Expander) -> Text:
    parameter = _value(name, index, spelling, expander)
    return Text.known(str(len(parameter if isinstance(parameter, tuple) else certain(parameter))))


def _indirect(name: str, index: str | None, rest: str, spelling: str, expander: Expander) -> Result:
    """`${!name}` and `${!array[@]}`."""
    parameter = _value(name, index, spelling, expander)
    if isinstance(parameter, tuple):
        return tuple(Text.known(str(i)) for i in range(len(parameter)))
    if rest in ("*", "@"):
        raise UnknownError(f"{spelling}: an expansion that penstock does not support")
    target = certain(parameter)
    return expand(target + rest, spelling, expander) if target else Text()


def _operate(name: str, index: str | None, rest: str, spelling: str, expander: Expander) -> Result:
    if match := re.match(r"(:?)([-=?+])", rest):
        return _default(name, index, match, rest[match.end() :], spelling, expander)
    operand = _value(name, index, spelling, expander)
    if not rest:
        return operand
    if rest[0] == ":" and not isinstance(operand, Text):
        return _slice(name, operand, rest[1:], expander)
    change = _change(rest, spelling, expander, operand)
    return type(operand)(map(change, operand)) if isinstance(operand, tuple) else change(operand)


def _slice(name: str, array: tuple[Text, ...], rest: str, expander: Expander) -> Result:
    """`${a[@]:1:2}`, `${@:2}`: positional parameters count from 1, after `$0`."""
    items = (expander.scope.program, *array) if name in ("@", "*") else array
    offset_text, _, length_text = rest.partition(":")
    offset = expander.number(offset_text)
    start = offset if offset >= 0 else max(len(items) + offset, 0)
    end = start + expander.number(length_text) if length_text else len(items)
    return type(array)(items[start:end])


def _default(
    name: str,
    index: str | None,
    operator: re.Match[str],
    word: str,
    spelling: str,
    expander: Expander,
) -> Result:
    with_empty, kind = bool(operator.group(1)), operator.group(2)
    scope = expander.scope
    if _is_name(name) and scope.find(name) is None:
        if scope.may_be_set_elsewhere(name) or kind == "?":
            raise UnknownError(scope.why(name, spelling))
        is_present = False
        parameter: Value = Text()
    else:
        parameter = _value(name, index, spelling, expander)
        is_set = _is_there(name, index, parameter, expander)
        is_present = is_set and (not with_empty or is_filled(as_text(parameter)))
    if kind == "+":
        return Default(word) if is_present else Text()
    if is_present or kind == "?":
        return parameter
    if kind == "=" and _is_name(name):
        scope.assign(name, expander.single(word))
    return Default(word)


def _is_there(name: str, index: str | None, parameter: Value, expander: Expander) -> bool:
    if isinstance(parameter, tuple):
        return bool(parameter)
    if name.isdigit() and name != "0":
        return int(name) <= len(expander.scope.positional)
    return not _is_name(name) or expander.scope.is_set(name)


def _is_name(name: str) -> bool:
    return name[0].isalpha() or name[0] == "_"


def _change(rest: str, spelling: str, expander: Expander, operand: Value) -> Callable[[Text], Text]:
    """The function that ``rest`` (`##pattern`, `/a/b`, `^^`, `:1:2`) applies to each text."""
    if rest[0] in "#%":
        return _removal(rest, expander)
    if rest[0] == "/":
        return _replacement(rest, expander)
    if rest in ("^^", ",,", "^", ","):
        return _case(rest)
    if rest[0] == ":" and isinstance(operand, Text):
        return _substring(rest[1:], expander)
    raise UnknownError(f"{spelling}: an expansion that penstock does not support")


def _removal(rest: str, expander: Expander) -> Callable[[Text], Text]:
    operator = rest[:2] if rest[:2] in ("##", "%%") else rest[0]
    pattern = re.compile(pattern_of(expander.pieces(rest[len(operator) :])), re.DOTALL)

    def remove(text: Text) -> Text:
        plain = certain(text)
        lengths = range(len(plain) + 1)
        for size in reversed(lengths) if len(operator) == 2 else lengths:
            part = plain[:size] if operator[0] == "#" else plain[len(plain) - size :]
            if pattern.fullmatch(part):
                kept = plain[size:] if operator[0] == "#" else plain[: len(plain) - size]
                return Text.known(kept)
        return text

    return remove


def _replacement(rest: str, expander: Expander) -> Callable[[Text], Text]:
    is_global = rest.startswith("//")
    body = rest[2 if is_global else 1 :]
    anchor = body[0] if body[:1] in ("#", "%") and not is_global else ""
    old, _, new = _split_slash(body[len(anchor) :])
    pattern = pattern_of(expander.pieces(old))
    pattern = {"#": rf"\A(?:{pattern})", "%": rf"(?:{pattern})\Z"}.get(anchor, pattern)
    replacement = certain(expander.single(new))

    def replaced(text: Text) -> Text:
        if not old:
            return text
        count = 0 if is_global else 1
        plain = re.sub(pattern, lambda _: replacement, certain(text), count=count, flags=re.DOTALL)
        return Text.known(plain)

    return replaced


def _split_slash(body: str) -> tuple[str, str, str]:
    at = 0
    while at < len(body) and body[at] != "/":
        at += 2 if body[at] == "\\" else 1
    return body[:at], body[at : at + 1], body[at + 1 :]


def _case(operator: str) -> Callable[[Text], Text]:
    def changed(text: Text) -> Text:
        plain = certain(text)
        raised = plain.upper() if operator[0] == "^" else plain.lower()
        return Text.known(raised if len(operator) == 2 else raised[:1] + plain[1:])

    return changed


def _substring(rest: str, expander: Expander) -> Callable[[Text], Text]:
    offset_text, _, length_text = rest.partition(":")
    offset = expander.number(offset_text)
    length = expander.number(length_text) if length_text else None

    def cut(text: Text) -> Text:
        plain = certain(text)
        start = offset if offset >= 0 else max(len(plain) + offset, 0)
        if length is None:
            return Text.known(plain[start:])
        end = start + length if length >= 0 else len(plain) + length
        return Text.known(plain[start:end])

    return cut
