"""A study as one HTML file: the table, the remarks and the plots, and nothing to load."""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from penstock.errors import InputError, Problem, SimulationError
from penstock.simulate.metrics import percentile, served_requests
from penstock.simulate.replay import require_environment
from penstock.simulate.report import arrival_of, remarks, sustained_load_line, table
from penstock.simulate.study import Row, SustainedLoad
from penstock.workload.load import LoadedWorkload

CHILD = Path(__file__).parent / "plots_child.py"
POINTS = 101
PAGE = Template("""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>$title</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; background: #f4f4f4; padding: .8rem } svg { max-width: 100%; height: auto }
</style>
<h1>$title</h1>
<p>Simulated, not measured: Dynamo's router and schedulers in virtual time, with measured kernels.
<pre>$table</pre>
$held
<ul>
$remarks
</ul>
$plots
</html>
""")
Plot = Mapping[str, Any]


def write_page(
    path: Path, rows: Sequence[Row], held: Sequence[SustainedLoad], loaded: LoadedWorkload
) -> None:
    """InputError where the file cannot be written."""
    lines = "".join(f"<li>{_told(line)}\n" for line in remarks(rows))
    said = "".join(f"<p>{_told(sustained_load_line(found, loaded))}\n" for found in held)
    page = PAGE.substitute(
        title=_told(f"{loaded.name}: {'each at its load' if held else arrival_of(loaded)}"),
        table=_told("\n".join(table(rows))),
        held=said,
        remarks=lines,
        plots="\n".join(_drawn(list(_plots(rows, held)))),
    )
    try:
        path.write_text(page)
    except OSError as error:
        problem = Problem(file=str(path), message=f"cannot be written: {error.strerror or error}")
        raise InputError(problem) from None


def _told(text: str) -> str:
    return html.escape(text.strip(), quote=False)


def _drawn(plots: Sequence[Plot]) -> list[str]:
    command = [str(require_environment()), "-I", str(CHILD)]
    done = subprocess.run(
        command, input=json.dumps(plots), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SimulationError(f"the plots could not be drawn: {last}")
    return list(json.loads(done.stdout))


def _plots(rows: Sequence[Row], held: Sequence[SustainedLoad]) -> Iterator[Plot]:
    if held:
        yield _against_load("TTFT p99", "ttft_p99_ms", held)
        yield _against_load("ITL p50", "itl_p50_ms", held)
    yield _plot(
        "Time between tokens: share of requests below",
        "ms, a request's mean",
        "share of requests",
        [_distribution(row) for row in rows],
    )
    for row in rows:
        if row.replayable.planner:
            yield _workers(row)
        yield from _over_time(row)


def _plot(title: str, x: str, y: str, series: Sequence[Plot], **more: bool) -> Plot:
    return {"title": title, "x": x, "y": y, "series": series, "log": False, "steps": False, **more}


def _against_load(what: str, figure: str, held: Sequence[SustainedLoad]) -> Plot:
    series = [
        {
            "name": found.rows[0].replayable.name,
            "x": [row.metrics[0].request_rate for row in found.rows],
            "y": [max(0.01, getattr(row.metrics[0], figure)) for row in found.rows],
        }
        for found in held
    ]
    return _plot(f"{what} against load", "requests a second", "ms", series, log=True)


def _distribution(row: Row) -> Plot:
    gaps = [one.itl_ms for one in served_requests(row.answers[0]) if one.itl_ms is not None]
    shares = [number / (POINTS - 1) for number in range(POINTS)]
    x = [percentile(gaps, share) for share in shares]
    return {"name": row.replayable.name, "x": x, "y": shares}


def _workers(row: Row) -> Plot:
    """Of the first seed, to its end: those that answer, and all that hold GPUs."""
    scaling = row.scalings[0]
    series = []
    for pool, steps in zip(row.replayable.pools, scaling.steps, strict=True):
        seconds = [*(step.at_ms / 1000 for step in steps), scaling.end_ms / 1000]
        for what in ("serving", "held"):
            workers = [getattr(step, what) for step in steps]
            name = "+".join(pool.names)
            told = f"{name}, {'that answer' if what == 'serving' else 'that hold GPUs'}"
            series.append({"name": told, "x": seconds, "y": [*workers, workers[-1]]})
    return _plot(f"{row.replayable.name}: workers", "seconds", "workers", series, steps=True)


def _over_time(row: Row) -> Iterator[Plot]:
    samples = row.answers[0]["samples"]
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
    yield _plot(f"{name}: requests", "seconds", "requests", requests, steps=True)
    cache = [
        {"name": name, "x": seconds, "y": [100 * s[pool]["cache"] for s in samples]}
        for pool, name in pools.items()
    ]
    yield _plot(f"{name}: KV cache in use", "seconds", "%", cache, steps=True)
