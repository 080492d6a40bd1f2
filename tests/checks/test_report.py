"""The form of the output of `penstock check`: lines, order, summary, annotations."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import yaml

from penstock.checks.find_files import SkippedFile
from penstock.checks.finding import Finding, FindingPlace, Level
from penstock.checks.formats import as_github, as_json, as_sarif
from penstock.checks.registry import RULES
from penstock.checks.report import CheckReport, counts_line, print_text
from tests.checks.support import TRTLLM_DISAGG, VLLM_DISAGG, graph, manifest, trtllm_disagg
from tests.support.command_line import ROOT, penstock

LINE = re.compile(r"(\S+\.yaml)(:\d+:\d+)?( --set \S+)? PS\d{3} (error|warning|note|suppressed) .+")


def finding(rule: str = "PS810", level: Level = Level.NOTE, **changes: object) -> Finding:
    defaults = {
        "file": "g.yaml",
        "line": 3,
        "column": 5,
        "place": "frontend.replicas",
        "message": "m",
        "why": "w",
        "fix": "f",
    }
    return Finding(rule=rule, level=level, **{**defaults, **changes})  # type: ignore[arg-type]


def printed(*findings: Finding, is_full: bool = False, **changes: int) -> list[str]:
    output = io.StringIO()
    report = CheckReport(findings=findings, files=("g.yaml",), **changes)
    with contextlib.redirect_stdout(output):
        print_text(report, is_full=is_full)
    return output.getvalue().splitlines()


def test_a_finding_is_one_line() -> None:
    first, total, hint = printed(finding())
    assert first == "g.yaml:3:5 PS810 note frontend.replicas: m"
    assert total == "1 file: 0 errors, 0 warnings, 1 note"
    assert "--full" in hint


def test_an_error_of_the_file_has_its_fix_on_the_line() -> None:
    missing = finding("PS001", Level.ERROR, place="", message="no such file", fix="Did you mean x?")
    assert printed(missing)[0] == "g.yaml:3:5 PS001 error no such file. Did you mean x?"
    full = printed(missing, is_full=True)
    assert full[0] == "g.yaml:3:5 PS001 error no such file"
    assert full[2] == "    fix: Did you mean x?"


def test_a_long_line_is_not_wrapped() -> None:
    assert printed(finding(message="x" * 300))[0].endswith("x" * 300)


def test_a_finding_without_a_line_has_only_its_file() -> None:
    line = printed(finding(line=None, column=None, override="a=b"))[0]
    assert line == "g.yaml --set a=b PS810 note frontend.replicas: m"


def test_text_that_looks_like_markup_is_printed_as_it_is() -> None:
    assert printed(finding(message="[red]x[/red] [0]"))[0].endswith("[red]x[/red] [0]")


def test_errors_come_first_and_rules_together() -> None:
    lines = printed(
        finding("PS810"),
        finding("PS601", Level.ERROR, line=9),
        finding("PS511", Level.WARNING),
        finding("PS123", Level.ERROR),
        finding("PS601", Level.ERROR, line=1),
        finding("PS125", suppressed="known"),
    )
    rules = [line.split()[1] for line in lines[:6]]
    assert rules == ["PS123", "PS601", "PS601", "PS511", "PS810", "PS125"]
    assert lines[5] == "g.yaml:3:5 PS125 suppressed frontend.replicas: m (known)"


def test_many_findings_have_a_summary_by_rule() -> None:
    many = [finding(line=line) for line in range(1, 6)]
    assert not any("COUNT" in line for line in printed(*many))
    lines = printed(*many, finding("PS601", Level.ERROR))
    heading = next(n for n, line in enumerate(lines) if "COUNT" in line)
    assert lines[heading].split() == ["RULE", "LEVEL", "COUNT", "TITLE"]
    assert lines[heading + 1].split()[:3] == ["PS601", "error", "1"]
    assert lines[heading + 2].split() == ["PS810", "note", "5", "single", "frontend"]


def test_the_full_form_has_reason_fix_and_yaml() -> None:
    lines = printed(finding(yaml="a:\n  b: 1"), is_full=True)
    assert lines[1:5] == ["    why: w", "    fix: f", "      a:", "        b: 1"]
    assert not any("--full" in line for line in lines)


def test_a_suppressed_finding_has_no_fix() -> None:
    assert len(printed(finding(suppressed="known"), is_full=True)) == 2


OTHER = FindingPlace(component="decode", line=7, column=3, place="decode.x", override=None)


def test_a_merged_finding_lists_its_places() -> None:
    both = finding(component="prefill", place="prefill.x", also=(OTHER,))
    assert printed(both)[0] == "g.yaml:3:5 PS810 note prefill, decode: m"
    lines = printed(both, is_full=True)
    assert lines[1:3] == ["    prefill: 3:5 prefill.x", "    decode: 7:3 decode.x"]
    found = json.loads(as_json(CheckReport(findings=(both,), files=("g.yaml",))))["findings"][0]
    assert [place["place"] for place in found["places"]] == ["prefill.x", "decode.x"]
    log = json.loads(as_sarif(CheckReport(findings=(both,), files=("g.yaml",))))
    locations = log["runs"][0]["results"][0]["locations"]
    regions = [one["physicalLocation"]["region"] for one in locations]
    assert regions == [{"startLine": 3, "startColumn": 5}, {"startLine": 7, "startColumn": 3}]
    annotations = as_github(CheckReport(findings=(both,), files=("g.yaml",))).splitlines()
    assert [line.split(",")[1] for line in annotations[:2]] == ["line=3", "line=7"]


def test_the_counts_name_skipped_files_and_the_baseline() -> None:
    skipped = (SkippedFile(path=Path("c"), reason="empty"),)
    report = CheckReport(findings=(), files=("a", "b"), skipped=skipped, accepted=4)
    words = "2 files: 0 errors, 0 warnings, 0 notes, 4 in the baseline; skipped 1 other YAML file"
    assert counts_line(report) == words
    assert "The baseline has 2 entries without a finding." in printed(stale=2)[1]
    assert "The baseline has 1 entry without a finding." in printed(stale=1)[1]


def test_a_github_annotation_is_escaped() -> None:
    odd = finding("PS601", Level.ERROR, file="a:b,c%.yaml", message="100%\r\nx: y, z", fix="")
    first, counts = as_github(CheckReport(findings=(odd,), files=("x",))).splitlines()
    assert first == (
        "::error file=a%3Ab%2Cc%25.yaml,line=3,col=5,title=PS601::"
        "frontend.replicas: 100%25%0D%0Ax: y, z"
    )
    assert counts == "1 file: 1 error, 0 warnings, 0 notes"


@pytest.mark.parametrize(
    ("level", "command"),
    [(Level.ERROR, "error"), (Level.WARNING, "warning"), (Level.NOTE, "notice")],
)
def test_a_github_annotation_has_the_level_and_the_fix(level: Level, command: str) -> None:
    text = as_github(
        CheckReport(findings=(finding(level=level, line=None, column=None),), files=())
    )
    assert text.startswith(f"::{command} file=g.yaml,title=PS810::frontend.replicas: m%0AFix: f\n")


def test_suppressed_findings_are_no_annotations() -> None:
    text = as_github(CheckReport(findings=(finding(suppressed="known"),), files=("g.yaml",)))
    assert text == "1 file: 0 errors, 0 warnings, 0 notes, 1 suppressed"


@pytest.mark.parametrize("make", [graph, manifest])
def test_the_lines_of_the_command_have_the_documented_form(make: object, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    config = {"max-num-batched-tokens": 100, "max-num-seqs": 256}
    path.write_text(make({**VLLM_DISAGG, "engine": {"kind": "vllm", "config": config}}))  # type: ignore[operator]
    lines = penstock("check", str(path)).stdout.splitlines()
    found = [line for line in lines if line.startswith(str(path))]
    assert len(found) > 2
    assert all(LINE.fullmatch(line) for line in found)
    assert any(re.search(r"PS124 error prefill, decode: ", line) for line in found)


def test_format_full_and_full_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(trtllm_disagg())
    full = penstock("check", "--full", str(path)).stdout
    assert full == penstock("check", "--format", "full", str(path)).stdout
    assert "    why: " in full
    sarif = penstock("check", "--sarif", str(path)).stdout
    assert sarif == penstock("check", "--format", "sarif", str(path)).stdout
    github = penstock("check", "--format", "github", str(path)).stdout
    assert github.startswith(f"::notice file={path},line=")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("", 0),
        ("--max-level error", 0),
        ("--max-level warning", 0),
        ("--max-level note", 14),
        ("--strict", 14),
    ],
)
def test_the_highest_level_that_is_no_failure(options: str, code: int, tmp_path: Path) -> None:
    path = tmp_path / "warned.yaml"
    path.write_text(trtllm_disagg({"decode/config/stream_interval": 20}))
    assert penstock("check", *options.split(), str(path)).returncode == code


def test_an_error_is_no_failure_only_at_the_level_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    policy = {"decode/config/scheduler_config/capacity_scheduler_policy": "MAX_UTILISATION"}
    path.write_text(trtllm_disagg(policy))
    assert penstock("check", str(path)).returncode == 14
    assert penstock("check", "--max-level", "error", str(path)).returncode == 0


def test_the_help_has_the_exit_codes_and_the_comments() -> None:
    text = penstock("check", "--help").stdout
    assert re.search(r"^  14  a finding is above --max-level$", text, re.MULTILINE)
    assert "# penstock: ignore PS810" in text


def test_the_reason_of_a_finding_is_about_its_own_file() -> None:
    """What was measured elsewhere is the rule's example, which findings do not show."""
    other = re.compile(r"gpt-oss-\d+b|\d GiB|\d GB/s|\d×|our measurement|published recipe")
    assert [rule.id for rule in RULES if other.search(rule.effect)] == []
    assert sum(bool(rule.example) for rule in RULES) > 5


def test_sizes_in_reasons_are_those_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    model = {"id": "openai/gpt-oss-20b"}
    path.write_text(graph({**TRTLLM_DISAGG, "model": model}))
    findings = json.loads(penstock("check", "--json", str(path)).stdout)["findings"]
    reasons = {found["rule"]: found["why"] for found in findings}
    assert "downloads 13 GiB" in reasons["PS714"]
    assert "131,072 tokens needs" in reasons["PS125"]
    assert "120b" not in json.dumps(findings)


def test_the_hook_of_pre_commit_runs_the_command() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["language"], hook["entry"]) == (
        "penstock-check",
        "python",
        "penstock check",
    )
    assert re.search(hook["files"], "deploy/dynamo_graphs/a.yaml")
    assert not re.search(hook["files"], "deploy/dynamo_graphs_old/a.yaml")
    assert penstock("check", str(ROOT / "dynamo_graphs/quickstart.yaml")).returncode == 0
