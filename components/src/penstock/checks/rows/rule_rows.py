"""YAML rows of rules → the source of a Python module with a function for each, and `RULES`.

`row` reads the rows and checks their keys.
"""

from __future__ import annotations

import keyword
import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.checks.rows.expressions import (
    ExpressionError,
    Names,
    compiled,
    compiled_clauses,
    compiled_condition,
    compiled_template,
    names_in,
)
from penstock.checks.rows.row import (
    CONSTANTS,
    FACTS,
    FIXES,
    KEYS,
    TEXTS,
    Row,
    as_list,
    parts_of,
    problem,
    read_rows,
    require_valid,
)
from penstock.errors import InputError, Problem
from penstock.manifests.deployment import Engine

T = TypeVar("T")

# Kind of place in `at` → how to find it: for a worker, or for a component that `of` names.
PLACES = {
    "config": "({of}).config_location({name})",
    "setting": "({of}).settings.location({name})",
    "env": "place_in({of}, 'env', ({name},))",
    "args": "place_in({of}, 'args', ({name},))",
    "field": "place_in({of}, 'field', steps_of({name}))",
    "manifest": "Location('', 'manifest', steps_of({name}))",
    "graph": "Location('', 'graph', steps_of({name}))",
}
# Short forms of the first clause of `for`: `worker`, `worker if worker.runs_prefill`.
SHORT_LOOP = re.compile(r"^(worker|pair|component)(?= for | if |$)")
LOOPS = {
    "worker": "worker in workers_of(deployment, ENGINES)",
    "pair": "prefill, decode in pairs_of(deployment, ENGINES)",
    "component": "component, pod in components_of(deployment)",
}
ALWAYS_KNOWN = (
    *("deployment", "model", "gpu", "ENGINES", "workers_of", "pairs_of", "components_of"),
    *("is_set", "key_of", "Location", "Fix", "Level", "Versions"),
)
HEAD = "from penstock.checks.rows.load import use_facts\nuse_facts(globals(), {facts!r})\n"


@dataclass
class _Writer:
    """Writes the function of one row, line by line."""

    file: str
    row: Row
    # The names that expressions may use so far.
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
        terms = [self.compile("when", compiled_condition, str(term)) for term in as_list(when)]
        return terms[0] if len(terms) == 1 else " and ".join(f"({term})" for term in terms)

    def add_let_and_when(self, let: Mapping[str, Any], when: list[str]) -> None:
        """The assignments and the conditions. Each condition follows as soon as its names are
        assigned, because the first one is false for most deployments."""
        rest = dict(let)
        for term in when:
            used = self.compile("when", lambda text, _: names_in(text), str(term))
            needed = [name for name in rest if name in used]
            while needed and needed[-1] in rest:
                self._assign(next(iter(rest)), rest)
            self.add(f"if {self.condition(term)}:")
        while rest:
            self._assign(next(iter(rest)), rest)

    def _assign(self, name: str, rest: dict[str, Any]) -> None:
        self.add(f"{name} = {self.value('let', rest.pop(name))}")
        self.bind({name})

    def value(self, key: str, source: Any) -> str:
        """The source of an expression; a value that is not a text is a constant."""
        return self.compile(key, compiled, source) if isinstance(source, str) else repr(source)

    def template(self, key: str, text: str) -> str:
        return self.compile(key, compiled_template, text)

    def add_result(self, part: Mapping[str, Any], case: Mapping[str, Any]) -> None:
        """The statement that yields the result of a part, or of one of its cases."""
        values = {**part, **case}
        parts = [
            f"location={self._place(values['at'])}",
            f"message={self.template('message', values['message'])}",
            f"fix={self._fix(values['fix'], values)}",
        ]
        if "why" in values:
            parts.append(f"why={self.template('why', values['why'])}")
        if "level" in values:
            parts.append(f"level=Level({values['level']!r})")
        elif "level_if" in values:
            parts.append(f"level={self._level(values['level_if'])}")
        if "versions" in values:
            parts.append(f"versions=versions_of({values['versions']!r})")
        elif "versions_if" in values:
            parts.append(f"versions={self.value('versions_if', values['versions_if'])}")
        self.add(f"yield RuleResult({', '.join(parts)})")
        if part.get("once"):
            self.add("return")

    def _fix(self, fix: str, values: Mapping[str, Any]) -> str:
        """The source of a fix: from the keys of the row, or from `=EXPRESSION`."""
        if fix.startswith("="):
            return self.compile("fix", compiled, fix[1:])
        parts = [f"text={self.template('fix', fix)}"]
        for key, name in FIXES.items():
            if key in values:
                parts.append(f"{name}={self._changes(key, values[key])}")
        if "set_args" in values:
            parts.append(f"args={self._args(values['set_args'])}")
        if "replaces" in values:
            parts.append(f"replaces={self.template('replaces', values['replaces'])}")
        return f"Fix({', '.join(parts)})"

    def _args(self, args: list[str] | str) -> str:
        """Flags and their values: a list of templates, or an expression of a tuple."""
        if isinstance(args, str):
            return self.compile("set_args", compiled, args)
        return f"({', '.join(self.template('set_args', arg) for arg in args)},)"

    def _changes(self, key: str, changes: Mapping[str, Any] | str) -> str:
        """What to set: a mapping of templates and constants, or an expression of a mapping."""
        if isinstance(changes, str):
            return self.compile(key, compiled, changes)
        pairs = (f"{self.template(key, k)}: {self._written(key, v)}" for k, v in changes.items())
        return f"{{{', '.join(pairs)}}}"

    def _written(self, key: str, setting: Any) -> str:
        """The value that a fix sets: `=EXPRESSION`; any other text is a template."""
        if not isinstance(setting, str):
            return repr(setting)
        if setting.startswith("="):
            return self.compile(key, compiled, setting[1:])
        return self.template(key, setting)

    def _place(self, at: Mapping[str, str] | str) -> str:
        if isinstance(at, str):
            return f"located({self.compile('at', compiled, at)})"
        kind = next((kind for kind in at if kind != "of"), "")
        if kind not in PLACES:
            fix = f"Use {', '.join(PLACES)}, or an expression of a Location."
            raise InputError(problem(self.file, self.row, "at", f"at has no place: {at!r}", fix))
        is_in_component = "{of}" in PLACES[kind]
        owner = self.compile("at", compiled, at.get("of", "worker")) if is_in_component else ""
        return PLACES[kind].format(of=owner, name=self.template("at", at[kind]))

    def _level(self, levels: Mapping[str, str] | str) -> str:
        """The first level whose condition is true, else None."""
        if isinstance(levels, str):
            return self.compile("level_if", compiled, levels)
        chain = "".join(
            f"Level({level!r}) if {self.condition(condition)} else "
            for level, condition in levels.items()
        )
        return f"{chain}None"


def facts_of(sections: Mapping[str, Any]) -> list[str]:
    """The modules of the facts that a file of rows names."""
    return [f"penstock.{module}" for module in sections.get(FACTS, ())]


def _is_free_name(name: Any) -> bool:
    """Whether a name may be bound: a public one that does not hide what all rows can use."""
    is_name = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    return is_name and not name.startswith("_") and name not in ALWAYS_KNOWN


def _constants(sections: Mapping[str, Any], file: str, names: Names) -> Mapping[str, Any]:
    """The constants of the file. Raises InputError for a bad name, or for values such as dates."""
    constants = sections.get(CONSTANTS, {})
    if not isinstance(constants, Mapping):
        raise InputError("constants must be a mapping", file=file)
    for name, table in constants.items():
        is_free = _is_free_name(name) and name not in (names or ())
        try:
            is_plain = literal_eval(repr(table)) == table
        except ValueError:
            is_plain = False
        if not (is_free and is_plain):
            message = f"the constant {name} needs {'plain values' if is_free else 'another name'}"
            raise InputError(message, file=file)
    return constants


def python_of(text: str, file: str, names: Names = None, facts: Sequence[str] | None = None) -> str:
    """The module's source. Raises InputError with the file and line of each error.

    ``names``: the facts that expressions may use; None: they are not checked.
    ``facts``: the modules of the facts, for a file of a user; None: those that the file names.
    """
    # A user's rule cannot name a function with `check`.
    keys = KEYS if facts is None else tuple(key for key in KEYS if key != "check")
    rules: list[str] = []
    functions: list[str] = []
    problems: list[Problem] = []
    sections, rows = read_rows(text, file)
    constants = _constants(sections, file, names)
    known = None if names is None else {*names, *constants}
    for row in rows:
        try:
            functions += _function(row, file, known, keys)
            rules.append(_rule(row, origin="" if facts is None else file))
        except InputError as error:
            problems += error.problems
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            problems.append(problem(file, row, "", f"the row cannot be read: {error}"))
    if problems:
        raise InputError(*problems)
    head = HEAD.format(facts=facts_of(sections) if facts is None else facts)
    tables = [f"{name} = {table!r}" for name, table in constants.items()]
    listing = ("RULES = (", *(f"    {rule}," for rule in rules), ")\n")
    return "\n".join([head, *tables, *functions, *listing])


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
    for part in parts_of(values):
        for case in (part, *part.get("cases", ())):
            levels = case.get("level_if", {})
            yield from levels if isinstance(levels, Mapping) else ()
            yield from (case["level"],) if "level" in case else ()


def _function(row: Row, file: str, names: Names, keys: tuple[str, ...]) -> list[str]:
    """The lines of the function that checks a deployment; none if the row has `check`."""
    require_valid(row, file, keys)
    values = row.values
    if "check" in values:
        return []
    known = None if names is None else {*names, *ALWAYS_KNOWN}
    writer = _Writer(file=file, row=row, names=known)
    writer.lines.append(f"def {values['id']}(deployment):")
    writer.add("model, gpu = deployment.model, deployment.gpu")
    for part in parts_of(values):
        for name in part.get("let", {}):
            is_fact = name in (names or ())
            if is_fact or not _is_free_name(name):
                message = f"{name!r} is {'the name of a fact' if is_fact else 'not a name'}"
                raise InputError(problem(file, row, "let", message, "Use another name."))
        writer.depth, writer.names = 1, known
        _add_part(writer, part, _engines(values))
    return writer.lines


def _add_part(writer: _Writer, part: Mapping[str, Any], engines: tuple[str, ...]) -> None:
    if "for" in part:
        loop = SHORT_LOOP.sub(lambda short: LOOPS[short[0]], part["for"], count=1)
        statements, bound = writer.compile("for", compiled_clauses, loop)
        writer.bind(bound)
        for statement in statements:
            writer.add(statement.replace("ENGINES", repr(engines)))
    writer.add_let_and_when(part.get("let", {}), as_list(part.get("when", [])))
    if "cases" not in part:
        writer.add_result(part, {})
    for number, case in enumerate(part.get("cases", ())):
        depth = writer.depth
        is_alternative = number > 0 and not part.get("every_case")
        if "when" in case:
            writer.add(f"{'elif' if is_alternative else 'if'} {writer.condition(case['when'])}:")
        elif is_alternative:
            writer.add("else:")
        writer.add_result(part, case)
        writer.depth = depth


def _engines(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The engines whose workers the rule is about; empty: all."""
    if values.get("engines"):
        return tuple(values["engines"])
    versions = values.get("versions")
    ranges = versions if isinstance(versions, Mapping) else {}
    return tuple(engine.value for engine in Engine if engine.value in ranges)
