"""Every plain scalar is refused, or read like Helm and PyYAML read it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import helm_python
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import GraphError
from penstock.graph.load import GRAPH, same
from penstock.strict_yaml.document import read_document
from penstock.strict_yaml.loader import SafeLoader
from penstock.strict_yaml.scalars import ScalarProblem, read_scalar

AMBIGUOUS = """
    y Y n N yes Yes YES no No NO on On ON off Off OFF yES tRUE nULL
    017 00 01 08 09 0o17 0O17 -0o17 0x1F 0X1F -0x1f 0x 0b1 0B1 -0b1 0b_1 0o_7
    1_000 1_0.5 01.5 00.5
    1e3 1E3 1e+3 1e-3 1.0e3 1.5e3 1.e3 .5e3 5. -.5 +.5
    .inf -.inf +.Inf .INF .nan .NaN
    12:30:45 1:30 1:30.5 -1:30 190:20:30.15 60:1
    2024-01-01 2024-1-1 2024-13-45 2024-01-01T00:00:00Z
    = <<
    9007199254740992 -9007199254740993 9223372036854775808 123456789012345678901234567890
    1.0e+400
"""

READ: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "NULL": None,
    "true": True,
    "False": False,
    "0": 0,
    "-1": -1,
    "+1": 1,
    "42": 42,
    "9007199254740991": 9007199254740991,
    "0.5": 0.5,
    ".9": 0.9,
    "-0.25": -0.25,
    "1.0e-3": 0.001,
    "2.5E+3": 2500.0,
    "8Gi": "8Gi",
    "1.6.1": "1.6.1",
    "nvcr.io/nvidia/x:1.6.1": "nvcr.io/nvidia/x:1.6.1",
    "inf": "inf",
    "0xG": "0xG",
    "1-2": "1-2",
    "--flag=1": "--flag=1",
    "yes-no": "yes-no",
    "2024-01": "2024-01",
    "tcp://*:5557": "tcp://*:5557",
    "a_b": "a_b",
}


@pytest.mark.parametrize("text", AMBIGUOUS.split())
def test_an_ambiguous_scalar_is_refused(text: str) -> None:
    assert isinstance(read_scalar(text), ScalarProblem)


@pytest.mark.parametrize(("text", "value"), READ.items())
def test_a_plain_scalar_is_read_as_helm_and_pyyaml_read_it(text: str, value: Any) -> None:
    ours = read_scalar(text)
    assert same(ours, value)
    assert same(ours, helm_python.values_from_yaml(f"k: {text}")["k"])
    assert same(ours, yaml.safe_load(f"k: {text}")["k"])


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("12:30:45", 'Helm reads 12:30:45 as "12:30:45", PyYAML as 45045', 'Quote it: "12:30:45"'),
        (
            "1e3",
            'Helm reads 1e3 as 1000, PyYAML as "1e3"',
            'Write 1000, or if it is a string, quote it: "1e3"',
        ),
        (
            "on",
            "Helm reads on as true, but not every YAML reader does",
            'Write true, or if it is a string, quote it: "on"',
        ),
        (".nan", "Helm reads .nan as an invalid value, PyYAML as NaN", 'Quote it: ".nan"'),
        (
            "2024-01-01",
            'Helm reads 2024-01-01 as "2024-01-01", PyYAML as a date',
            'Quote it: "2024-01-01"',
        ),
    ],
)
def test_an_ambiguous_scalar_is_reported_with_both_readings_and_a_fix(
    text: str, message: str, fix: str
) -> None:
    assert read_scalar(text) == ScalarProblem(message=message, fix=fix)


# Random text seldom looks like a number, so most of it has the characters of numbers and dates.
NUMBERLIKE = st.text("0123456789+-._:eExXoObBaAfFyYnN~ TZ", max_size=12)
WORDLIKE = st.sampled_from(["true", "false", "null", "yes", "no", "on", "off", ".inf", ".nan"])
CASED = WORDLIKE.flatmap(
    lambda word: st.tuples(*[st.sampled_from([c.lower(), c.upper()]) for c in word])
).map("".join)
SCALARS = NUMBERLIKE | CASED | st.text(max_size=12)


def _read(reader: Any, text: str) -> tuple[bool, Any]:
    try:
        return True, reader(text)
    except (yaml.YAMLError, helm_python.HelmError, ValueError):
        return False, None


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(SCALARS)
@example("1:30:5")
@example("0_8")
@example("0b2")
@example("-_1")
@example("0x_")
@example("0b_")
@example("1e")
@example("+.e3")
def test_any_scalar_is_refused_or_read_the_same_way(text: str) -> None:
    # Without the comparison with Helm in the loader: the rules must suffice.
    line = f"k: {text}\n"
    try:
        document = read_document(line, "graph.yaml", GRAPH)
    except GraphError:
        return
    if document.problems:
        return
    ok, helm = _read(helm_python.values_from_yaml, line)
    assert ok
    assert _alike(document.values, helm), (document.values, helm)
    ok, python = _read(_python, line)
    assert ok
    assert _alike(document.values, python), (document.values, python)


def _python(text: str) -> Any:
    # The C loader, as everywhere else: the scanner of PyYAML differs from libyaml and Helm on tabs.
    return yaml.load(text, SafeLoader)


@pytest.mark.slow
def test_every_short_scalar_of_digits_and_signs_is_refused_or_read_the_same_way() -> None:
    """All 30,000 of them: this found `0b-1`, which Helm reads as -1, where random text did not."""
    texts = ["".join(t) for n in range(1, 5) for t in itertools.product("018_.-+:exobi", repeat=n)]
    plain = [t for t in texts if not t.endswith(":") and t not in ("-", "---", "...")]
    taken = [t for t in plain if not isinstance(read_scalar(t), ScalarProblem)]
    document = "".join(f"k{i}: {t}\n" for i, t in enumerate(taken))
    ours = {f"k{i}": read_scalar(t) for i, t in enumerate(taken)}
    assert len(taken) > 20_000
    assert _alike(ours, helm_python.values_from_yaml(document))
    assert _alike(ours, _python(document))


def _alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_alike(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_alike, ours, theirs))
    return same(ours, theirs)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=10)
INTEGER = st.integers(-(2**53) + 1, 2**53 - 1)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(TEXT, st.none() | st.booleans() | INTEGER | TEXT | st.lists(TEXT)))
def test_json_is_read_unchanged(values: dict[str, Any]) -> None:
    document = read_document(json.dumps(values, ensure_ascii=False), "graph.yaml", GRAPH)
    assert document.values == values
    assert document.problems == ()
