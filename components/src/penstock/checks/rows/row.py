"""YAML text of rules → its rows, with the line of each key. Invalid keys are errors.

`KEYS` lists the keys of a row. docs/contributing/rules.md explains them with an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.checks.finding import Level
from penstock.errors import InputError, Problem
from penstock.strict_yaml.loader import SafeLoader, load
from penstock.text.names import nearest

ID = re.compile(r"[A-Z]+[0-9]{3,}")
FACTS = "facts"  # the modules whose public names expressions may use, relative to `penstock`
CONSTANTS = "constants"  # tables that the expressions of all rows of the file may use
SECTIONS = (FACTS, CONSTANTS, "rules")
TEXTS = ("title", "cause", "effect", "remedy", "source", "example", "exceptions")
# The keys of a result; a case may replace each.
OF_RESULTS = (
    *("when", "at", "message", "why", "fix", "level_if", "versions_if", "replaces"),
    *("set", "set_env", "set_args", "set_fields", "set_deployment", "set_graph"),
)
OF_CASES = (*OF_RESULTS, "level", "versions")
# Further conditions of the same rule.
OF_FURTHER = (*OF_CASES, "for", "let", "once", "cases", "every_case")
KEYS = (
    *("id", "level", "versions", "engines", "other_levels", *TEXTS),
    *("check", "for", "let", "once", "cases", "every_case", "also", "rows", *OF_RESULTS),
)
REQUIRED = ("id", "title", "level")
# Key of a row → field of `Fix`.
FIXES = {
    "set": "config",
    "set_env": "env",
    "set_fields": "fields",
    "set_deployment": "deployment",
    "set_graph": "graph",
}
KINDS: Mapping[type, str] = {str: "text", dict: "mapping", list: "list", bool: "boolean"}
TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys((*TEXTS, "level", "for", "check", "message", "why", "fix", "replaces"), (str,)),
    **dict.fromkeys(("engines", "other_levels", "cases", "rows", "also"), (list,)),
    **dict.fromkeys(("at", "versions", "level_if", *FIXES), (str, dict)),
    **dict.fromkeys(("when", "set_args"), (str, list)),
    **dict.fromkeys(("let",), (dict,)),
    **dict.fromkeys(("once", "every_case"), (bool,)),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    values: Mapping[str, Any]
    # Key → its line, from 1; "" → that of the row.
    lines: Mapping[str, int]


def read_rows(text: str, file: str) -> tuple[Mapping[str, Any], list[Row]]:
    """The file's sections, and its rows. Raises InputError for what is no file of rows."""
    try:
        document = load(text)  # refuses nested aliases, which would take all memory
        root = yaml.compose(text, SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        message = f"not valid YAML: {getattr(error, 'problem', error)}"
        raise InputError(message, file=file, line=line) from error
    listed = _child(root, "rules") if isinstance(root, yaml.MappingNode) else None
    if not isinstance(listed, yaml.SequenceNode):
        message = "the file has no list `rules`"
        raise InputError(message, file=file, line=1, fix="Add `rules:`.")
    for key in document:
        if key not in SECTIONS:
            message, fix = f"unknown key {key!r}", _suggestion(str(key), SECTIONS)
            raise InputError(message, file=file, line=1, fix=fix)
    rows = [row for node in listed.value for row in _with_members(_row(node, file), node, file)]
    return document, rows


def _child(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((child for key, child in node.value if key.value == name), None)


def _row(node: yaml.Node, file: str) -> Row:
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        raise InputError("a rule must be a mapping", file=file, line=line)
    constructor = yaml.constructor.SafeConstructor()
    try:
        pairs = constructor.construct_mapping(node, deep=True)
    except yaml.YAMLError as error:  # an alias of what contains it
        message, line = f"invalid value: {getattr(error, 'problem', error)}", node.start_mark.line
        raise InputError(message, file=file, line=line + 1) from error
    values = {str(key): value for key, value in pairs.items()}
    lines = {"": node.start_mark.line + 1}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if lines.setdefault(str(key.value), line) != line:
            message, place = f"{key.value} occurs twice", str(values.get("id", ""))
            raise InputError(message, file=file, line=line, place=place)
    return Row(values=values, lines=lines)


def _with_members(row: Row, node: yaml.MappingNode, file: str) -> Iterator[Row]:
    """The row itself, or the rows of a group, which inherit the keys of the group."""
    members = _child(node, "rows")
    if not isinstance(members, yaml.SequenceNode):
        yield row
        return
    shared = {key: value for key, value in row.values.items() if key not in ("rows", "id")}
    group = {"group": row.values.get("id"), "group_title": row.values.get("title")}
    for member in members.value:
        fields = _row(member, file)
        yield Row(
            values={**shared, **fields.values, **_joined(shared, fields.values), **group},
            lines={**row.lines, **fields.lines},
        )


def _joined(shared: Mapping[str, Any], member: Mapping[str, Any]) -> dict[str, Any]:
    """The `let` and `when` of a group and of its row together; other keys replace the group's."""
    joined: dict[str, Any] = {}
    if "let" in shared:
        joined["let"] = {**shared["let"], **member.get("let", {})}
    if "when" in shared:
        joined["when"] = [*as_list(shared["when"]), *as_list(member.get("when", []))]
    return joined


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def parts_of(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The row, then each part of `also`. Parts inherit the row's `at` and `fix`, and those without
    `for` also inherit `for` and `let`."""
    yield {key: values[key] for key in values if key not in ("level", "versions")}
    for part in values.get("also", ()):
        keys = ("at", "fix") if "for" in part else ("at", "fix", "for", "let")
        shared = {key: values[key] for key in keys if key in values}
        yield {**shared, **part, "let": {**shared.get("let", {}), **part.get("let", {})}}


def require_valid(row: Row, file: str, keys: tuple[str, ...]) -> None:
    """Raise InputError for keys that are unknown or missing, or whose values have a wrong type."""
    parts = [(keys, row.values), *((OF_FURTHER, part) for part in _mappings(row.values, "also"))]
    parts += [(OF_CASES, case) for _, part in parts for case in _mappings(part, "cases")]
    problems = [
        problem(file, row, key, f"unknown key {key!r}", _suggestion(key, allowed))
        for allowed, part in parts
        for key in part
        if key not in (*allowed, "group", "group_title")
    ]
    problems += [
        problem(file, row, key, f"{key} is {value!r}", f"Use a {_kind(key)}.")
        for _, part in parts
        for key, value in part.items()
        if key in TYPES and not isinstance(value, TYPES[key])
    ]
    required = REQUIRED if "check" in row.values else (*REQUIRED, "message", "at", "fix")
    stated = {key for _, part in parts for key in part}
    problems += [
        problem(file, row, "", f"{row.values.get('id', 'the rule')} has no {key}", f"Add {key}.")
        for key in required
        if key not in stated
    ]
    if row.values.get("level") not in (None, *Level):
        message = f"level is {row.values['level']!r}"
        problems.append(problem(file, row, "level", message, f"Use {', '.join(Level)}."))
    if not ID.fullmatch(str(row.values.get("id", ""))):
        message = f"id is {row.values.get('id')!r}"
        fix = "Use capital letters and a number, such as ACME101."
        problems.append(problem(file, row, "id", message, fix))
    if problems:
        raise InputError(*problems)


def _mappings(values: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list of this key; other elements are skipped."""
    listed = values.get(key)
    if isinstance(listed, list):
        yield from (part for part in listed if isinstance(part, dict))


def _kind(key: str) -> str:
    return " or a ".join(KINDS[kind] for kind in TYPES[key])


def _suggestion(key: str, keys: tuple[str, ...]) -> str:
    close = nearest(key, keys)
    return f"Did you mean {close}?" if close else f"Keys are {', '.join(keys)}."


def problem(file: str, row: Row, key: str, message: str, fix: str = "") -> Problem:
    line = row.lines.get(key, row.lines[""])
    return Problem(
        file=file, line=line, place=str(row.values.get("id", "")), message=message, fix=fix
    )
