"""The pictures of reports show what the commands write now. They record the texts of their report.

Only the browser can take the pictures; the texts are compared without it.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.drill.evaluate import evaluate
from penstock.drill.report import page
from tests.docs.test_documents import module
from tests.drill.test_evaluate import HISTORY, fault
from tests.drill.test_report import result
from tests.simulate.environment import needs_sim
from tests.support.documents import PAGES, ROOT

SCREENSHOTS = module(ROOT / "docs" / "pictures" / "screenshots.py")
REPORTS = SCREENSHOTS.REPORTS


def picture(name: str) -> Path:
    return ROOT / "docs" / "pictures" / f"{name}.png"


def drill_report() -> str:
    """The report of a drill with the faults of the picture, without running it."""
    command, _ = REPORTS["drill"]
    faults = tuple(fault(number=number, kind="kill") for number in range(1, 5))
    drilled = replace(
        result(), faults=faults, evaluation=evaluate(HISTORY, faults, stall_s=5), memory=()
    )
    return page(command[1], drilled, "penstock drill")


@pytest.mark.parametrize("name", REPORTS)
def test_a_picture_has_the_command_and_the_size_of_today(name: str) -> None:
    command, height = REPORTS[name]
    assert SCREENSHOTS.size(picture(name)) == (SCREENSHOTS.WIDTH, height)
    assert SCREENSHOTS.recorded(picture(name))[0] == " ".join(command), "run `make screenshots`"
    assert f"](pictures/{name}.png)" in PAGES[f"docs/{name}.md"]


def test_the_picture_of_drill_shows_the_texts_of_a_report() -> None:
    shown = SCREENSHOTS.recorded(picture("drill"))[1:]
    assert "Completed requests per second" in shown
    assert shown == SCREENSHOTS.texts(drill_report()), "run `make screenshots`"


@needs_sim
def test_the_picture_of_simulate_shows_the_texts_of_a_report(tmp_path: Path) -> None:
    command, _ = REPORTS["simulate"]
    report = tmp_path / "simulate.html"
    argv = [*SCREENSHOTS.PENSTOCK, *command, "--report", str(report)]
    subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    shown = SCREENSHOTS.recorded(picture("simulate"))[1:]
    assert "SLO: TTFT ≤ # ms, ITL ≤ # ms" in shown
    assert shown == SCREENSHOTS.texts(report.read_text("utf-8")), "run `make screenshots`"


def test_a_changed_report_makes_its_picture_stale() -> None:
    report = drill_report()
    assert SCREENSHOTS.texts(report) == SCREENSHOTS.texts(report.replace("10.0", "9.5"))
    assert SCREENSHOTS.texts(report) != SCREENSHOTS.texts(report.replace("Median TTFT", "TTFT"))


@pytest.mark.program
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_new_picture_has_the_size_and_the_texts_of_the_committed_one(tmp_path: Path) -> None:
    report, new = tmp_path / "drill.html", tmp_path / "drill.png"
    report.write_text(drill_report(), "utf-8")
    SCREENSHOTS.take(report, new, *REPORTS["drill"])
    assert SCREENSHOTS.size(new) == SCREENSHOTS.size(picture("drill"))
    assert SCREENSHOTS.recorded(new) == SCREENSHOTS.recorded(picture("drill"))
    assert new.stat().st_size > 20_000  # not an empty page
