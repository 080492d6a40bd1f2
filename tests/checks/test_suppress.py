"""Suppressions in comments: where they apply, and which of them are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checks.finding import Level
from penstock.checks.suppress import read_comments
from penstock.graph.load import parse_graph
from penstock.manifests.source import open_source, render_graph
from tests.checks.support import (
    check,
    only,
    trtllm_agg_dgd,
    trtllm_disagg,
)
from tests.support.command_line import penstock

WRONG = trtllm_disagg({"decode/config/stream_interval": 20})
RENDERED = render_graph(parse_graph(WRONG, "case.yaml")).text


def commented(text: str, key: str, comment: str, *, above: bool = False) -> str:
    """``text`` with a comment after the first line that has ``key``, or above it."""
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if key in line)
    if above:
        indentation = len(lines[at]) - len(lines[at].lstrip())
        lines.insert(at, " " * indentation + comment)
    else:
        lines[at] += f"  {comment}"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("text", [WRONG, RENDERED], ids=["graph", "block of a ConfigMap"])
def test_a_comment_on_the_line_or_above_it_suppresses(text: str, above: bool) -> None:
    comment = "# penstock: ignore PS601 the parser is ours"
    text = commented(text, "stream_interval", comment, above=above)
    assert only(text, "PS601").suppressed == "the parser is ours"
    assert "PS005" not in {finding.rule for finding in check(text)}


def test_comments_above_a_line_can_follow_each_other() -> None:
    text = commented(WRONG, "stream_interval", "# penstock: ignore PS601 ours", above=True)
    text = commented(text, "stream_interval", "# an ordinary comment", above=True)
    assert only(text, "PS601").suppressed == "ours"


@pytest.mark.parametrize("text", [WRONG, RENDERED, trtllm_agg_dgd()])
def test_a_comment_for_the_file_may_be_anywhere_and_name_several_rules(text: str) -> None:
    text += "# penstock: ignore-file PS810, PS606 a test\n"
    assert only(text, "PS810").suppressed == "a test"
    assert only(text, "PS606").suppressed == "a test"


def test_a_comment_on_another_line_suppresses_nothing_and_is_reported() -> None:
    text = commented(WRONG, "max_batch_size", "# penstock: ignore PS601 ours")
    assert not only(text, "PS601").suppressed
    unused = only(text, "PS005")
    assert unused.message == "PS601 has no finding on this line"
    assert text.splitlines()[(unused.line or 0) - 1][(unused.column or 0) - 1] == "#"
    above = commented(WRONG, "max_batch_size", "# penstock: ignore PS601 ours", above=True)
    assert only(above, "PS005").message.startswith("PS601 has no finding on line ")


@pytest.mark.parametrize(
    ("comment", "message", "fix"),
    [
        ("ignore PS601", "gives no reason for suppressing PS601", "ignore PS810 REASON"),
        ("ignore PS601,PS810  ", "gives no reason for suppressing PS601,PS810", "REASON"),
        ("ignore", "names no rule", "REASON"),
        ("ignore PS6 ours", "names no rule", "REASON"),
        ("ignore because of ours", "names no rule", "REASON"),
        ("ingore PS601 ours", "`penstock: ingore` is unknown", "Did you mean `ignore`?"),
        ("ignore-flie PS601 x", "`penstock: ignore-flie` is unknown", "`ignore-file`?"),
        ("ignore PS998 ours", "there is no rule PS998", "Remove PS998"),
        ("ignore-file PS002 ours", "PS002 cannot be suppressed", "Remove PS002"),
        ("ignore-file PS707 ours", "PS707 has no finding here", "Remove PS707"),
    ],
)
def test_a_comment_that_cannot_suppress_is_a_warning(comment: str, message: str, fix: str) -> None:
    text = commented(WRONG, "stream_interval", f"# penstock: {comment}")
    findings = only(text, "PS005")
    assert message in findings.message
    assert fix in findings.fix
    assert findings.level is Level.WARNING
    assert not only(text, "PS601").suppressed


@pytest.mark.parametrize(
    "text",
    [
        'a: "x # penstock: ignore PS601 y"\n',
        "a: 'x\n  # penstock: ignore PS601 y'\n",
        "a: x#penstock: ignore PS601 y\n",
        "# penstock: the tool that checks this\n",
        "# penstock ignore PS601 y\n",
    ],
)
def test_text_that_is_no_such_comment_is_ignored(text: str) -> None:
    assert read_comments(text) == ([], [])


def test_the_comments_of_a_text_with_a_syntax_error_are_read() -> None:
    (one,), broken = read_comments("a: b: c\n# penstock: ignore-file PS601 y\n")
    assert (one.rule, one.reason, one.applies_to, broken) == ("PS601", "y", None, [])


def test_a_comment_that_one_of_two_deployments_needs_is_used(tmp_path: Path) -> None:
    wrong = RENDERED.replace("name: case\n", "name: other\n").replace("case-", "other-")
    text = f"{RENDERED}\n---\n{wrong}"
    lines = text.splitlines()
    last = max(n for n, line in enumerate(lines) if "stream_interval" in line)
    lines[last] += "  # penstock: ignore PS601 ours"
    path = tmp_path / "two.yaml"
    path.write_text("\n".join(lines) + "\n")
    done = penstock("check", "--select", "PS601,PS005", str(path))
    assert "0 errors, 1 warning, 0 notes, 1 suppressed" in done.stdout


def test_up_and_apply_accept_what_a_comment_suppresses(tmp_path: Path) -> None:
    from penstock.checks.run import require_sound
    from penstock.errors import CheckError

    path = tmp_path / "case.yaml"
    key = "capacity_scheduler_policy"
    wrong = trtllm_disagg({f"decode/config/scheduler_config/{key}": "MAX_UTILISATION"})
    path.write_text(wrong)
    with pytest.raises(CheckError, match="PS102"):
        require_sound(open_source(path))
    path.write_text(commented(wrong, key, "# penstock: ignore PS102 ours"))
    require_sound(open_source(path))


@pytest.mark.slow
def test_a_finding_beside_errors_of_the_file_is_suppressed_too() -> None:
    text = commented(WRONG, "stream_interval", "# penstock: ignore PS601 ours")
    text += "router: {mode: kvv}\n"
    assert only(text, "PS601").suppressed == "ours"
    assert "PS005" not in {finding.rule for finding in check(text)}
