"""What each kind of file may contain, and what its messages say."""

from __future__ import annotations

import pytest

from penstock.errors import GraphError, Problem
from penstock.strict_yaml.document import read_document, read_documents
from penstock.strict_yaml.kind import Dialect, DocumentKind
from penstock.strict_yaml.places import line_of, node_at, position_of

STRICT = DocumentKind(name="a thing", example="thing.yaml", sharing="Use `all`.")
HELM = DocumentKind(
    name="a thing", example="thing.yaml", is_read_by_helm=True, reads_last="Helm would use"
)
SECRET = DocumentKind(name="a thing", may_quote_lines=False)
KUBERNETES = DocumentKind(name="a thing", dialect=Dialect.KUBERNETES)


def problems(text: str, kind: DocumentKind) -> tuple[Problem, ...]:
    try:
        return read_document(text, "f.yaml", kind).problems
    except GraphError as error:
        return error.problems


@pytest.mark.parametrize("text", ["", "[1]\n", "x\n", "null\n"])
def test_the_kind_and_its_example_are_in_the_messages(text: str) -> None:
    (problem,) = problems(text, STRICT)
    assert problem.fix == "Start from thing.yaml."
    assert "graph" not in problem.message


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: 1\n---\nb: 1\n"])
def test_only_a_file_that_helm_reads_has_messages_about_helm(text: str) -> None:
    assert "Helm" in problems(text, HELM)[0].message
    assert "Helm" not in problems(text, STRICT)[0].message


def test_a_line_that_may_hold_a_secret_is_not_quoted() -> None:
    assert "`a: b: c`" in problems("a: b: c\n", STRICT)[0].message
    (problem,) = problems("a: b: c\n", SECRET)
    assert "b" not in problem.message.replace("mapping", "").replace("valid YAML", "").split(":")[0]
    assert "`" not in problem.message


def test_the_fix_of_an_alias_says_how_to_share_a_value() -> None:
    reported = problems("a: &x 1\nb: *x\n", STRICT)
    assert reported[1].fix == "Write the value out. Use `all`."


def test_a_key_that_is_a_mapping_is_reported_beside_other_problems() -> None:
    reported = problems("a: {{ .Values.x }}\nb: {c: 1, c: 2}\n", STRICT)
    assert [problem.line for problem in reported] == [1, 2]


def test_kubernetes_documents_have_anchors_merge_keys_and_lines() -> None:
    text = "a: &x {b: 1}\nc:\n  <<: *x\n  d: y\n---\ne: 0o17\n"
    (first, second), reported = read_documents(text, "f.yaml", KUBERNETES)
    assert reported == []
    assert first.value == {"a": {"b": 1}, "c": {"b": 1, "d": True}}
    assert second.value == {"e": 15}
    assert line_of(first, ("c", "d")) == 4
    assert line_of(first, ("c", "b")) == 2
    assert node_at(first, ("c", "b")) is None
    assert position_of(first, ("c", "d")) == (4, 3)
    assert position_of(first, ("a", "b")) == (1, 8)


def test_a_column_counts_characters_from_one() -> None:
    document = read_document("ü: {ä: 1, b: [x, y]}\n", "f.yaml", STRICT)
    assert document.positions["ü"] == (1, 1)
    assert document.positions["ü.b"] == (1, 11)
    assert document.positions["ü.b[1]"] == (1, 18)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a:\n  b: 1\n  b: 2\n", 3, 3),
        ("a: 1\n---\nb: 1\n", 2, 1),
        ("a: b: c\n", 1, 5),
        ("a: 1\n b: 2\n", 2, 2),
        ("a: \x07\n", 1, 4),
    ],
)
def test_a_problem_has_line_and_column(text: str, line: int, column: int) -> None:
    problem = problems(text, STRICT)[0]
    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: *x\n", "the alias *x has no anchor before it"),
        ("a: &x 1\nb: &x 2\n", "the anchor &x is defined twice"),
        ("a: &x [*x]\n", "the alias *x refers to a value that contains it"),
        ("a: !secret x\n", "unknown YAML tag !secret"),
        ("<<: 1\n", "`<<` needs a mapping"),
        ("a: 1\na: 2\n", "duplicate key `a`, first on line 1"),
    ],
)
def test_what_kubernetes_rejects_is_a_problem(text: str, message: str) -> None:
    _, reported = read_documents(text, "f.yaml", KUBERNETES)
    assert [problem.message for problem in reported] == [message]


def test_documents_before_a_syntax_error_are_read() -> None:
    roots, reported = read_documents("a: 1\n---\nb: [\n", "f.yaml", KUBERNETES)
    assert [root.value for root in roots] == [{"a": 1}]
    assert reported[0].message.startswith("not valid YAML")
