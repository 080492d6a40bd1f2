"""Texts where a number is expected: the fix has the value to write."""

from __future__ import annotations

import pytest

from penstock.errors import GraphError, Problem
from penstock.graph.load import parse_graph

GRAPH = "model: {id: Qwen/Qwen3-0.6B}\nengine: {kind: vllm}\n"
WORKER = "worker: {replicas: 1}\n"
CASES = (
    ("worker.replicas", "0x10", "16"),
    ("worker.replicas", "1_000", "1000"),
    ("worker.replicas", "1e3", "1000"),
    ("worker.replicas", "08", "8"),
    ("worker.replicas", "1 000", "1000"),
    ("worker.replicas", "4 GPUs", "4"),
    ("worker.replicas", "50%", "50"),
    ("worker.replicas", "~5", "5"),
    ("worker.replicas", "８", "8; the text contains U+FF18 (fullwidth digit eight)"),
    ("worker.replicas", "5\u200b", "5; the text contains U+200B (zero width space)"),
    ("worker.replicas", "5\u00a0000", "5000; the text contains U+00A0 (no-break space)"),
    ("worker.replicas", "٣", "3; the text contains U+0663 (arabic-indic digit three)"),
    ("worker.replicas", "2²", "Write the number alone, such as 2"),
    ("worker.replicas", "“5”", "5; the text contains U+201C (left double quotation mark)"),
    ("model.context_length", "8k", "8192 (8 × 1024) or 8000"),
    ("model.context_length", "1M", "1048576 (1 × 1024²) or 1000000"),
    ("slo.ttft_ms", "500ms", "500; the unit is milliseconds"),
    ("slo.ttft_ms", "1.5s", "1500; the unit is milliseconds"),
    ("gateway.timeouts.idle_s", "2 min", "120; the unit is seconds"),
    ("gateway.max_request_kib", "16MB", "16384; the unit is KiB"),
    ("gateway.max_request_kib", "64Gi", "67108864; the unit is KiB"),
    ("router.temperature", "50%", "0.5"),
    ("router.temperature", "0.001%", "Write 0.00001."),
    ("slo.ttft_ms", "1234567.5ms", "1234567.5; the unit is milliseconds"),
)


def only_problem(text: str, sets: tuple[str, ...] = ()) -> Problem:
    with pytest.raises(GraphError) as raised:
        parse_graph(text, "graph.yaml", sets)
    (problem,) = raised.value.problems
    return problem


@pytest.mark.parametrize(("place", "value", "written"), CASES)
def test_the_fix_in_a_file_has_the_number(place: str, value: str, written: str) -> None:
    section, *keys = place.split(".")
    entry = ": {".join(keys) + f": {value}" + "}" * (len(keys) - 1)
    text = GRAPH + ("" if section == "worker" else WORKER)
    if section == "model":
        text = text.replace("0.6B}", f"0.6B, {entry}}}")
    else:
        text += f"{section}: {{{entry}}}\n"
    problem = only_problem(text)
    assert problem.place == place
    assert written in problem.fix
    assert problem.line


@pytest.mark.parametrize(("place", "value", "written"), CASES)
def test_the_fix_of_a_set_has_the_number(place: str, value: str, written: str) -> None:
    problem = only_problem(GRAPH + WORKER, (f"{place}={value}",))
    assert (problem.file, problem.place) == ("--set", place)
    assert written in problem.fix


def test_a_decimal_comma_is_a_point_or_two_integers() -> None:
    assert only_problem(GRAPH + WORKER + "slo:\n  ttft_ms: 1,5\n").fix == "Write 1.5."
    text = GRAPH + "worker:\n  replicas: 1,5\n"
    assert only_problem(text).fix == "Write an integer: 1 or 2."


def test_characters_that_are_not_shown_are_escaped_in_messages() -> None:
    problem = only_problem(GRAPH + "worker: {replicas: 5\u200b}\n")
    assert problem.message == r'must be an integer, got the string "5\u200b"'
    problem = only_problem(GRAPH + WORKER + "front\u200bend: {}\n")
    assert "U+200B (zero width space), which is not shown" in problem.message
    assert problem.line == 4


@pytest.mark.parametrize("value", ["{}", "{a,b}", "x"])
def test_a_set_of_a_section_says_how_to_set_its_keys(value: str) -> None:
    problem = only_problem(GRAPH + WORKER, (f"gateway={value}",))
    assert problem.message.startswith("must be a section of `key: value` lines")
    assert "--set gateway.KEY=VALUE" in problem.fix


@pytest.mark.parametrize("text", ["1" + ",000" * 50_000, "1_" * 5000, "５" * 5000, "1e99999999"])
def test_a_long_text_is_refused_without_a_number(text: str) -> None:
    problem = only_problem(GRAPH + f'worker: {{replicas: "{text}"}}\n')
    assert problem.fix == "Write an integer."
    assert len(problem.message) < 120


@pytest.mark.parametrize(
    ("text", "line", "message", "fix"),
    [
        ("wоrker: {}\n", 3, "which contains U+043E (cyrillic small letter o)", "`worker`"),
        ("worker:\n  args:\n  – a\n", 5, "`–` is not the hyphen", "`- `"),
    ],
)
def test_similar_characters_are_named(text: str, line: int, message: str, fix: str) -> None:
    with pytest.raises(GraphError) as raised:
        parse_graph(GRAPH + text, "graph.yaml")
    problem = next(p for p in raised.value.problems if message in p.message)
    assert problem.line == line
    assert fix in problem.fix
