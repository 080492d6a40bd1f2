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
from penstock.reports.html import report_html
from penstock.tracing.explain import Cause, explain
from penstock.tracing.report import ON_MOCKERS, verdict
from tests.docs.test_documents import module
from tests.reports.constructed import FROM, REPORTS, Report
from tests.support.documents import PAGES, ROOT
from tests.tracing.build import Trace, requests

SCREENSHOTS = module(ROOT / "docs" / "pictures" / "screenshots.py")
LIVE = module(ROOT / "docs" / "pictures" / "live.py")
SHOWN = json.loads(SCREENSHOTS.TITLES.read_text())
NAMES = {"compare": "comparison_of_two"}  # of the constructed report, if it is another
NEEDED_BYTES, MAX_BYTES = 5_000, 3_500_000


def without_figures(text: str) -> str:
    return " ".join(re.sub(r"\d[\d.,]*", "#", text).split())


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
    today = set(SCREENSHOTS.titles(report_html(constructed(name), FROM)))
    assert set(SHOWN[name]["titles"]) - today == set(), "run `make screenshots`"
    assert "Provenance" in SHOWN[name]["titles"]


def test_the_pictures_are_small() -> None:
    pictures = list(SCREENSHOTS.PICTURES.iterdir())
    assert len(pictures) == len(SCREENSHOTS.REPORTS) * len(SCREENSHOTS.VIEWS)
    assert sum(picture.stat().st_size for picture in pictures) < MAX_BYTES


def test_the_pictures_of_the_live_view_and_of_trace_are_shown_and_small() -> None:
    pictures = {picture.name: picture.stat().st_size for picture in LIVE.PICTURES.iterdir()}
    pages = {"page-dark.webp", "page.webp", "top-160.svg", "top-80.svg", "trace.svg"}
    assert set(pictures) == pages
    for name, size in pictures.items():
        assert NEEDED_BYTES < size < (100_000 if name.endswith(".svg") else 200_000)
        page = PAGES["docs/tracing.md" if name == "trace.svg" else "docs/live.md"]
        picture = re.search(rf"!\[(.+?)\]\(pictures/live/{name}\)", page, re.DOTALL)
        assert picture, name
        assert len(picture[1]) > 30, "the picture needs a text for those who do not see it"


def text_of(picture: str) -> str:
    """The text in an SVG of the live view or of trace, which loads nothing."""
    svg = (LIVE.PICTURES / picture).read_text("utf-8")
    assert "url(http" not in svg.replace('"', "")
    return html.unescape(re.sub(r"<[^>]+>", " ", svg)).replace("\xa0", " ")


@pytest.mark.parametrize("width", LIVE.WIDTHS)
def test_the_pictures_of_top_have_the_columns_of_today_and_load_nothing(width: int) -> None:
    titles = [column.title for column in columns_for(width)]
    text = text_of(f"top-{width}.svg")
    assert re.search(r"\s+".join(map(re.escape, titles)), text), "run `make screenshots`"


def test_the_picture_of_trace_has_the_verdict_of_today_on_an_outlier() -> None:
    figures = {"prefill_ms": 52_370.0, "input": 90_000, "cached": 0, "mocker": True}
    outlier = explain(requests(Trace("slow", **figures)), "slow")
    assert outlier.cause is Cause.LONG_PROMPT
    lines = [ON_MOCKERS, *(f"{label}: {text}" for label, text in verdict(outlier))]
    picture = without_figures(text_of("trace.svg"))
    missing = [line for line in lines if without_figures(line) not in picture]
    assert missing == [], "run `make screenshots`"


def test_the_page_about_traces_has_the_figures_of_its_picture() -> None:
    text = text_of("trace.svg")
    picture = re.search(r"!\[(.+?)\]\(pictures/live/trace.svg\)", PAGES["docs/tracing.md"])
    assert picture
    figures = re.findall(r"[\d,.]*\d(?: s)?", picture[1])
    assert figures
    assert [figure for figure in figures if figure not in text] == []


def test_the_page_about_bench_shows_the_report_of_a_run_on_mockers() -> None:
    assert "--engine mocker" in SHOWN["bench"]["command"]
    for page in ("docs/bench.md", "docs/reports.md"):
        picture = re.search(r"!\[(.+?)\]\(pictures/reports/bench-1280.webp\)", PAGES[page])
        assert picture, page
        assert "no engine ran" in picture[1]


@pytest.mark.needs("chromium", "poppler")
@pytest.mark.nightly
@pytest.mark.xdist_group("chromium")
def test_pictures_are_taken_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "verify.html"
    report.write_text(report_html(constructed("verify"), FROM), "utf-8")
    with SCREENSHOTS.browser() as page:
        SCREENSHOTS.take(page, report, tmp_path)
    for view in SCREENSHOTS.VIEWS:
        assert (tmp_path / f"verify-{view}.webp").stat().st_size > NEEDED_BYTES
