"""Every field of a graph with invalid values, in the file and by --set: place, cause, fix."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from penstock.errors import GraphError, Problem
from penstock.graph.load import parse_graph
from penstock.graph.model import Graph
from penstock.strict_yaml.problems import model_at

Path = tuple[str, ...]
GRAPH = {
    "model": {"id": "openai/gpt-oss-20b"},
    "engine": {"kind": "trtllm"},
    "prefill": {},
    "decode": {},
}
# Values that are wrong for a type of a JSON schema, as JSON and as the text of a --set.
WRONG: Mapping[str, tuple[Any, ...]] = {
    "string": (5, 1.5, True, "", ["a"], {"a": 1}),
    "integer": ("abc", "2x", "", 2.5, True, -1, ["a"], {"a": 1}, "２", "1e3", "0x10", 10**15),
    "number": ("abc", "", True, -1, ["a"], {"a": 1}, "0,5"),
    "boolean": ("yes", "True ", 1, "", ["a"], {"a": 1}),
    "array": ("a", 5, True, {"a": 1}),
    "object": ("a", 5, True, ["a"]),
    "enum": ("no-such-choice", "", 7.5, True, ["a"], {"a": 1}),
    "section": ("a", 5, True, ["a"], "NIXL"),
}
WRONG_SETS: Mapping[str, tuple[str, ...]] = {
    "string": ("5", "true", "", "{a}"),
    "integer": ("abc", "-1", "2.5", "true", "", "{a}", "01", "99999999999999999999999"),
    "number": ("abc", "-1", "true", "", "{a}"),
    "boolean": ("yes", "1", "", "{a}"),
    "array": ("a", "5"),
    "object": ("a", "5", "{a}"),
    "enum": ("no-such-choice", "", "true", "{a}"),
    "section": ("a", "5", "true", "{a}"),
}
# Internals of the tools below penstock.
INTERNALS = re.compile(r"interface ?\{|strconv|pydantic|Input should|NoneType|<nil>|dict_type")


def fields(model: type[BaseModel] = Graph, above: Path = ()) -> Iterator[Path]:
    """Every field with those of the sections below it; of the pools only decode."""
    for name in model.model_fields:
        path = (*above, name)
        if path[0] in ("prefill", "worker"):
            continue
        yield path
        section = model_at((name,), model)
        if section is not None:
            yield from fields(section, path)


def schema_of(path: Path) -> Mapping[str, Any]:
    section = model_at(path[:-1], Graph)
    assert section is not None
    schema: Mapping[str, Any] = section.model_json_schema()["properties"][path[-1]]
    branches = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    return {**schema, **branches[0]} if branches else schema


def kind_of(path: Path) -> str:
    if model_at(path, Graph) is not None:
        return "section"
    schema = schema_of(path)
    return "enum" if "enum" in schema else str(schema["type"])


def graph_with(path: Path, value: Any) -> dict[str, Any]:
    """The graph with a value at a place, and what the sections above it require."""
    values = json.loads(json.dumps(GRAPH))
    section = values
    for depth in range(1, len(path)):
        model = model_at(path[:depth], Graph)
        assert model is not None
        section = section.setdefault(path[depth - 1], {})
        for name, field in model.model_fields.items():
            if field.is_required() and name not in section:
                section[name] = example_of((*path[:depth], name))
    section[path[-1]] = value
    return dict(values)


def example_of(path: Path) -> Any:
    schema = schema_of(path)
    if "enum" in schema:
        return schema["enum"][-1]
    texts = {"size": "1Gi", "endpoint": "http://tempo:4317"}
    return {"integer": 1, "string": texts.get(path[-1], "a")}[schema["type"]]


def problems_of(values: Mapping[str, Any], sets: tuple[str, ...] = ()) -> tuple[Problem, ...]:
    try:
        parse_graph(json.dumps(values, indent=1, ensure_ascii=False), "graph.yaml", sets)
    except GraphError as error:
        return error.problems
    return ()


def assert_text(problem: Problem) -> None:
    text = str(problem)
    assert problem.message, text
    assert problem.fix, text
    assert not INTERNALS.search(text), text


@pytest.mark.parametrize("path", [*fields()], ids=".".join)
def test_a_wrong_value_in_the_file_has_one_error_with_a_fix(path: Path) -> None:
    place = ".".join(path)
    for value in WRONG[kind_of(path)]:
        problems = problems_of(graph_with(path, value))
        if not problems and is_valid(path, value):
            continue
        assert problems, (place, value)
        for problem in problems:
            assert problem.place == place or problem.place.startswith((f"{place}.", f"{place}["))
            assert problem.line is not None, problem
            assert_text(problem)
            if (written := value_of(problem.fix)) is not None:
                left = [p.message for p in problems_of(graph_with(path, written))]
                assert problem.message not in left, str(problem)
                assert not [m for m in left if m.startswith("must be")], (str(problem), left)


VALUES = (
    r"Write (-?[\d.]+)[.;]",
    r"Write `(.*)`\.",
    r"Write (-?\d+) \(\d+ × 1024\)",
    r"Did you mean `(.*)`\?",
    r"Quote it: (.*)",
    r"Write a list: (.*)",
    r"Write a list of single arguments: (.*)",
    r"Set \S+ to at (?:least|most) ([\d.]+)\.",
)


def value_of(fix: str) -> Any:
    """The value that a fix says to write; None if it names none."""
    match = next((m for m in (re.match(pattern, fix) for pattern in VALUES) if m), None)
    if match is None or "…" in match[1]:
        return None
    try:
        return json.loads(match[1].rstrip("."))
    except ValueError:
        return match[1]


def is_valid(path: Path, value: Any) -> bool:
    """Whether a value of the table happens to be right for this field."""
    schema = schema_of(path)
    if kind_of(path) == "integer":
        return value == 10**15 and "maximum" not in schema
    is_choice = value in schema.get("enum", []) and not isinstance(value, bool)
    return is_choice or (kind_of(path) == "object" and value == {"a": 1})


@pytest.mark.parametrize("path", [*fields()], ids=".".join)
def test_a_wrong_value_by_set_has_one_error_whose_fix_solves_it(path: Path) -> None:
    place = ".".join(path)
    for text in WRONG_SETS[kind_of(path)]:
        values = graph_with(path, None)
        section: Any = values
        for step in path[:-1]:
            section = section[step]
        del section[path[-1]]
        if path[0] in GRAPH and len(path) == 1:
            values = json.loads(json.dumps(GRAPH))
        problems = problems_of(values, (f"{place}={text}",))
        assert problems, (place, text)
        for problem in problems:
            assert problem.file == "--set", problem
            assert problem.place == place or problem.place.startswith((f"{place}.", f"{place}["))
            assert_text(problem)
            for written in re.findall(r"`--set ([^`]*)`", problem.fix):
                if not re.search(r"…|VALUE|\{A,B\}", written):
                    left = [p.message for p in problems_of(values, (written,))]
                    assert problem.message not in left, str(problem)
                    assert not [m for m in left if m.startswith("must be")], (str(problem), left)
