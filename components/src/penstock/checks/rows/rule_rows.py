"""YAML rows of rules → the source of a Python module with a function for each, and `RULES`.

`row` says what a row may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml

from penstock.checks.rows.expressions import (
    ExpressionError,
    Names,
    compiled,
    compiled_clauses,
    compiled_template,
)
from penstock.checks.rows.row import FACTS, FIXES, KEYS, TEXTS, Row, problem, require_valid, rows
from penstock.errors import InputError, Problem
from penstock.manifests.deployment import Engine
from penstock.strict_yaml.loader import SafeLoader

T = TypeVar("T")

# Kind of place in `at` → how to find it for a worker.
PLACES = {
    "config": "{of}.config_location({name})",
    "setting": "{of}.settings.location({name})",
    "env": "{of}.location('env', {name})",
    "args": "{of}.location('args', {name})",
    "field": "{of}.location('field', *{name}.split('/'))",
}
# Short forms of `for`.
LOOPS = {
    "worker": "worker in workers_of(deployment, ENGINES)",
    "pair": "prefill, decode in pairs_of(deployment, ENGINES)",
}
ALWAYS_KNOWN = (
    *("deployment", "model", "gpu", "ENGINES", "workers_of", "pairs_of"),
    *("is_set", "key_of", "Location"),
)
HEAD = "from penstock.checks.rows.runtime import *\nuse_facts(globals(), {facts!r})\n"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@dataclass
class _Writer:
    """Writes the function of one row, line by line."""

    file: str
    row: Row
    # The names that expressions may have so far.
    names: Names
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)
        if line.endswith(":"):
            self.depth += 1

    def bind(self, names: set[str]) -> None:
        if self.names is not None:
            self.names = {*self.names, *names}

    def compile(self, key: str, compiler: Callable[[str, Names], T], text: str) -> T:
        """``text``, the value of ``key``, compiled. Raises InputError with its line."""
        try:
            return compiler(text, self.names)
        except ExpressionError as error:
            raise InputError(problem(self.file, self.row, key, str(error))) from error

    def condition(self, when: str | list[str]) -> str:
        """`when`: an expression, or a list of expressions that must all be true."""
        terms = [self.compile("when", compiled, str(term)) for term in _listed(when)]
        return (
            terms[0] if len(terms) == 1 else f"all_of({', '.join(f'lambda: {t}' for t in terms)})"
        )

    def value(self, key: str, value: Any) -> str:
        """An expression; what is no text is a constant."""
        return self.compile(key, compiled, value) if isinstance(value, str) else repr(value)

    def template(self, key: str, text: str) -> str:
        return self.compile(key, compiled_template, text)

    def add_result(self, values: Mapping[str, Any], level: str | None = None) -> None:
        """The statement that yields the result; ``level``: that of a case."""
        fix = [f"text={self.template('fix', values['fix'])}"]
        for key, name in FIXES.items():
            if key in values:
                fix.append(f"{name}={self._changes(key, values[key])}")
        if "set_args" in values:
            args = ", ".join(self.template("set_args", arg) for arg in values["set_args"])
            fix.append(f"args=({args},)")
        if "replaces" in values:
            fix.append(f"replaces={self.template('replaces', values['replaces'])}")
        parts = [
            f"location={self._place(values['at'])}",
            f"message={self.template('message', values['message'])}",
            f"fix=Fix({', '.join(fix)})",
        ]
        if "why" in values:
            parts.append(f"why={self.template('why', values['why'])}")
        if level is not None:
            parts.append(f"level=Level({level!r})")
        elif "level_if" in values:
            parts.append(f"level={self._level(values['level_if'])}")
        if "versions_if" in values:
            parts.append(f"versions={self.value('versions_if', values['versions_if'])}")
        self.add(f"yield RuleResult({', '.join(parts)})")
        if values.get("once"):
            self.add("return")

    def _changes(self, key: str, changes: Mapping[str, Any] | str) -> str:
        """What to set: a mapping of templates and constants, or an expression of a mapping."""
        if isinstance(changes, str):
            return self.compile(key, compiled, changes)
        pairs = (f"{self.template(key, k)}: {self._written(key, v)}" for k, v in changes.items())
        return f"{{{', '.join(pairs)}}}"

    def _written(self, key: str, value: Any) -> str:
        """A value to write: `=EXPRESSION`, another text is a template."""
        if not isinstance(value, str):
            return repr(value)
        if value.startswith("="):
            return self.compile(key, compiled, value[1:])
        return self.template(key, value)

    def _place(self, at: Mapping[str, str] | str) -> str:
        if isinstance(at, str):
            return self.compile("at", compiled, at)
        owner = self.compile("at", compiled, at.get("of", "worker"))
        kind = next((kind for kind in at if kind != "of"), "")
        if kind not in PLACES:
            fix = f"Use {', '.join(PLACES)}, or an expression of a Location."
            raise InputError(problem(self.file, self.row, "at", f"at has no place: {at!r}", fix))
        return PLACES[kind].format(of=owner, name=self.template("at", at[kind]))

    def _level(self, levels: Mapping[str, str] | str) -> str:
        """The first level whose condition is true, else None."""
        if isinstance(levels, str):
            return self.compile("level_if", compiled, levels)
        chain = "".join(
            f"Level({level!r}) if {self.value('level_if', condition)} else "
            for level, condition in levels.items()
        )
        return f"{chain}None"


def facts_of(text: str) -> list[str]:
    """The modules of the facts that a file of rows names."""
    document = yaml.load(text, SafeLoader)  # noqa: S506  a subclass of PyYAML's safe loader
    return [f"penstock.{module}" for module in document.get(FACTS, ())]


def python_of(text: str, file: str, names: Names = None, facts: Sequence[str] | None = None) -> str:
    """The module's source. Raises InputError with the file and line of each error.

    ``names``: the facts that expressions may use; None: they are not checked.
    ``facts``: the modules of the facts, for a file of a user; None: those that the file names.
    """
    # A user's rule calls no function of Python.
    keys = KEYS if facts is None else tuple(key for key in KEYS if key != "check")
    rules: list[str] = []
    functions: list[str] = []
    problems: list[Problem] = []
    for row in rows(text, file):
        try:
            functions += _function(row, file, names, keys)
            rules.append(_rule(row, origin="" if facts is None else file))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    head = HEAD.format(facts=facts_of(text) if facts is None else facts)
    return "\n".join([head, *functions, "RULES = (", *(f"    {rule}," for rule in rules), ")\n"])


def _rule(row: Row, origin: str) -> str:
    """The call that makes the `Rule`; ``origin``: the file of a user."""
    values = row.values
    fields = [
        f"{key}={values[key]!r}" for key in ("id", *TEXTS, "group", "group_title") if key in values
    ]
    fields.append(f"level=Level({values['level']!r})")
    fields.append(f"versions=versions_of({values.get('versions')!r})")
    fields.append(f"engines=engines_of({values.get('engines', ())!r})")
    levels = [*values.get("other_levels", ()), *_levels(values)]
    fields.append(f"other_levels=levels_of({levels!r}, {values['level']!r})")
    fields.append(f"check={values.get('check') or values['id']}")
    if origin:
        place = f"{origin}:{row.lines['']}"
        fields.append(f"origin={place!r}")
    return f"Rule({', '.join(fields)})"


def _levels(values: Mapping[str, Any]) -> Iterator[str]:
    """The levels that results may have instead of the rule's."""
    for part in (values, *values.get("cases", ())):
        levels = part.get("level_if", {})
        yield from levels if isinstance(levels, Mapping) else ()
    yield from (case["level"] for case in values.get("cases", ()) if "level" in case)


def _function(row: Row, file: str, names: Names, keys: tuple[str, ...]) -> list[str]:
    """The lines of the function that checks a deployment; none for one that Python defines."""
    require_valid(row, file, keys)
    values = row.values
    if "check" in values:
        return []
    known = None if names is None else {*names, *ALWAYS_KNOWN}
    writer = _Writer(file=file, row=row, names=known)
    writer.lines.append(f"def {values['id']}(deployment):")
    writer.add("model, gpu = deployment.model, deployment.gpu")
    if "for" in values:
        loop = LOOPS.get(values["for"], values["for"])
        statements, bound = writer.compile("for", compiled_clauses, loop)
        writer.bind(bound)
        for statement in statements:
            writer.add(statement.replace("ENGINES", repr(_engines(values))))
    for name, expression in values.get("let", {}).items():
        if names is not None and name in names:
            message = f"{name} is the name of a fact"
            raise InputError(problem(file, row, "let", message, "Use another name."))
        writer.add(f"{name} = {writer.value('let', expression)}")
        writer.bind({name})
    if "when" in values:
        writer.add(f"if {writer.condition(values['when'])}:")
    if "cases" not in values:
        writer.add_result(values)
    for number, case in enumerate(values.get("cases", ())):
        depth = writer.depth
        if "when" in case:
            writer.add(f"{'elif' if number else 'if'} {writer.condition(case['when'])}:")
        elif number:
            writer.add("else:")
        writer.add_result({**values, **case}, case.get("level"))
        writer.depth = depth
    return writer.lines


def _engines(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines whose workers the rule is about; empty: all."""
    if values.get("engines"):
        return tuple(values["engines"])
    versions = values.get("versions")
    ranges = versions if isinstance(versions, Mapping) else {}
    return tuple(engine.value for engine in Engine if engine.value in ranges)
