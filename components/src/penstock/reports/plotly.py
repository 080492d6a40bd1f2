"""Charts of reports as figures of Plotly: plain data, which the page draws.

Colors are those of Okabe and Ito, which readers with a color vision deficiency can distinguish.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from penstock.reports.model import LIMIT, Axis, Band, Chart, Limit, Mark, Series

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
BAND_COLOR = "#cc79a7"  # of a band with a text
WINDOW_COLOR, WINDOW_OPACITY = "#0072b2", 0.08  # of a band without a text
MOST_NAMES = 12  # lines whose names fit a legend
LONGEST_NAME = 38  # characters
HOVER_WIDTH = 60  # characters
ABOVE = 1.08  # × the highest value: where the marks of bands are
FRAME: Mapping[str, Any] = {
    "autosize": True,
    "margin": {"l": 56, "r": 18, "t": 10, "b": 48},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "font": {"size": 12, "family": "system-ui, sans-serif"},
    "hovermode": "closest",
    "hoverlabel": {"namelength": -1, "align": "left"},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
}
Trace = dict[str, Any]


def figure(chart: Chart) -> dict[str, Any]:
    traces = [_trace(chart, series, number) for number, series in enumerate(chart.series)]
    traces += [_limit(chart, limit) for limit in chart.limits]
    traces += _band_marks(chart)
    layout: dict[str, Any] = {**FRAME, "xaxis": _axis(chart.x), "yaxis": _axis(chart.y)}
    if chart.bands:
        layout["shapes"] = list(map(_shape, chart.bands))
    marks = {series.mark for series in chart.series}
    if Mark.STACK in marks or Mark.ROWS in marks:
        layout["barmode"] = "stack" if Mark.STACK in marks else "overlay"
    if len(chart.series) > MOST_NAMES:  # a legend would be higher than the chart
        layout["showlegend"] = False
    return {"data": traces, "layout": layout}


def plain(text: str) -> str:
    """Text that Plotly shows as it is, instead of reading tags in it."""
    return html.escape(text, quote=False)


def shorter(name: str) -> str:
    """With an ellipsis in the middle if it is too long for a legend."""
    half = (LONGEST_NAME - 1) // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


def wrapped(text: str) -> str:
    """For a hover label, which has no width of its own. Line breaks of ``text`` stay."""
    lines = (
        line[at : at + HOVER_WIDTH]
        for line in text.split("\n")
        for at in range(0, len(line), HOVER_WIDTH)
    )
    return "<br>".join(map(plain, lines))


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """To six digits, which keep a file small."""
    return [None if value is None else float(f"{value:.6g}") for value in values]


def _axis(axis: Axis) -> dict[str, Any]:
    common: dict[str, Any] = {"automargin": True, "zeroline": axis.is_free}
    if axis.names:
        return common | {
            "tickvals": list(range(len(axis.names))),
            "ticktext": [plain(shorter(name)) for name in axis.names],
            "range": [len(axis.names) - 0.5, -0.5],
        }
    unit = f" ({axis.unit})" if axis.title and axis.unit else axis.unit
    common["title"] = {"text": f"{axis.title}{unit}"}
    if axis.ticks:
        common["tickvals"] = list(axis.ticks)
    if axis.is_logarithmic:
        return common | {"type": "log"}
    if axis.limits is not None:
        return common | {"range": list(axis.limits)}
    return common if axis.is_free else common | {"rangemode": "tozero"}


def _trace(chart: Chart, series: Series, position: int) -> Trace:
    number = position if series.style is None else series.style
    color = series.color or COLORS[number % len(COLORS)]
    trace: Trace = {
        "name": plain(shorter(series.name)),
        "meta": wrapped(series.name),
        "x": rounded(series.x),
        "y": rounded(series.y),
        "hovertemplate": _hover(chart, series),
    }
    if series.texts:
        trace["customdata"] = list(map(wrapped, series.texts))
    if series.labels:
        trace |= {"text": [plain(shorter(label)) for label in series.labels], "cliponaxis": False}
    if not series.is_in_legend:
        trace["showlegend"] = False
    if series.errors:
        lower, higher = zip(*series.errors, strict=True)
        sizes = {"array": rounded(higher), "arrayminus": rounded(lower)}
        trace["error_x"] = {"type": "data", "symmetric": False, "color": color, **sizes}
        trace["error_x"]["thickness"] = 1
    return trace | _look(series, number, color)


def _look(series: Series, number: int, color: str) -> Trace:
    """The keys of a trace that depend on how its values are drawn."""
    if series.mark is Mark.STACK:
        return {"type": "bar", "marker": {"color": color}}
    if series.mark is Mark.ROWS:
        bar = {"type": "bar", "orientation": "h", "marker": {"color": color}}
        return bar | ({"textposition": "outside"} if series.labels else {})
    dash = DASHES[number // len(COLORS) % len(DASHES)]
    line = {"color": color, "dash": dash, "width": 2}
    if series.mark is Mark.STEPS:
        line["shape"] = "hv"  # Plotly would connect the points diagonally
    if series.mark in (Mark.LINE, Mark.STEPS):
        return {"type": "scatter", "mode": "lines", "line": line}
    symbols = [*series.symbols] or [SYMBOLS[number % len(SYMBOLS)]]
    marker: Trace = {"size": series.size, "color": color, "line": {"width": 2, "color": color}}
    marker["symbol"] = symbols[0] if len(symbols) == 1 else symbols
    modes = ["lines"] * (series.mark is Mark.DOTTED_LINE) + ["markers"]
    modes += ["text"] * bool(series.labels)
    return {
        "type": "scatter",
        "mode": "+".join(modes),
        "line": line,
        "marker": marker,
        "cliponaxis": False,
        **({"textposition": "top center"} if series.labels else {}),
    }


def _hover(chart: Chart, series: Series) -> str:
    """The text of a point, or else the name of the series, with its values."""
    text = series.hover
    if not text:
        x, y = (f"%{{{axis}:,.4~g}} {getattr(chart, axis).unit}".rstrip() for axis in "xy")
        text = x if chart.y.names else f"{y} at {x}"
    if series.texts:
        return f"<b>%{{customdata}}</b><br>{text}<extra></extra>"
    return f"{text}<extra>%{{meta}}</extra>"


def _limit(chart: Chart, limit: Limit) -> Trace:
    if limit.row is not None:
        ends = [limit.row - 0.4, limit.row + 0.4]
    else:
        ends = _ends(chart, is_vertical=limit.is_vertical)
    at = [limit.at, limit.at]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(limit.name),
        "x": at if limit.is_vertical else rounded(ends),
        "y": rounded(ends) if limit.is_vertical else at,
        "line": {"color": LIMIT, "dash": "dash" if limit.row is None else "solid", "width": 2},
        "hovertemplate": f"{wrapped(limit.name)}<extra></extra>",
    }


def _ends(chart: Chart, *, is_vertical: bool) -> list[float]:
    """Ends of a line across the chart."""
    axis = chart.y if is_vertical else chart.x
    if axis.names:
        return [-0.5, len(axis.names) - 0.5]
    if axis.limits is not None:
        # A share of 102% leaves space above 100%, which a limit must not fill.
        return [axis.limits[0], axis.limits[1] * (0.98 if is_vertical else 1)]
    return [0.0, _highest(chart, is_vertical=is_vertical) * (1.1 if is_vertical else 1)]


def _highest(chart: Chart, *, is_vertical: bool) -> float:
    values = chain.from_iterable(series.y if is_vertical else series.x for series in chart.series)
    return max((value for value in values if value is not None), default=0.0) or 1.0


def _shape(band: Band) -> Trace:
    color, opacity = (BAND_COLOR, 0.3) if band.text else (WINDOW_COLOR, WINDOW_OPACITY)
    place = {"yref": "paper", "x0": band.begin, "x1": band.end, "y0": 0, "y1": 1}
    look = {"fillcolor": color, "opacity": opacity, "line": {"width": 0}, "layer": "below"}
    return {"type": "rect", **place, **look}


def _band_marks(chart: Chart) -> Iterator[Trace]:
    """A mark above each band with a text."""
    bands: Sequence[Band] = [band for band in chart.bands if band.text]
    if not bands:
        return
    top = _highest(chart, is_vertical=True) * ABOVE
    yield {
        "type": "scatter",
        "mode": "markers",
        "name": plain(chart.bands_name),
        "x": rounded((band.begin + band.end) / 2 for band in bands),
        "y": rounded([top] * len(bands)),
        "customdata": [wrapped(band.text) for band in bands],
        "marker": {"symbol": "triangle-down", "size": 11, "color": BAND_COLOR},
        "hovertemplate": "%{customdata}<extra></extra>",
    }
