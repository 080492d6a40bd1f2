"""Every kind of report in a browser: nothing is cut off, hard to read, or loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.reports.html import write_report
from tests.docs.test_documents import module
from tests.reports.constructed import FROM, REPORTS
from tests.support.documents import ROOT

BROWSER = module(ROOT / "docs" / "pictures" / "browser.py")
EXAMINE = (Path(__file__).parent / "examine.js").read_text()
MAX_BYTES = 6_000_000
WIDTHS = (1280, 2560)
PRINTED = 1032  # pixels: the width of A4 landscape without its margins
# Plotly draws a chart again some time after the window has changed.
IS_DRAWN = """[...document.querySelectorAll(".plot")].every((plot) => {
  if (plot.closest("details:not([open])")) return true;
  const svg = plot.querySelector(".main-svg");
  return svg && (matchMedia("print").matches ||
    Math.abs(svg.getBoundingClientRect().width - plot.clientWidth) < 2);
})"""
MOST_PRINTED = 20  # charts: to draw 100 of them takes long
# Titles of charts without a line, bar or mark.
UNDRAWN = """[...document.querySelectorAll(".plot")]
  .filter((plot) => !plot.querySelector(".cartesianlayer .trace, .cartesianlayer .points"))
  .map((plot) => plot.ariaLabel)"""
# One of each kind, and one without a result. The others have the same parts.
TYPICAL = (
    *("bench", "bench_that_served_nothing", "sweep", "comparison_of_two", "simulate", "plan"),
    *("drill", "verify", "shadow"),
)
assert set(TYPICAL) <= set(REPORTS)

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.slow,
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with BROWSER.browser() as page:
        yield page


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.html"
    write_report(path, REPORTS[name](), FROM)
    return path


def errors(page: Any) -> list[str]:
    """What the console of the browser shows."""
    messages = []
    for event in page.events:
        method, params = event["method"], event.get("params", {})
        entry = params.get("entry", {})
        if method == "Runtime.exceptionThrown":
            messages.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            messages.append(str(params["args"]))
        elif method == "Log.entryAdded" and entry["level"] in ("error", "warning"):
            messages.append(entry["text"])
    return messages


def requested(page: Any) -> set[str]:
    """The addresses that the page has loaded."""
    sent = [event for event in page.events if event["method"] == "Network.requestWillBeSent"]
    return {request["params"]["request"]["url"] for request in sent}


def set_media(page: Any, media: str, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", media=media, features=features)


@pytest.mark.parametrize(
    "name",
    [
        name if name in TYPICAL else pytest.param(name, marks=pytest.mark.nightly)
        for name in REPORTS
    ],
)
def test_a_report_is_complete_readable_and_self_contained(
    name: str, page: Any, tmp_path: Path
) -> None:
    path = written(tmp_path, name)
    assert path.stat().st_size <= MAX_BYTES
    page.open(path.as_uri(), WIDTHS[0], 900)
    defects_by_view = {}
    for width in WIDTHS:
        page.resize(width, 900)
        for scheme in ("light", "dark"):
            set_media(page, "screen", scheme)
            page.wait_for(IS_DRAWN)
            defects_by_view[f"{width}, {scheme}"] = page.evaluate(EXAMINE)
    if page.evaluate("document.querySelectorAll('.plot').length") <= MOST_PRINTED:
        set_media(page, "print", "dark")
        page.resize(PRINTED, 900)
        page.evaluate("window.dispatchEvent(new Event('beforeprint')) && 0")
        page.wait_for(IS_DRAWN)
        defects_by_view["print"] = page.evaluate(EXAMINE)
        assert page.evaluate(UNDRAWN) == []
    assert {where: defects for where, defects in defects_by_view.items() if defects} == {}
    assert errors(page) == []
    assert requested(page) == {path.as_uri()}


def test_a_chart_shows_its_values_with_their_unit_on_hover(page: Any, tmp_path: Path) -> None:
    page.open(written(tmp_path, "bench").as_uri(), 1280, 900)
    page.wait_for(IS_DRAWN)
    where = "[{curveNumber: 1, pointNumber: 1}]"
    page.evaluate(f"Plotly.Fx.hover(document.querySelector('.plot'), {where}) && 0")
    page.wait_for("document.querySelectorAll('.hoverlayer .hovertext').length > 0")
    label = page.evaluate("document.querySelector('.hoverlayer .hovertext').textContent")
    assert re.fullmatch(r"p99[\d.]+ ms at [\d.]+ s", label)


def test_the_examination_finds_what_it_looks_for(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(
        "<main><p style='color: #888; background: #fff'>pale</p>"
        "<div style='width: 50px; white-space: nowrap; overflow: hidden'>a text that is too long"
        "</div><script>console.error('an error')</script><img src='http://127.0.0.1:9/a.png'></main>"
    )
    page.open(broken.as_uri(), 1280, 900)
    defects = page.evaluate(EXAMINE)
    assert [defect.split(":")[0].split(" at ")[0] for defect in defects] == [
        "cut off",
        "contrast 3.5",
    ]
    assert any("an error" in error for error in errors(page))
    assert "http://127.0.0.1:9/a.png" in requested(page)
