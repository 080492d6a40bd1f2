"""Complete configurations: a rule finds each bad one, and no rule warns about a good one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.checks.finding import Level
from penstock.checks.registry import RULES
from penstock.checks.run import check_file
from penstock.serving.understand import Hints

CORPUS = Path(__file__).parents[1] / "corpus"
BAD = sorted((CORPUS / "bad").glob("*.yaml"))
GOOD = sorted((CORPUS / "good").glob("*.yaml"))
HEADER = re.compile(r"^# (rule|level|source|what): *(.*)$", re.MULTILINE)


def header(path: Path) -> dict[str, str]:
    return dict(HEADER.findall(path.read_text("utf-8")))


def loud(path: Path) -> list[str]:
    return [
        f"{f.rule} ({f.level}) {f.place}: {f.message}"
        for f in check_file(path, Hints())
        if f.level is not Level.NOTE and not f.suppressed
    ]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_documented_failure_is_found(path: Path) -> None:
    fields = header(path)
    assert fields["source"].startswith("https://")
    assert fields["what"]
    expected = {rule.strip() for rule in fields["rule"].split(",")}
    assert expected <= {rule.id for rule in RULES}
    # Failures that need a load, an update or another release are notes, as most files have them.
    notes = {f.rule for f in check_file(path, Hints()) if f.level is Level.NOTE}
    found = notes if fields.get("level") == "note" else {text[:5] for text in loud(path)}
    assert found & expected


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_sound_configuration_has_no_errors_or_warnings(path: Path) -> None:
    assert loud(path) == []


def test_the_corpus_is_large_enough() -> None:
    assert len(BAD) >= 50
    assert len(GOOD) >= 30
