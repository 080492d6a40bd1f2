"""The frame of the HTML reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.simulate.html_report import bullets, drawn, html_table, plot, series_of, write_html
from tests.simulate.environment import needs_sim


def test_all_texts_are_escaped(tmp_path: Path) -> None:
    path, text = tmp_path / "page.html", "<script>a & b"
    write_html(path, text, bullets([text]) + html_table([[text], [text]]))
    written = path.read_text("utf-8")
    assert "<script>" not in written
    assert written.count("&lt;script&gt;a &amp; b") == 5


def test_a_line_with_fewer_cells_fills_the_table() -> None:
    text = html_table([["graph", "GPUs", "SLO met"], ["a", "1", "99%"], ["b", "not replayed"]])
    assert "<th>graph<th>GPUs<th>SLO met" in text
    assert "<td>a<td>1<td>99%" in text
    assert '<td>b<td colspan="2">not replayed' in text


def test_a_page_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        write_html(tmp_path, "title", "")


@needs_sim
def test_plots_keep_their_texts_and_load_nothing() -> None:
    style = {"linestyle": "none", "marker": "o"}
    points = plot(
        "A & B",
        "ms",
        "tokens/s",
        [series_of("first <1>", [1, 20], [3, 4], style), series_of("second", [2], [5], style)],
        log="x",
        limit={"name": "SLO: 10 ms", "x": 10},
    )
    names = ["scale × 1.5", "scale × 2"]
    bars = plot("Bars", "%", "", [series_of("", [97.25, 3], names, {})], bars=True)
    first, second = drawn([points, bars])
    for text in ("A &amp; B", "first &lt;1&gt;", "second", "SLO: 10 ms"):
        assert f">{text}</text>" in first
    for text in (*names, "97.2"):
        assert f">{text}</text>" in second
    assert first.startswith("<svg")
    assert not re.search(r"""(src|href)=["']?http""", first + second)
