"""The pictures of reports show what the commands write now: the same commands and titles.

Only the browser can take the pictures; their titles are compared without it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.reports.page import report_html
from tests.docs.test_documents import module
from tests.reports.constructed import REPORTS, Report
from tests.support.documents import PAGES, ROOT

SCREENSHOTS = module(ROOT / "docs" / "pictures" / "screenshots.py")
SHOWN = json.loads(SCREENSHOTS.TITLES.read_text())
NAMES = {"compare": "comparison_of_two"}  # of the constructed report, if it is another
NEEDED_BYTES, MAX_BYTES = 5_000, 3_000_000
HAS_PROGRAMS = shutil.which("chromium") and shutil.which("pdftoppm")


def constructed(name: str) -> Report:
    return REPORTS[NAMES.get(name, name)]()


@pytest.mark.parametrize("name", SCREENSHOTS.REPORTS)
def test_the_pictures_of_a_report_are_those_of_its_command(name: str) -> None:
    assert SHOWN[name]["command"] == " ".join(SCREENSHOTS.REPORTS[name]), "run `make screenshots`"
    for view in SCREENSHOTS.VIEWS:
        picture = f"{name}-{view}.webp"
        assert (SCREENSHOTS.PICTURES / picture).stat().st_size > NEEDED_BYTES
        assert f"](pictures/reports/{picture})" in PAGES["docs/reports.md"]


@pytest.mark.slow  # plan and simulate render a graph
@pytest.mark.parametrize("name", SCREENSHOTS.REPORTS)
def test_the_titles_in_the_pictures_are_those_of_today(name: str) -> None:
    today = set(SCREENSHOTS.titles(report_html(constructed(name))))
    assert set(SHOWN[name]["titles"]) - today == set(), "run `make screenshots`"
    assert "Provenance" in SHOWN[name]["titles"]


def test_the_pictures_are_small() -> None:
    pictures = list(SCREENSHOTS.PICTURES.iterdir())
    assert len(pictures) == len(SCREENSHOTS.REPORTS) * len(SCREENSHOTS.VIEWS)
    assert sum(picture.stat().st_size for picture in pictures) < MAX_BYTES


@pytest.mark.program
@pytest.mark.slow
@pytest.mark.xdist_group("chromium")
@pytest.mark.skipif(not HAS_PROGRAMS, reason="chromium or pdftoppm is not installed")
def test_pictures_are_taken_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "verify.html"
    report.write_text(report_html(constructed("verify")), "utf-8")
    with SCREENSHOTS.browser() as page:
        SCREENSHOTS.take(page, report, tmp_path)
    for view in SCREENSHOTS.VIEWS:
        assert (tmp_path / f"verify-{view}.webp").stat().st_size > NEEDED_BYTES
