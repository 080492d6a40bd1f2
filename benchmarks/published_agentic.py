"""Compares NVIDIA's three agentic rows of gpt-oss-120b with predictions and with a twin.

python benchmarks/published_agentic.py [predict | twin] [--row NAME] [--short]
    Writes results/published_agentic.json after each row, and docs/published-agentic.md; keeps the
    rows that it has. Needs the environments sim, aiperf and dynamo. --short: few requests, and the
    result only on stdout.
python benchmarks/published_agentic.py report [--check]
    Writes the page. With --check: fails if it is out of date.

A twin on two cores cannot serve eight GPUs, so it runs a part of the deployment, slower than real
time. Its figures are times of the simulation: wall time × speed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from penstock.bench.aiperf import Endpoint, Traffic
from penstock.bench.run import Sent, send
from penstock.bench.trace_file import keyed
from penstock.drill.graph_process import GraphProcess
from penstock.errors import SimulationError
from penstock.simulate.replay import Replays, environment_cache, require_environment
from penstock.workload.load import LoadedWorkload
from published.agentic import (
    ACCEPTANCE,
    ROWS,
    Row,
    figures,
    graph_of,
    predicted,
    variants,
    workload_of,
)
from published.agentic_page import with_tables
from published.replays import ROOT
from report import RESULTS, update_page, write_result

NAME = "published_agentic"
RESULT, PAGE = RESULTS / f"{NAME}.json", ROOT / "docs" / "published-agentic.md"
COMMAND = f"python benchmarks/{NAME}.py"
COMPLETE = {"predicted", "predicted_part", "variants", "twin"}  # keys of a row of the result
START_S, REQUEST_S = 600.0, 3600.0
SHORT_SHARE, SHORT_SPEED = 1 / 8, 0.5  # of the twin's requests and concurrency


def predict(row: Row, replays: Replays) -> None:
    """Of the row, of the part that the twin runs, and with other assumptions."""
    part = workload_of(row, share=row.scaled.share)
    update(row, {"predicted": predicted(graph_of(row), workload_of(row), replays)})
    update(row, {"predicted_part": predicted(graph_of(row, row.scaled.sets), part, replays)})
    found: dict[str, Any] = {}
    for name, make in variants(row).items():
        began = time.monotonic()
        try:
            found[name] = predicted(*make(row), replays)
        except SimulationError as error:
            found[name] = {"error": error.problems[0].message}
        update(row, {"variants": found})
        say(f"{row.name}, {name}: {time.monotonic() - began:.0f} s")


def twin_workload(row: Row, *, short: bool) -> LoadedWorkload:
    scaled = row.scaled
    loaded = workload_of(row, share=scaled.share, requests=scaled.requests)
    return shortened(loaded) if short else loaded


def shortened(loaded: LoadedWorkload) -> LoadedWorkload:
    workload = loaded.workload
    small = workload.scaled(SHORT_SHARE).with_requests(
        max(1, round((workload.requests or 0) * SHORT_SHARE))
    )
    return loaded.with_workload(small)


def measured(row: Row, replays: Replays, *, short: bool) -> dict[str, Any]:
    """The twin, and the prediction of the same requests. The mocker has no time of a draft model,
    so neither has this prediction."""
    loaded = twin_workload(row, short=short)
    speed = SHORT_SPEED if short else row.scaled.speed
    graph = graph_of(row, row.scaled.sets, prices_draft=False)
    expected = predicted(graph, loaded, replays)
    began = time.monotonic()
    sent = served_by_twin(row, loaded, speed)
    (records,) = sent.records
    return {
        "sets": row.scaled.sets,
        "gpus": graph.gpus,
        "concurrency": loaded.workload.concurrency,
        "speed": speed,
        "wall_s": round(time.monotonic() - began),
        "failed": len(records.failed),
        "unsent": records.unsent,
        "interrupted": sent.interrupted,
        "cpu_share": round(sent.cpu_share, 2),
        "predicted": expected,
        "measured": figures(list(records.served.values()), graph.gpus),
    }


def served_by_twin(row: Row, loaded: LoadedWorkload, speed: float) -> Sent:
    with tempfile.TemporaryDirectory(prefix="penstock-published-") as scratch:
        folder = Path(scratch)
        with running(row, folder, speed) as up:
            url = up.wait_ready(START_S).removesuffix("/v1")
            say(f"{row.name}: the twin runs at {url}")
            traffic = Traffic(
                endpoint=Endpoint(url=url, model=up.state()["models"][0], speed=speed),
                requests=keyed(loaded.requests(0)),
                concurrency=loaded.workload.concurrency,
                folder=folder,
                timeout_s=REQUEST_S,
            )
            return send([traffic], progress)


@contextmanager
def running(row: Row, folder: Path, speed: float) -> Iterator[GraphProcess]:
    options = ["--engine", "mocker", "--timing", "model", "--speed", f"{speed:g}", "--port", "0"]
    options += ["--acceptance", ACCEPTANCE]
    for expression in row.scaled.sets:
        options += ["--set", expression]
    with GraphProcess(row.graph, folder, options) as up:
        yield up


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_say_once = cache(say)


def progress(text: str, done: int | None = None, total: int | None = None) -> None:
    if done and (done == total or done % 50 == 0):
        _say_once(f"{text}: {done} of {total}")


def results() -> dict[str, Any]:
    if not RESULT.exists():
        return {}
    rows: dict[str, Any] = json.loads(RESULT.read_text())["rows"]
    return rows


def update(row: Row, found: dict[str, Any]) -> None:
    known = results()
    base = {"title": row.title, "gpus": row.gpus, "concurrency": row.concurrency}
    known[row.name] = base | {"published": row.published} | known.get(row.name, {}) | found
    ordered = {one.name: known[one.name] for one in ROWS if one.name in known}
    write_result(NAME, COMMAND, {"acceptance": ACCEPTANCE, "rows": ordered}, show=False)


def report(*, check: bool) -> int:
    rows = results()
    if missing := [row.name for row in ROWS if not set(rows.get(row.name, {})) >= COMPLETE]:
        say(f"no page without complete results of {', '.join(missing)}")
        return 1
    return update_page(PAGE, with_tables(PAGE.read_text(), rows), check=check)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", nargs="?", choices=["predict", "twin", "report"])
    parser.add_argument("--row", choices=[row.name for row in ROWS], help="only this row")
    parser.add_argument("--short", action="store_true", help="few requests, print the result")
    parser.add_argument("--check", action="store_true", help="with report: only compare the page")
    args = parser.parse_args()
    if args.step == "report":
        return report(check=args.check)
    rows = [row for row in ROWS if args.row in (None, row.name)]
    with Replays(environment_cache(require_environment())) as replays:
        for row in rows:
            if args.short:
                print(json.dumps({row.name: measured(row, replays, short=True)}, indent=1))
                continue
            if args.step != "twin":
                predict(row, replays)
            if args.step != "predict" and "twin" not in results().get(row.name, {}):
                update(row, {"twin": measured(row, replays, short=False)})
    return 0 if args.short else report(check=False)


if __name__ == "__main__":
    sys.exit(main())
