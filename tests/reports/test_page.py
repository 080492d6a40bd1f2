"""The frame of the HTML reports."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.reports import html, text
from penstock.reports.charts import over_time
from penstock.reports.model import (
    Chart,
    Figure,
    Figures,
    Foldable,
    Notes,
    Part,
    Report,
    Section,
    Series,
    State,
    Table,
    Verdict,
)

BAD = "</script><b>a & b %{x}"
CHART = re.compile(r'<script type="application/json" id="charts">(.*?)</script>', re.DOTALL)


def chart(name: str = "p50") -> Chart:
    return over_time(BAD, "ms", [Series(name=name, x=[0.0, 1.0], y=[2.0, None])])


def report(*parts: Part) -> Report:
    return Report(
        kind="Report",
        title=BAD,
        subtitle=BAD,
        verdicts=[Verdict(State.MISSED, BAD)],
        sections=[
            Section("empty", []),
            Section("", [Figures([Figure(BAD, BAD, BAD)])], is_detail=True),
            Section("Results", parts),
        ],
    )


def report_html(report: Report) -> str:
    return html.report_html(report, [("command", BAD)])


def write_report(path: Path, report: Report) -> None:
    html.write_report(path, report, [])


def test_all_texts_are_escaped() -> None:
    table = Table([BAD], [[BAD]])
    folded = Foldable(BAD, [chart(BAD)], is_open=False)
    page = report_html(report(BAD, table, Notes([BAD]), chart(BAD), folded))
    assert "<b>a" not in page
    assert page.count("</script>") == 3  # of the charts, of Plotly and of the own script
    assert page.count("&lt;/script&gt;&lt;b&gt;a &amp; b") > 10


def test_the_names_in_a_chart_are_escaped_for_plotly_and_in_json() -> None:
    page = report_html(report(chart(BAD)))
    (content,) = CHART.findall(page)
    assert "<" not in content
    (figure,) = json.loads(content)
    assert figure["data"][0]["name"] == "&lt;/script&gt;&lt;b&gt;a &amp; b %{x}"
    assert "%{x}" not in figure["data"][0]["hovertemplate"].replace("%{x:", "")
    assert figure["data"][0]["y"] == [2.0, None]


def test_the_script_of_plotly_is_only_in_a_report_with_charts() -> None:
    assert len(report_html(report("no chart"))) < 20_000
    assert 4_000_000 < len(report_html(report(chart()))) < 6_000_000


def test_a_section_without_content_is_left_out() -> None:
    page = report_html(report("some"))
    assert "<h2>empty" not in page
    assert "<h2>Results" in page


def test_a_row_with_fewer_cells_fills_the_table() -> None:
    table = Table(["graph", "GPUs", "SLO met"], [["a", "1", "99%"], ["b", "none"]])
    page = report_html(report(table))
    assert "<td>a</td><td>1</td><td>99%</td>" in page
    assert '<td>b</td><td class="text" colspan="2">none</td>' in page


def test_a_verdict_is_not_shown_by_color_alone() -> None:
    page = report_html(report("some"))
    assert '<div class="verdict missed" role="status"><span class="icon"' in page
    assert ">✗</span>" in page


def test_a_report_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_report(tmp_path, report("some"))


def test_a_device_or_fifo_is_written_and_not_replaced(tmp_path: Path) -> None:
    """As root, `--report /dev/null` would replace it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    content: list[str] = []
    reader = threading.Thread(target=lambda: content.append(fifo.read_text("utf-8")))
    reader.start()
    write_report(fifo, report("no chart"))
    reader.join()
    assert fifo.is_fifo()
    assert content[0].startswith("<!doctype html>")


def test_the_text_has_all_but_charts_and_details() -> None:
    table = Table(["graph", "GPUs"], [["a", "1"], ["b", "12"]])
    figures = Figures([Figure("output", "3 tokens/s", "median"), Figure("failed", "0 of 9")])
    assert list(text.lines(report("a text", chart(), table, Notes(["x", "  y"]), figures))) == [
        f"{BAD}; {BAD}",
        BAD,
        "a text",
        "graph  GPUs",
        "a      1",
        "b      12",
        "x",
        "  y",
        "output: 3 tokens/s (median)",
        "failed: 0 of 9",
    ]
