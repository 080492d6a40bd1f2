"""The pictures of reports show what the commands write now: the same commands and titles.

Only the browser can take the pictures; their titles are compared without it.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from penstock.live.text import columns_for
from penstock.reports.page import report_html
from tests.docs.test_documents import module
from tests.reports.constructed import REPORTS, Report
from tests.support.documents import PAGES, ROOT

SCREENSHOTS = module(ROOT / "docs" / "pictures" / "screenshots.py")
LIVE = module(ROOT / "docs" / "pictures" / "live.py")
SHOWN = json.loads(SCREENSHOTS.TITLES.read_text())
NAMES = {"compare": "comparison_of_two"}  # of the constructed report, if it is another
NEEDED_BYTES, MAX_BYTES = 5_000, 3_500_000


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


def test_the_pictures_of_the_live_view_are_shown_and_small() -> None:
    pictures = {one.name: one.stat().st_size for one in LIVE.PICTURES.iterdir()}
    assert sorted(pictures) == ["page-dark.webp", "page.webp", "top-160.svg", "top-80.svg"]
    for name, size in pictures.items():
        assert NEEDED_BYTES < size < (100_000 if name.endswith(".svg") else 200_000)
        shown = re.search(rf"!\[(.+?)\]\(pictures/live/{name}\)", PAGES["docs/live.md"], re.DOTALL)
        assert shown, name
        assert len(shown[1]) > 30, "the picture needs a text for those who do not see it"


@pytest.mark.parametrize("width", LIVE.WIDTHS)
def test_the_pictures_of_top_have_the_columns_of_today_and_load_nothing(width: int) -> None:
    svg = (LIVE.PICTURES / f"top-{width}.svg").read_text("utf-8")
    assert "url(http" not in svg.replace('"', "")
    text = html.unescape(re.sub(r"<[^>]+>", " ", svg)).replace("\xa0", " ")
    titles = [column.title for column in columns_for(width)]
    assert re.search(r"\s+".join(map(re.escape, titles)), text), "run `make screenshots`"


@pytest.mark.needs("chromium", "poppler")
@pytest.mark.nightly
@pytest.mark.xdist_group("chromium")
def test_pictures_are_taken_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "verify.html"
    report.write_text(report_html(constructed("verify")), "utf-8")
    with SCREENSHOTS.browser() as page:
        SCREENSHOTS.take(page, report, tmp_path)
    for view in SCREENSHOTS.VIEWS:
        assert (tmp_path / f"verify-{view}.webp").stat().st_size > NEEDED_BYTES
