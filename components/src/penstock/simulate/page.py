"""A study as one self-contained HTML file: the table, the notes and the plots."""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from penstock.errors import InputError, Problem, SimulationError
from penstock.html_mark import HTML_MARK
from penstock.simulate.metrics import percentile, served_requests
from penstock.simulate.replay import require_environment
from penstock.simulate.report import marked, notes, sustained_load_line, table, title
from penstock.simulate.study import Row, SustainedLoad
from penstock.workload.load import LoadedWorkload

CHILD = Path(__file__).parent / "plots_child.py"
POINTS = 101
PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8">$mark<title>$title</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; background: #f4f4f4; padding: .8rem } svg { max-width: 100%; height: auto }
</style>
<h1>$title</h1>
<p>Simulated, not measured: Dynamo's router and schedulers in virtual time, with measured kernels.
<pre>$table</pre>
$sustained
<ul>
$notes
</ul>
$plots
</html>
""")
Plot = Mapping[str, Any]


def write_page(
    path: Path, rows: Sequence[Row], sustained: Sequence[SustainedLoad], loaded: LoadedWorkload
) -> None:
    """InputError if the file cannot be written."""
    items = "".join(f"<li>{_escaped(line)}\n" for line in notes(rows))
    lines = (sustained_load_line(load, loaded) for load in sustained)
    page = PAGE.substitute(
        mark=HTML_MARK,
        title=_escaped(title(loaded, sustained)),
        table=_escaped("\n".join(table(marked(rows)))),
        sustained="".join(f"<p>{_escaped(line)}\n" for line in lines),
        notes=items,
        plots="\n".join(_drawn(list(_plots(rows, sustained)))),
    )
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        problem = Problem(file=str(path), message=f"cannot be written: {error.strerror or error}")
        raise InputError(problem) from None


def _escaped(text: str) -> str:
    return html.escape(text.strip(), quote=False)


def _drawn(plots: Sequence[Plot]) -> list[str]:
    command = [str(require_environment()), "-I", str(CHILD)]
    done = subprocess.run(
        command, input=json.dumps(plots), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SimulationError(f"drawing the plots failed: {last}")
    return list(json.loads(done.stdout))


def _plots(rows: Sequence[Row], sustained: Sequence[SustainedLoad]) -> Iterator[Plot]:
    if sustained:
        yield _by_rate("TTFT p99", "ttft_p99_ms", sustained)
        yield _by_rate("ITL p50", "itl_p50_ms", sustained)
    yield _plot(
        "Distribution of ITL",
        "mean ITL of a request (ms)",
        "cumulative share of requests",
        [_distribution(row) for row in rows],
    )
    for row in rows:
        if row.replayable.planner:
            yield _workers(row)
        yield from _over_time(row)


def _plot(title: str, x: str, y: str, series: Sequence[Plot], **more: bool) -> Plot:
    return {"title": title, "x": x, "y": y, "series": series, "log": False, "steps": False, **more}


def _by_rate(what: str, metric: str, sustained: Sequence[SustainedLoad]) -> Plot:
    series = [
        {
            "name": load.rows[0].replayable.name,
            "x": [row.metrics[0].request_rate for row in load.rows],
            "y": [max(0.01, getattr(row.metrics[0], metric)) for row in load.rows],
        }
        for load in sustained
    ]
    return _plot(f"{what} by request rate", "requests/s", "ms", series, log=True)


def _distribution(row: Row) -> Plot:
    gaps = [one.itl_ms for one in served_requests(row.results[0]) if one.itl_ms is not None]
    shares = [number / (POINTS - 1) for number in range(POINTS)]
    x = [percentile(gaps, share) for share in shares]
    return {"name": row.replayable.name, "x": x, "y": shares}


def _workers(row: Row) -> Plot:
    """Ready and allocated workers of the first seed over time."""
    scaling = row.scalings[0]
    series = []
    for pool, steps in zip(row.replayable.pools, scaling.steps, strict=True):
        seconds = [*(step.at_ms / 1000 for step in steps), scaling.end_ms / 1000]
        name = "+".join(pool.names)
        serving = [step.serving for step in steps]
        allocated = [step.allocated for step in steps]
        for state, workers in (("ready", serving), ("allocated", allocated)):
            line = {"name": f"{name}, {state}", "x": seconds, "y": [*workers, workers[-1]]}
            series.append(line)
    return _plot(f"{row.replayable.name}: workers", "time (s)", "workers", series, steps=True)


def _over_time(row: Row) -> Iterator[Plot]:
    samples = row.results[0]["samples"]
    seconds = [sample["at_ms"] / 1000 for sample in samples]
    pools = {"decode": "+".join(row.replayable.pools[-1].names)}
    if len(row.replayable.pools) > 1:
        pools = {"prefill": "+".join(row.replayable.pools[0].names), **pools}
    requests = [
        {"name": f"{name}, {what}", "x": seconds, "y": [s[pool][what] for s in samples]}
        for pool, name in pools.items()
        for what in ("running", "waiting")
    ]
    name = row.replayable.name
    yield _plot(f"{name}: requests", "time (s)", "requests", requests, steps=True)
    cache = [
        {"name": name, "x": seconds, "y": [100 * s[pool]["cache"] for s in samples]}
        for pool, name in pools.items()
    ]
    yield _plot(f"{name}: KV cache in use", "time (s)", "%", cache, steps=True)
