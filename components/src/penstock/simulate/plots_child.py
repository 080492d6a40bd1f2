"""Draws plots as SVG in the environment `sim`, which has matplotlib. Reads and writes JSON.

A plot has title, x, y (the labels), log (of y), steps, and series of name, x and y.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's


def main() -> None:
    print(json.dumps([_svg(plot) for plot in json.load(sys.stdin)]))


def _svg(plot: dict[str, Any]) -> str:
    import matplotlib as mpl  # type: ignore[import-not-found]

    mpl.use("svg")
    # Equal input makes an equal file, and text stays text.
    mpl.rcParams |= {"svg.hashsalt": "penstock", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    for number, series in enumerate(plot["series"]):
        color = COLORS[number % len(COLORS)]
        style = {"drawstyle": "steps-post"} if plot["steps"] else {"marker": "o", "markersize": 3}
        axes.plot(series["x"], series["y"], label=series["name"], color=color, **style)
    if plot["log"]:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
    axes.grid(visible=True, alpha=0.3)
    if len(plot["series"]) > 1:
        axes.legend(fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


if __name__ == "__main__":
    main()
