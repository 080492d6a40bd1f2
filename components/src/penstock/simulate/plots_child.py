"""Draws plots as SVG in the environment `sim`, which has matplotlib. Reads and writes JSON.

A plot has title, x, y (the labels) and series of name, x, y and style (options of matplotlib).
Optional: log (an axis), bars (y has the names of bars to x), limit (name and x of a line).
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's
BAR, FRAME = 0.4, 1.0  # height in inches of a bar, and of what is around the bars


def main() -> None:
    print(json.dumps([_svg(plot) for plot in json.load(sys.stdin)]))


def _svg(plot: dict[str, Any]) -> str:
    import matplotlib as mpl  # type: ignore[import-not-found]

    mpl.use("svg")
    # Equal input makes an equal file, and text stays text.
    mpl.rcParams |= {"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.size": 9}
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLORS)
    from matplotlib import pyplot

    bars = max((len(one["y"]) for one in plot["series"]), default=0) if plot.get("bars") else 0
    height = FRAME + BAR * bars if bars else 3.2
    figure, axes = pyplot.subplots(figsize=(6.4, height), layout="constrained")
    draw = _draw_bars if bars else _draw_lines
    draw(axes, plot)
    if limit := plot.get("limit"):
        axes.axvline(limit["x"], label=limit["name"], color="0.4", linestyle="--")
    axes.set(title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
    axes.grid(visible=True, alpha=0.3)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    pyplot.close(figure)
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def _draw_lines(axes: Any, plot: dict[str, Any]) -> None:
    for series in plot["series"]:
        axes.plot(series["x"], series["y"], label=series["name"], **series["style"])
    log = plot.get("log")
    if log:
        _make_logarithmic(axes, log)
    if log != "y":
        axes.update_datalim([(0, 0)], updatex=False)  # so that the margin is a share of all
        axes.autoscale_view()
        axes.set_ylim(bottom=0)


def _make_logarithmic(axes: Any, name: str) -> None:
    from matplotlib.ticker import LogFormatter  # type: ignore[import-not-found]

    axes.set(**{f"{name}scale": "log"})
    axis = getattr(axes, f"{name}axis")
    axis.set_major_formatter(LogFormatter())  # 10 and 20 instead of 10¹ and 2 × 10¹
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.4)))


def _draw_bars(axes: Any, plot: dict[str, Any]) -> None:
    for series in plot["series"]:
        drawn = axes.barh(series["y"], series["x"], height=0.6, **series["style"])
        axes.bar_label(drawn, fmt="%.1f", padding=3)
    axes.invert_yaxis()  # the first bar is on top
    axes.margins(x=0.12)  # for the numbers at the bars
    axes.set_xlim(left=0)


if __name__ == "__main__":
    main()
