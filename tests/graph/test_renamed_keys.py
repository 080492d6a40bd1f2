"""Renamed keys: the old one is read with a warning, and both together are an error."""

from __future__ import annotations

import warnings
from pathlib import Path

import jsonschema
import pytest

from penstock.cli.main import main
from penstock.graph.load import load_graph, parse_graph
from penstock.graph.renamed_keys import RENAMED_KEYS, DeprecatedKeyWarning
from penstock.graph.schema import graph_schema
from tests.graph.texts import SMALL, the_problem
from tests.support.command_line import error_of, output_of

OLD = SMALL + "hardware:\n  gpu_hour: 2.5\nchecks:\n  silence: {PS307: known model}\n"
NEW = SMALL + "hardware:\n  gpu_hour_price: 2.5\nchecks:\n  suppress: {PS307: known model}\n"
WARNINGS = [
    "{file}:5 hardware.gpu_hour: deprecated key, removed in the next release. "
    "Fix: Rename it to `hardware.gpu_hour_price`.",
    "{file}:7 checks.silence: deprecated key, removed in the next release. "
    "Fix: Rename it to `checks.suppress`.",
]


def test_the_old_keys_give_the_same_graph_and_the_same_values() -> None:
    old, new = (parse_graph(text, "graph.yaml") for text in (OLD, NEW))
    assert old.graph == new.graph
    assert old.values == new.values
    assert old.places.line_of("checks.suppress.PS307") == 7
    assert old.places.line_of("hardware.gpu_hour_price") == 5


def test_each_old_key_is_named_with_its_line_and_its_new_name() -> None:
    old, new = (parse_graph(text, "graph.yaml").deprecations for text in (OLD, NEW))
    assert [str(key) for key in old] == [text.format(file="graph.yaml") for text in WARNINGS]
    assert new == ()


def test_a_set_of_an_old_key_is_named_as_a_set() -> None:
    loaded = parse_graph(SMALL, "graph.yaml", ["hardware.gpu_hour=4"])
    assert loaded.graph.hardware.gpu_hour_price == 4
    assert loaded.places.set_of("hardware.gpu_hour_price") == "hardware.gpu_hour=4"
    (key,) = loaded.deprecations
    assert str(key).startswith("--set hardware.gpu_hour: deprecated key")


@pytest.mark.parametrize(
    ("text", "sets", "place"),
    [
        (OLD + "  suppress: {PS1: x}\n", [], "graph.yaml:7 checks.silence"),
        (OLD.replace("  gpu_hour:", "  gpu_hour_price: 1\n  gpu_hour:"), [], "graph.yaml:6 hard"),
        (NEW, ["hardware.gpu_hour=4"], "--set hardware.gpu_hour"),
        (OLD, ["hardware.gpu_hour_price=4"], "graph.yaml:5 hardware.gpu_hour"),
    ],
)
def test_an_old_key_together_with_its_new_name_is_refused(
    text: str, sets: list[str], place: str
) -> None:
    with pytest.raises(Exception, match="deprecated key, set together with its new name") as caught:
        parse_graph(text, "graph.yaml", sets)
    assert str(caught.value).startswith(place)
    assert "Fix: Remove `" in str(caught.value)


def test_a_wrong_value_is_reported_under_the_key_that_was_written() -> None:
    problem = the_problem(SMALL + "hardware:\n  gpu_hour: -1\n")
    assert (problem.line, problem.place) == (5, "hardware.gpu_hour")


def test_reading_a_file_warns(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(OLD)
    with pytest.warns(DeprecatedKeyWarning) as caught:
        load_graph(path)
    assert [str(w.message) for w in caught] == [text.format(file=path) for text in WARNINGS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_graph(OLD, "graph.yaml")  # pure: it only returns them


@pytest.mark.parametrize(
    "argv",
    [["check"], ["render"], ["explain"], ["diff", "--from", "SAME"], ["scale", "worker=2"]],
    ids=lambda argv: str(argv[0]),
)
def test_every_verb_prints_each_warning_once_to_stderr(argv: list[str], tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(OLD.replace("trtllm", "mocker"))
    verb, *rest = [str(path) if part == "SAME" else part for part in argv]
    lines = [
        line for line in error_of([verb, str(path), *rest], 0).splitlines() if "deprecated" in line
    ]
    assert lines == [f"penstock {verb}: warning: {text.format(file=path)}" for text in WARNINGS]


def test_render_and_diff_are_equal_for_old_and_new_keys(tmp_path: Path) -> None:
    texts = []
    for folder, text in (("old", OLD), ("new", NEW)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "graph.yaml").write_text(text)
        texts.append(output_of(["render", str(tmp_path / folder / "graph.yaml")]))
    assert texts[0] == texts[1]
    old, new = (str(tmp_path / folder / "graph.yaml") for folder in ("old", "new"))
    assert "no change" in output_of(["diff", old, "--from", new])


def test_the_schema_of_editors_marks_the_old_keys_as_deprecated() -> None:
    schema = graph_schema()
    for old, new in RENAMED_KEYS.items():
        section, name = old.split(".")
        part = schema["$defs"][section.capitalize()]["properties"][name]
        assert part["deprecated"] is True
        assert part["description"] == f"Deprecated: use {new}."
    values = {"model": {"id": "x"}, "engine": {"kind": "vllm"}, "worker": {}}
    jsonschema.validate({**values, "hardware": {"gpu_hour": 2}, "checks": {"silence": {}}}, schema)


@pytest.mark.filterwarnings("ignore::penstock.graph.renamed_keys.DeprecatedKeyWarning")
def test_a_finding_of_check_names_the_key_that_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(OLD.replace("PS307", "PS998"))
    main(["check", "--full", str(path)])
    printed = capsys.readouterr().out
    assert f"{path}:7:13 PS005 warning checks.silence.PS998: " in printed
    assert "fix: Remove `checks.silence.PS998`." in printed
