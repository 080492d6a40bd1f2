"""The frame of the HTML reports of `simulate` and `plan`: one file that loads nothing else.

Plots are drawn in the environment `sim` (`plots_child.py`).
"""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from penstock.errors import InputError, Problem, SimulationError
from penstock.html_mark import HTML_MARK
from penstock.simulate.replay import require_environment

CHILD = Path(__file__).parent / "plots_child.py"
# The greys are translucent, and plots have no background, so that both color schemes are readable.
PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8">$mark<title>$title</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 14px } .wide { overflow-x: auto; margin: 1em 0 }
th, td { border-bottom: 1px solid #8886; padding: .3rem .35rem; text-align: left }
th, td { vertical-align: top } td:first-child { min-width: 11rem }
td:not(:first-child, [colspan]) { white-space: nowrap } .more { margin-left: 1.5rem }
code { overflow-wrap: anywhere } svg { max-width: 100%; height: auto }
.plots { display: flex; flex-wrap: wrap; gap: 1rem }
.plots svg { flex: 1 1 28rem; min-width: 0; max-width: 38rem }
@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg) } }
</style>
<h1>$title</h1>
$body
</html>
""")
Plot = Mapping[str, Any]  # as `plots_child.py` reads it
Series = Mapping[str, Any]


def write_html(path: Path, title: str, body: str) -> None:
    """Write the file. ``body``: HTML.

    InputError if the file cannot be written.
    """
    page = PAGE.substitute(mark=HTML_MARK, title=escaped(title), body=body)
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        problem = Problem(file=str(path), message=f"cannot be written: {error.strerror or error}")
        raise InputError(problem) from None


def escaped(text: str) -> str:
    return html.escape(text.strip(), quote=False)


def bullets(lines: Iterable[str]) -> str:
    """Lines that begin with a space are further in."""
    tags = ((line, '<li class="more">' if line.startswith(" ") else "<li>") for line in lines)
    items = "\n".join(f"{tag}{escaped(line)}" for line, tag in tags)
    return f"<ul>\n{items}\n</ul>"


def html_table(lines: Sequence[Sequence[str]]) -> str:
    """The first line has the headings. The last cell of a line with fewer cells takes the rest."""
    return f'<div class="wide"><table>\n{"".join(_table_rows(lines))}</table></div>'


def _table_rows(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"<tr>{''.join(f'<th>{escaped(cell)}' for cell in lines[0])}\n"
    for *cells, last in lines[1:]:
        span = len(lines[0]) - len(cells)
        tag = f'<td colspan="{span}">' if span > 1 else "<td>"
        yield f"<tr>{''.join(f'<td>{escaped(cell)}' for cell in cells)}{tag}{escaped(last)}\n"


def series_of(
    name: str, x: Sequence[float], y: Sequence[float] | Sequence[str], style: Mapping[str, Any]
) -> Series:
    """``style``: options of matplotlib's `plot` or `barh`."""
    return {"name": name, "x": x, "y": y, "style": style}


def side_by_side(drawings: Iterable[str]) -> str:
    """As many plots in a line as fit."""
    return f'<div class="plots">{"".join(drawings)}</div>'


def plot(title: str, x: str, y: str, series: Sequence[Series], **more: Any) -> Plot:
    """``x`` and ``y``: labels of the axes. ``more``: see `plots_child.py`."""
    return {"title": title, "x": x, "y": y, "series": series, **more}


def drawn(plots: Sequence[Plot]) -> list[str]:
    """Each plot as an SVG element. SimulationError if the environment fails."""
    command = [str(require_environment()), "-I", str(CHILD)]
    done = subprocess.run(
        command, input=json.dumps(plots), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SimulationError(f"drawing the plots failed: {last}")
    return list(json.loads(done.stdout))
