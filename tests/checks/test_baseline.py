"""A baseline hides the findings that it has, and only those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.checks.baseline import Scope, match, parse_baseline, renewed
from penstock.checks.finding import Finding, Level
from penstock.errors import InputError
from tests.checks.support import trtllm_disagg
from tests.support.command_line import penstock

BAD = {"decode/config/stream_interval": 20}


def finding(rule: str = "PS601", **changes: Any) -> Finding:
    defaults = {"file": "g.yaml", "line": 1, "column": 1, "place": "a.b", "message": "m"}
    return Finding(rule=rule, level=Level.ERROR, why="w", fix="f", **{**defaults, **changes})


def scope(*files: str) -> Scope:
    return Scope(files=files or ("g.yaml",), includes=lambda rule: True)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    (tmp_path / "graphs").mkdir()
    path = tmp_path / "graphs" / "case.yaml"
    path.write_text(trtllm_disagg(BAD))
    return path


def test_what_is_in_the_baseline_does_not_count_and_is_not_shown(case: Path) -> None:
    file = case.parents[1] / "baseline.json"
    assert penstock("check", "--strict", str(case)).returncode == 14
    written = penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    assert (written.returncode, written.stdout.startswith("wrote ")) == (0, True)
    done = penstock("check", "--strict", str(case), "--baseline", str(file))
    assert done.returncode == 0
    assert "PS601" not in done.stdout
    assert "0 errors, 0 warnings, 0 notes, 3 in the baseline" in done.stdout


def test_lines_may_move_and_the_folder_of_the_call_does_not_matter(case: Path) -> None:
    file = case.parents[1] / "baseline.json"
    penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    assert {entry["file"] for entry in json.loads(file.read_text())["findings"]} == {
        "graphs/case.yaml"
    }
    case.write_text("# a comment\n\n" + case.read_text())
    done = penstock(
        "check", "case.yaml", "--baseline", "../baseline.json", "--strict", folder=case.parent
    )
    assert done.returncode == 0, done.stdout


def test_a_new_finding_is_reported_and_a_solved_one_is_counted_as_stale(case: Path) -> None:
    file = case.parents[1] / "baseline.json"
    penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    case.write_text(trtllm_disagg({"frontend": {"migration_limit": 0}}))
    done = penstock("check", str(case), "--baseline", str(file), "--json")
    document = json.loads(done.stdout)
    assert "PS511" in {found["rule"] for found in document["findings"]}
    assert document["stale_in_baseline"] == 1
    text = penstock("check", str(case), "--baseline", str(file)).stdout
    assert "The baseline has 1 entry without a finding. Renew it with --write-baseline." in text
    penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    assert "without a finding" not in penstock("check", str(case), "--baseline", str(file)).stdout


def test_another_component_with_the_same_cause_is_reported(case: Path) -> None:
    file = case.parents[1] / "baseline.json"
    penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    case.write_text(trtllm_disagg({"engine/config/stream_interval": 20}))
    done = penstock("check", str(case), "--baseline", str(file), "--select", "PS601")
    assert "PS601 warning" in done.stdout


def test_an_invalid_file_is_reported_although_the_baseline_was_written_with_it(case: Path) -> None:
    case.write_text("model: {}\nengine: {kind: vllm}\n")
    file = case.parents[1] / "baseline.json"
    penstock("check", str(case), "--baseline", str(file), "--write-baseline")
    assert json.loads(file.read_text())["findings"] == []
    assert penstock("check", str(case), "--baseline", str(file)).returncode == 14


def test_a_finding_that_occurs_twice_has_two_entries() -> None:
    folder = Path()
    once = renewed([finding()], None, folder, scope())
    matched = match([finding(), finding(line=9)], once, folder, scope())
    assert (len(matched.findings), matched.accepted) == (1, 1)
    twice = renewed([finding(), finding(line=9)], None, folder, scope())
    assert match([finding(), finding(line=9)], twice, folder, scope()).findings == ()


@pytest.mark.parametrize(
    "change", [{"rule": "PS602"}, {"file": "h.yaml"}, {"place": "a.c"}, {"message": "n"}]
)
def test_rule_file_place_and_message_identify_a_finding(change: dict[str, str]) -> None:
    baseline = renewed([finding()], None, Path(), scope())
    other = finding(**change)
    matched = match([other], baseline, Path(), scope("g.yaml", "h.yaml"))
    assert matched.findings == (other,)
    assert len(matched.stale) == 1


def test_entries_about_what_was_not_checked_are_neither_stale_nor_removed() -> None:
    folder = Path()
    old = renewed([finding(), finding("PS602"), finding(file="h.yaml")], None, folder, scope("x"))
    narrow = Scope(files=("g.yaml",), includes=lambda rule: rule == "PS601")
    assert [entry.rule for entry in match([], old, folder, narrow).stale] == ["PS601"]
    left = renewed([], old, folder, narrow).findings
    assert [(entry.file, entry.rule) for entry in left] == [
        ("g.yaml", "PS602"),
        ("h.yaml", "PS601"),
    ]
    broken = finding("PS002", place="")
    assert match([broken], old, folder, scope()).stale == ()


def test_suppressed_findings_are_not_written() -> None:
    assert renewed([finding(suppressed="known")], None, Path(), scope()).findings == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a baseline: not JSON"),
        ("{", "is not a baseline: not JSON"),
        ("[]", "is not a baseline"),
        ('{"version": 2, "findings": []}', "is not a baseline: input should be 1"),
        ('{"version": 1}', "findings: is not a baseline: field required"),
        ('{"version": 1, "findings": [{}]}', "findings.0.rule: is not a baseline"),
        ('{"version": 1, "findings": [], "x": 1}', "x: is not a baseline"),
        ("[" * 100_000, "is not a baseline"),
    ],
)
def test_a_corrupt_baseline_is_an_error(text: str, words: str, case: Path) -> None:
    with pytest.raises(InputError, match="baseline") as raised:
        parse_baseline(text, Path("b.json"))
    assert words in str(raised.value)
    file = case.with_name("b.json")
    file.write_text(text)
    for option in ([], ["--write-baseline"]):
        done = penstock("check", str(case), "--baseline", str(file), *option)
        assert done.returncode == 3
        assert "write it again with --write-baseline" in done.stderr


def test_a_baseline_that_cannot_be_read_or_written_is_an_error(case: Path) -> None:
    missing = penstock("check", str(case), "--baseline", str(case.with_name("none.json")))
    assert (missing.returncode, "no such file" in missing.stderr) == (3, True)
    nowhere = case.parent / "none" / "b.json"
    done = penstock("check", str(case), "--baseline", str(nowhere), "--write-baseline")
    assert (done.returncode, "cannot be written" in done.stderr) == (3, True)
