"""Repeats two cases of `router_settings.py` on live twins with eight workers.

python benchmarks/router_twin.py   Writes results/router_twin.json, and skips cases that the file
has; needs the environment sim and results/router_settings.json, which has the rate and the settings
that `plan --router` recommends. Two twins run at the same time, one with Dynamo's default settings
and one with those. They receive the same held-out requests, one twin after the other, in
alternating order. `ratio` is the default's p90 of TTFT divided by that of the other twin, over the
requests after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from penstock.drill.graph_process import GraphProcess
from penstock.simulate.window import ServedRequest, percentile
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload
from report import RESULTS, write_result
from router_settings import AGGREGATED, HELD_OUT_SEED, Case, workload_of
from twin import own_comparison, running, served, simulated

NAME = "router_twin"
GRAPH = "8xb200"  # of router_settings.py
CASES = tuple(
    Case(kind=kind, graph=GRAPH, load=load)
    for kind, load in (("long documents", 0.7), ("applications", 0.95))
)
SAMPLES, REQUESTS = 3, 400
WARM_UP = 0.25  # share of the requests
BUSY = 12.0  # requests/s of wall time; the twin then uses about one core
ONE_FRONTEND = ("frontend.replicas=1",)


def samples(loaded: LoadedWorkload) -> Iterator[tuple[Request, ...]]:
    """Of other seeds than those that `tune` used."""
    for number in range(SAMPLES):
        requests = loaded.requests(HELD_OUT_SEED + number)[:REQUESTS]
        begin = requests[0].at_ms or 0.0
        yield tuple(replace(r, at_ms=(r.at_ms or 0.0) - begin) for r in requests)


def p90(run: Sequence[ServedRequest]) -> float:
    """Of TTFT in milliseconds of simulated time, in order of arrival without the warm-up."""
    in_order = sorted(run, key=lambda one: one.arrived_ms)
    return percentile([one.ttft_ms for one in in_order[round(len(run) * WARM_UP) :]], 0.9)


def speed_of(requests: Sequence[Request]) -> float:
    rate = len(requests) / (requests[-1].at_ms or 1.0) * 1000
    return round(min(1.0, BUSY / rate), 3)


def run(case: Case, known: Mapping[str, Any], graph: Path) -> dict[str, Any]:
    recommended = known["cases"][str(case)]
    some = list(samples(workload_of(case.kind, recommended["rate"])))
    speed = min(speed_of(requests) for requests in some)
    settings = recommended["settings"].items()
    tuned = tuple(f"router.{k}={v}" for k, v in settings if v is not None)
    sets = {"default": ONE_FRONTEND, "tuned": ONE_FRONTEND + tuned}
    with (
        running(graph, sets["default"], speed) as default,
        running(graph, sets["tuned"], speed) as other,
    ):
        twins = {"default": default, "tuned": other}
        for up in twins.values():
            own_comparison(up)
        rows = [
            sample_row(number, requests, twins, speed) | replayed(graph, sets, requests)
            for number, requests in enumerate(some)
        ]
    return {
        "settings": recommended["settings"],
        "ratio_in_router_settings": recommended["p90_ratio"],
        "speed": speed,
        "requests": REQUESTS,
        "ratio_live": round(geometric_mean(r["live_ratio"] for r in rows), 3),
        "ratio_replayed": round(geometric_mean(r["replayed_ratio"] for r in rows), 3),
        "samples": rows,
    }


def sample_row(
    number: int, requests: tuple[Request, ...], twins: Mapping[str, GraphProcess], speed: float
) -> dict[str, Any]:
    order = list(twins)[:: 1 if number % 2 == 0 else -1]
    runs = {name: served(twins[name], requests, speed, f"sample {number}") for name in order}
    row = ratios({name: runs[name] for name in twins}, "live")
    late = max(
        (one.arrived_ms - (r.at_ms or 0.0)) / speed
        for some in runs.values()
        for one, r in zip(some, requests, strict=True)
    )
    return row | {"sent_late_wall_ms": round(late, 1)}


def replayed(
    graph: Path, sets: Mapping[str, tuple[str, ...]], requests: tuple[Request, ...]
) -> dict[str, Any]:
    return ratios(
        {name: simulated(graph, some, requests) for name, some in sets.items()}, "replayed"
    )


def ratios(runs: Mapping[str, Sequence[ServedRequest]], how: str) -> dict[str, Any]:
    default, tuned = p90(runs["default"]), p90(runs["tuned"])
    return {
        f"{how}_ttft_p90_ms": {"default": round(default, 1), "tuned": round(tuned, 1)},
        f"{how}_ratio": round(default / tuned, 3),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    known = json.loads((RESULTS / "router_settings.json").read_text())
    file = RESULTS / f"{NAME}.json"
    found: dict[str, Any] = json.loads(file.read_text())["cases"] if file.exists() else {}
    with tempfile.TemporaryDirectory(prefix="penstock-twin-") as folder:
        graph = Path(folder) / "twin.yaml"
        graph.write_text(AGGREGATED)
        for case in CASES:
            if str(case) not in found:
                found[str(case)] = run(case, known, graph)
                write_result(NAME, f"python benchmarks/{NAME}.py", {"cases": found})


if __name__ == "__main__":
    main()
