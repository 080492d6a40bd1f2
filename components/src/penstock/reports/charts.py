"""Charts of the reports, as figures of Plotly: plain data, which the page draws.

Colors are those of Okabe and Ito, which readers with a color vision deficiency can distinguish.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.reports.samples import nearest_rank, quantiles
from penstock.text.numbers import limit_text

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
GOOD, BAD, LIMIT, GRAY = "#009e73", "#d55e00", "#cc3311", "#808a94"
MOST_NAMES = 12  # lines whose names fit a legend
LONGEST_NAME = 38  # characters
HEIGHT, ROW = 340, 24  # pixels of a chart, and of a row of one with names on its axis
SPREAD = 10.0  # largest value ÷ median, from which on an axis is logarithmic
MARKED = (0.5, 0.9, 0.99)
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


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]
    height: int = HEIGHT
    """In pixels."""


def plain(text: str) -> str:
    """Text that Plotly shows as it is, instead of reading tags in it."""
    return html.escape(text, quote=False)


def shorter(name: str) -> str:
    """With an ellipsis in the middle if it is too long for a legend."""
    half = (LONGEST_NAME - 1) // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}"


def wrapped(text: str, width: int = 60) -> str:
    """For a hover label, which has no width of its own."""
    lines = [text[start : start + width] for start in range(0, len(text), width)]
    return "<br>".join(map(plain, lines))


def color_of(number: int) -> str:
    return COLORS[number % len(COLORS)]


def dash_of(number: int) -> str:
    return DASHES[number // len(COLORS) % len(DASHES)]


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "automargin": True, "zeroline": False, **more}


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """To six digits, which keep a file small."""
    return [None if value is None else float(f"{value:.6g}") for value in values]


def line(
    name: str,
    x: Sequence[float],
    y: Sequence[float | None],
    number: int,
    hover: str,
    **more: Any,
) -> Trace:
    """``number``: of its color and dash. ``hover``: a template of Plotly with units."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(shorter(name)),
        "meta": wrapped(name),
        "x": rounded(x),
        "y": rounded(y),
        "line": {"color": color_of(number), "dash": dash_of(number), "width": 2},
        "hovertemplate": f"{hover}<extra>%{{meta}}</extra>",
        **more,
    }


def limit_line(name: str, at: float, *, top: float = 100.0) -> Trace:
    """A vertical line from 0 to ``top``."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "x": [at, at],
        "y": [0, top],
        "line": {"color": LIMIT, "dash": "dash", "width": 2},
        "hovertemplate": f"{plain(name)}<extra></extra>",
    }


def horizontal_limit(name: str, at: float, begin: float, end: float) -> Trace:
    trace = limit_line(name, at)
    return {**trace, "x": rounded([begin, end]), "y": [at, at]}


def distribution(
    title: str,
    latency: str,
    samples: Mapping[str, Sequence[float]],
    limit_ms: float | None,
) -> Chart | None:
    """Cumulative distribution of a latency in ms, with its percentiles and the SLO marked.

    ``samples``: by what they are of. With many of them, only the percentiles are shown. None
    without any.
    """
    shown = {name: sorted(values) for name, values in samples.items() if values}
    if not shown:
        return None
    if len(shown) > MOST_NAMES:
        return percentile_chart(title, latency, shown, limit_ms)
    traces: list[Trace] = []
    for number, (name, values) in enumerate(shown.items()):
        traces += _cumulative(name, values, number, latency)
    if limit_ms is not None:
        traces.append(limit_line(f"SLO: {latency} ≤ {limit_text(limit_ms)} ms", limit_ms, top=100))
    layout = {
        **FRAME,
        "xaxis": axis(f"{latency} (ms)", **scale_of(shown.values(), limit_ms)),
        "yaxis": axis("share of requests (%)", range=[0, 102], tickvals=[0, 25, 50, 75, 90, 99]),
    }
    return Chart(title=title, data=traces, layout=layout)


def _cumulative(name: str, values: Sequence[float], number: int, latency: str) -> list[Trace]:
    x, shares = quantiles(values)
    hover = f"%{{y:.4~g}} % of requests: {latency} ≤ %{{x:,.4~g}} ms"
    marks = [nearest_rank(values, share) for share in MARKED]
    own = line(name, x, [100 * share for share in shares], number, hover, legendgroup=name)
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(marks),
        "y": [100 * share for share in MARKED],
        "meta": wrapped(name),
        "text": [f"p{limit_text(share * 100)}" for share in MARKED],
        "marker": {"size": 8, "color": color_of(number), "symbol": SYMBOLS[number % len(SYMBOLS)]},
        "hovertemplate": f"{latency} %{{text}}: %{{x:,.4~g}} ms<extra>%{{meta}}</extra>",
        "showlegend": False,
        "legendgroup": name,
    }
    return [{**own, "line": {**own["line"], "shape": "hv"}}, points]


def percentile_chart(
    title: str, latency: str, samples: Mapping[str, Sequence[float]], limit_ms: float | None
) -> Chart:
    """A row for each name, with its percentiles. ``samples``: sorted."""
    names = [plain(shorter(name)) for name in samples]
    traces: list[Trace] = []
    for number, share in enumerate(MARKED):
        values = [nearest_rank(one, share) for one in samples.values()]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"p{limit_text(share * 100)}",
                "x": rounded(values),
                "y": list(range(len(names))),
                "customdata": [wrapped(name) for name in samples],
                "marker": {"size": 9, "color": color_of(number), "symbol": SYMBOLS[number]},
                "hovertemplate": "%{x:,.4~g} ms<extra>%{customdata}</extra>",
            }
        )
    if limit_ms is not None:
        name = f"SLO: {latency} ≤ {limit_text(limit_ms)} ms"
        traces.append({**limit_line(name, limit_ms), "y": [-0.5, len(names) - 0.5]})
    layout = {
        **FRAME,
        "xaxis": axis(f"{latency} (ms)", **scale_of(samples.values(), limit_ms)),
        "yaxis": names_axis(names),
    }
    return Chart(title=title, data=traces, layout=layout, height=height_of(len(names)))


def names_axis(names: Sequence[str]) -> dict[str, Any]:
    """Of rows 0, 1, …, the first on top. ``names``: as `plain` returns them."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
        "zeroline": False,
    }


def height_of(rows: int) -> int:
    return 110 + ROW * max(rows, 3)


def scale_of(samples: Iterable[Sequence[float]], limit: float | None) -> dict[str, Any]:
    """A logarithmic axis if the values and the limit differ much, else one that begins at 0.
    ``samples``: each sorted."""
    every = list(samples)
    highest = max([one[-1] for one in every] + ([] if limit is None else [limit]))
    middle = min(one[len(one) // 2] for one in every)
    if min(one[0] for one in every) > 0 and highest > SPREAD * middle:
        return {"type": "log"}
    return {"rangemode": "tozero"}


def over_time(title: str, unit: str, traces: Sequence[Trace], **layout: Any) -> Chart:
    """``traces``: with seconds as x; ``unit``: of y, the title of its axis."""
    frame = {
        **FRAME,
        "xaxis": axis("time (s)", rangemode="tozero"),
        "yaxis": axis(unit, rangemode="tozero"),
        **layout,
    }
    return Chart(title=title, data=list(traces), layout=frame)


def steps(
    name: str, x: Sequence[float], y: Sequence[float | None], number: int, unit: str
) -> Trace:
    """A value that stays until the next one."""
    trace = line(name, x, y, number, f"%{{y:,.4~g}} {unit} at %{{x:.4~g}} s")
    return {**trace, "line": {**trace["line"], "shape": "hv"}}


def curve(
    name: str, x: Sequence[float], y: Sequence[float | None], number: int, unit: str
) -> Trace:
    return line(name, x, y, number, f"%{{y:,.4~g}} {unit} at %{{x:.4~g}} s")


def stacked(name: str, x: Sequence[float], y: Sequence[float], number: int, unit: str) -> Trace:
    return {
        "type": "bar",
        "name": plain(shorter(name)),
        "meta": wrapped(name),
        "x": rounded(x),
        "y": rounded(y),
        "marker": {"color": color_of(number)},
        "hovertemplate": f"%{{y}} {unit} at %{{x:.4~g}} s<extra>%{{meta}}</extra>",
    }


def points(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    texts: Sequence[str],
    hover: str,
    marker: Mapping[str, Any],
    *,
    shows_texts: bool = False,
) -> Trace:
    """``texts``: of each point, on hover; also next to it with ``shows_texts``."""
    return {
        "type": "scatter",
        "mode": "markers+text" if shows_texts else "markers",
        "name": plain(shorter(name)),
        "x": rounded(x),
        "y": rounded(y),
        "text": [plain(shorter(text)) for text in texts] if shows_texts else [],
        "customdata": [wrapped(text) for text in texts],
        "textposition": "top center",
        "cliponaxis": False,
        "marker": {"size": 11, **marker},
        "hovertemplate": f"<b>%{{customdata}}</b><br>{hover}<extra></extra>",
    }
