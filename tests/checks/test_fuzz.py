"""Arbitrary YAML causes no traceback, and `check` reports an error whenever `render` fails.

Mutations of sound graphs and manifests: values of other types, keys renamed, parts removed,
duplicated or moved. Hypothesis chooses them and prints the smallest failing example.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.checks.finding import Finding, Level
from penstock.checks.formats import as_github, as_json, as_sarif
from penstock.checks.merge import merged
from penstock.checks.report import CheckReport
from penstock.checks.run import check_file
from penstock.errors import PenstockError
from penstock.graph.load import parse_graph
from penstock.manifests.source import render_graph
from penstock.serving.understand import Hints
from tests.checks.all_cases import cases
from tests.checks.support import BASES, LOADER, check, dump, is_graph, manifest

Path_ = tuple[str | int, ...]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 1.5, -0.5, float("inf"), float("nan")),
    *(
        "",
        " ",
        "a",
        "$(X)",
        "${X}",
        "1e3",
        "08",
        "no",
        "12:30",
        "\x00",
        "ü" * 70,
        "-",
        "--",
        "--x=y",
    ),
    *("x" * 300, [], [None], [[]], ["--model"], [{"name": "main"}], {}, {"": ""}, {1: 2}),
    *({"a": {"b": {"c": []}}}, {"name": "X", "value": "1"}),
]
SOUND_GRAPHS = [copy.deepcopy(dict(base)) for base in BASES.values()]


@cache
def sound_manifests() -> list[Any]:
    return [list(yaml.load_all(manifest(base), LOADER)) for base in BASES.values()]


def paths(value: Any, above: Path_ = ()) -> Iterator[Path_]:
    items: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, list):
        items = iter(enumerate(value))
    for key, inner in items:
        yield (*above, key)
        yield from paths(inner, (*above, key))


@st.composite
def mutated(draw: st.DrawFn, sound: Callable[[], list[Any]]) -> Any:
    tree = copy.deepcopy(draw(st.sampled_from(sound())))
    for _ in range(draw(st.integers(1, 3))):
        every = list(paths(tree))
        if not every:
            break
        *above, key = draw(st.sampled_from(every))
        parent = tree
        for step in above:
            parent = parent[step]
        kind = draw(st.sampled_from(["value", "remove", "rename", "move", "again"]))
        value = draw(st.sampled_from(ODD) | st.text(max_size=12) | st.integers())
        if kind == "value":
            parent[key] = copy.deepcopy(value)
        elif kind == "remove":
            del parent[key]
        elif kind == "rename" and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif kind == "again" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(SOUND_GRAPHS)))
    return tree


def checked(text: str) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(text, "utf-8")
        findings = check_file(path, Hints())
    report = CheckReport(findings=merged(findings), files=("case.yaml",))
    for write in (as_json, as_sarif, as_github):
        assert write(report)
    return findings


def fails_to_render(text: str) -> bool:
    try:
        render_graph(parse_graph(text, "case.yaml"))
    except PenstockError:
        return True
    return False


SETTINGS = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def assert_reported(tree: Any) -> None:
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    if not any(f.level is Level.ERROR for f in checked(text)):
        assert not fails_to_render(text)


@SETTINGS
@pytest.mark.slow
@given(mutated(lambda: SOUND_GRAPHS[:2]))
def test_a_mutated_graph_of_tensorrt_llm(tree: Any) -> None:
    assert_reported(tree)


@SETTINGS
@pytest.mark.slow
@given(mutated(lambda: SOUND_GRAPHS[2:]))
def test_a_mutated_graph_of_another_engine(tree: Any) -> None:
    assert_reported(tree)


@SETTINGS
@pytest.mark.slow
@given(mutated(lambda: sound_manifests()[:2]))
def test_a_mutated_manifest_of_tensorrt_llm(documents: Any) -> None:
    checked(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))


@SETTINGS
@pytest.mark.slow
@given(mutated(lambda: sound_manifests()[2:]))
def test_a_mutated_manifest_of_another_engine(documents: Any) -> None:
    checked(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))


@pytest.mark.nightly
@pytest.mark.parametrize("value", ["x", 3, [3], {"a": 3}], ids=repr)
@pytest.mark.parametrize("number", range(len(BASES)))
def test_a_manifest_with_a_value_of_another_type_at_any_place(number: int, value: Any) -> None:
    for *above, key in paths(sound_manifests()[number]):
        documents = copy.deepcopy(sound_manifests()[number])
        parent = documents
        for step in above:
            parent = parent[step]
        parent[key] = value
        checked(yaml.safe_dump_all(documents, sort_keys=False))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "---",
        "a",
        "- a",
        "{",
        "a: &x [*x]",
        "? [a]: b",
        "!!python/object:os.system x",
        "a: 1\na: 2",
        "\ufeffmodel: {id: x}",
        "model: {id: x}\n---\nmodel: {id: y}",
        "apiVersion: v1\nkind: List\nitems: []",
        "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n",
        "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: []\nspec: 3\n",
        "a: " + "[" * 500,
        "\x00",
        "x: 2026-11-21\ny: 0x1f\nz: .inf\n",
    ],
)
def test_text_that_is_not_a_graph_is_an_error(text: str) -> None:
    assert any(f.level is Level.ERROR for f in checked(text))


def leaves(value: Any, path: Path_) -> Iterator[Path_]:
    """The paths of all settings below the value."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def settings_of_cases() -> Iterator[tuple[Any, Path_]]:
    """Each setting of an engine that a case of a rule has, once, with the graph of that case."""
    seen = set()
    for case in (
        case for rule_cases in cases().values() for case in rule_cases if is_graph(case.bad)
    ):
        tree = yaml.load(case.bad, LOADER)
        for section in ("engine", "prefill", "decode", "worker"):
            part = tree.get(section) if isinstance(tree, dict) else None
            config = part.get("config") if isinstance(part, dict) else None
            for path in leaves(config, (section, "config")):
                key = (str(tree.get("engine")).partition(",")[0], section == "engine", path[2:])
                if key not in seen:
                    seen.add(key)
                    yield tree, path


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 9))]
)
def test_no_setting_of_any_type_makes_a_rule_raise(part: int) -> None:
    """An engine's file may hold any YAML: what a rule compares or looks up may be a list."""
    wrong_values = [{"a": 1}, [1, "x"], None]
    for tree, path in islice(settings_of_cases(), part // 3, None, 3):
        changed = copy.deepcopy(tree)
        section = changed
        for step in path[:-1]:
            section = section[step]
        section[path[-1]] = wrong_values[part % len(wrong_values)]
        check(dump(changed))
