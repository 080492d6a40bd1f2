"""`--select` and `--ignore`: the longest beginning decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.checks.registry import RULES
from penstock.checks.select import selection
from penstock.errors import UsageError
from tests.checks.support import trtllm_disagg
from tests.support.command_line import penstock


@pytest.mark.parametrize(
    ("select", "ignore", "included", "excluded"),
    [
        ((), (), "PS101 PS501", ""),
        (("PS4,PS501",), (), "PS401 PS499 PS501", "PS502 PS101"),
        (("PS4", "PS501"), (), "PS401 PS501", "PS502"),
        ((), ("PS7",), "PS601", "PS701 PS799"),
        (("PS4",), ("PS401",), "PS402", "PS401 PS501"),
        (("PS401",), ("PS4",), "PS401", "PS402 PS501"),
        (("PS4",), ("PS4",), "", "PS401"),
        (("PS",), ("PS1, PS2",), "PS301", "PS101 PS201"),
        (("PS501",), (), "PS001 PS002 PS003 PS004", "PS005"),
        ((), ("PS0",), "PS001 PS002 PS004", "PS005"),
    ],
)
def test_the_longest_beginning_decides(
    select: tuple[str, ...], ignore: tuple[str, ...], included: str, excluded: str
) -> None:
    rules = selection(select, ignore)
    assert [rule for rule in included.split() if not rules.includes(rule)] == []
    assert [rule for rule in excluded.split() if rules.includes(rule)] == []


@pytest.mark.parametrize("prefix", ["psx", "4", "P", "PS4*", "PS4 PS5", ""])
def test_an_unknown_beginning_is_an_error(prefix: str) -> None:
    with pytest.raises(UsageError, match="is not the beginning of a rule id"):
        selection([prefix], [])


@pytest.mark.parametrize("option", ["--select", "--ignore", "--explain"])
@pytest.mark.parametrize("rule", ["PS9999", "ps999"])
def test_a_rule_that_does_not_exist_names_no_other_but_the_list(option: str, rule: str) -> None:
    done = penstock("check", "g.yaml", option, rule)
    assert done.returncode == 2
    message, _, fix = done.stderr.partition(". Fix: ")
    assert message.startswith(f"penstock check: {option}: there is no rule ")
    assert rule in message or rule.upper() in message
    assert fix == "Run `penstock check --list-rules`, which lists the rules.\n"


def test_the_list_of_rules_has_id_level_and_title() -> None:
    lines = penstock("check", "--list-rules").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [rule.id for rule in RULES]
    assert lines[0].split(maxsplit=2) == ["PS001", "error", "the file cannot be checked"]


def test_quiet_prints_findings_without_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text("model: {}\nengine: {kind: vllm}\n")
    lines = penstock("check", str(path)).stdout.splitlines()
    quiet = penstock("check", "-q", str(path))
    assert quiet.returncode == 14
    assert quiet.stdout.splitlines() == [line for line in lines if str(path) in line]
    assert len(quiet.stdout.splitlines()) < len(lines)


def test_ids_are_read_in_any_case() -> None:
    rules = selection(["ps803,Ps4"], ["ps401"])
    assert [rules.includes(rule) for rule in ("PS803", "PS402", "PS401")] == [True, True, False]
    assert penstock("check", "--explain", "ps803").stdout.startswith("PS803 (")
    assert "Did you mean PS8" in penstock("check", "--explain", "ps80").stderr


def test_the_suggestion_begins_like_the_word() -> None:
    with pytest.raises(UsageError, match=r"Did you mean PS60\d\?"):
        selection(["PS60l"], [])


def test_the_command_reports_the_selected_rules(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    policy = {"decode/config/scheduler_config/capacity_scheduler_policy": "MAX_UTILISATION"}
    path.write_text(trtllm_disagg(policy))

    def reported(*options: str) -> tuple[int, set[str]]:
        done = penstock("check", "--json", *options, str(path))
        return done.returncode, {f["rule"] for f in json.loads(done.stdout)["findings"]}

    assert reported("--select", "PS102,PS606") == (14, {"PS102", "PS606"})
    code, rules = reported("--ignore", "PS1")
    assert code == 0
    assert rules
    assert not any(rule.startswith("PS1") for rule in rules)
    path.write_text("model: {}\nengine: {kind: vllm}\n")
    assert reported("--select", "PS601") == (14, {"PS002"})
