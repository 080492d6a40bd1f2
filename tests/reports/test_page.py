"""The frame of the HTML reports."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.reports.charts import Chart, curve, over_time
from penstock.reports.page import (
    Foldable,
    Notes,
    Report,
    Section,
    State,
    Table,
    Tile,
    Verdict,
    report_html,
    write_report,
)

BAD = "</script><b>a & b %{x}"
CHART = re.compile(r'<script type="application/json" id="charts">(.*?)</script>', re.DOTALL)


def chart(name: str = "p50") -> Chart:
    return over_time(BAD, "ms", [curve(name, [0.0, 1.0], [2.0, None], 0, "ms")])


def report(*parts: str | Chart | Table | Notes | Foldable) -> Report:
    return Report(
        title=BAD,
        subtitle=BAD,
        verdicts=[Verdict(state=State.MISSED, text=BAD)],
        tiles=[Tile(name=BAD, value=BAD, note=BAD)],
        sections=[Section(title="empty", parts=[]), Section(title="Results", parts=parts)],
        provenance=[("command", BAD)],
    )


def test_all_texts_are_escaped() -> None:
    table = Table(headings=[BAD], rows=[[BAD]])
    folded = Foldable(title=BAD, charts=[chart(BAD)], is_open=False)
    text = report_html(report(BAD, table, Notes(lines=[BAD]), chart(BAD), folded))
    assert "<b>a" not in text
    assert text.count("</script>") == 3  # of the charts, of Plotly and of the own script
    assert text.count("&lt;/script&gt;&lt;b&gt;a &amp; b") > 10


def test_the_names_in_a_chart_are_escaped_for_plotly_and_in_json() -> None:
    text = report_html(report(chart(BAD)))
    (found,) = CHART.findall(text)
    assert "<" not in found
    (one,) = json.loads(found)
    assert one["data"][0]["name"] == "&lt;/script&gt;&lt;b&gt;a &amp; b %{x}"
    assert "%{x}" not in one["data"][0]["hovertemplate"].replace("%{x:", "")
    assert one["data"][0]["y"] == [2.0, None]


def test_the_script_of_plotly_is_only_in_a_report_with_charts() -> None:
    assert len(report_html(report("no chart"))) < 20_000
    assert 4_000_000 < len(report_html(report(chart()))) < 6_000_000


def test_a_section_without_content_is_left_out() -> None:
    text = report_html(report("some"))
    assert "<h2>empty" not in text
    assert "<h2>Results" in text


def test_a_row_with_fewer_cells_fills_the_table() -> None:
    table = Table(headings=["graph", "GPUs", "SLO met"], rows=[["a", "1", "99%"], ["b", "none"]])
    text = report_html(report(table))
    assert "<td>a</td><td>1</td><td>99%</td>" in text
    assert '<td>b</td><td class="text" colspan="2">none</td>' in text


def test_a_verdict_is_not_shown_by_color_alone() -> None:
    text = report_html(report("some"))
    assert '<div class="verdict missed" role="status"><span class="icon"' in text
    assert ">✗</span>" in text


def test_a_report_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_report(tmp_path, report("some"))


def test_a_device_or_fifo_is_written_and_not_replaced(tmp_path: Path) -> None:
    """As root, `--report /dev/null` would replace it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_text("utf-8")))
    reader.start()
    write_report(fifo, report("no chart"))
    reader.join()
    assert fifo.is_fifo()
    assert found[0].startswith("<!doctype html>")
