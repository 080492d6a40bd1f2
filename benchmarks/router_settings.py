"""Compares the settings of `penstock plan --router` with the complete grid, on other traffic.

python benchmarks/router_settings.py [--short] [CASE…]   Writes results/router_settings.json after
each case, and skips cases that the file has.

24 cases, written down before the first run: eight kinds of traffic (long shared prefixes, sessions,
mixtures), each on three graphs at three loads. The load is a share of the rate at which the workers
are busy with prefill if 85 % of the shared tokens are cached. A case is held out if the first byte
of SHA-256 of its name is odd; the objective and the search were changed with the others only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import log
from pathlib import Path
from typing import Any

from penstock.manifests.source import graph_source, open_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays, environment_cache, require_environment
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Study
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, grid, with_settings
from penstock.tune.tuning import (
    LATENCIES,
    TIE,
    Trial,
    Tuning,
    exceeded,
    parts_of,
    ranked,
    ratio_of,
    tune,
    with_enough_requests,
)
from penstock.workload.load import LoadedWorkload, parse_workload
from penstock.workload.request import BLOCK_TOKENS, Request
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
NAME = "router_settings"
AGGREGATED = """
model: {id: openai/gpt-oss-120b, context_length: 131072}
hardware: {gpu: b200}
engine:
  kind: trtllm
  env: {OVERRIDE_QUANT_ALGO: W4A8_MXFP4_MXFP8}
  config:
    max_batch_size: 256
    max_num_tokens: 8192
    enable_chunked_prefill: true
    kv_cache_config: {dtype: fp8}
worker: {replicas: 8, gpus: 1}
"""
VLLM = """
model: {id: openai/gpt-oss-120b, context_length: 131072}
hardware: {gpu: h200}
engine: {kind: vllm, args: [--max-model-len, "131072"]}
worker: {replicas: 8, gpus: 1}
"""
GRAPHS = ("8xh200", "8xb200", "4xh100", "disaggregated")
LOADS = (0.4, 0.7, 0.95)
CACHED = 0.85  # of the shared tokens, at a load of 1
PROBE_TOKENS = 32_768  # of the prompt that shows the prefill rate
SEEDS, SHORT_REQUESTS = 2, 300
HELD_OUT_SEED, HELD_OUT_SEEDS, LOOKED_AT = 100, 3, 6
OTHER_TOKENS = 2048  # of a short request
FIRST_OTHER = 10**9  # above the ids of all sampled blocks
GOOD = 0.9  # of the best gain


@dataclass(frozen=True, kw_only=True)
class Kind:
    prefix: int = 0  # tokens that requests share
    prefixes: int = 1
    own: int  # input tokens of a request besides the prefix, or that a turn adds
    output: int
    cv: float = 0.3  # of the input and the output
    turns: int = 1
    think_s: float = 0.0
    has_others: bool = False  # every second request is short, and shares nothing


KINDS = {
    "long documents": Kind(prefix=49_152, prefixes=64, own=500, output=200, cv=0.01),
    "many documents": Kind(prefix=16_384, prefixes=200, own=1000, output=300),
    "few documents": Kind(prefix=32_768, prefixes=12, own=1500, output=250),
    "applications": Kind(prefix=6144, prefixes=100, own=2000, output=200, cv=0.6),
    "agents": Kind(prefix=12_288, prefixes=8, own=1500, output=300, turns=8, think_s=3),
    "private sessions": Kind(own=3000, output=250, turns=10, think_s=5),
    "documents and chat": Kind(prefix=32_768, prefixes=32, own=1000, output=250, has_others=True),
    "uneven documents": Kind(prefix=20_480, prefixes=40, own=4000, output=300, cv=2),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: str
    graph: str
    load: float

    def __str__(self) -> str:
        return f"{self.kind}, {self.graph}, {self.load:g}"

    @property
    def is_held_out(self) -> bool:
        return sha256(str(self).encode()).digest()[0] % 2 == 1


def cases() -> list[Case]:
    """Three of each kind, so that each graph and each load come with several kinds."""
    return [
        Case(kind=kind, graph=GRAPHS[(number + at) % len(GRAPHS)], load=LOADS[at])
        for at in range(len(LOADS))
        for number, kind in enumerate(KINDS)
    ]


def deployment_of(graph: str) -> Replayable:
    folder = ROOT / "dynamo_graphs"
    if graph == "disaggregated":
        source = open_source(folder / "gpt-oss-120b-b200-disagg.yaml")
    elif graph == "4xh100":
        source = open_source(folder / "gpt-oss-20b-h100.yaml", ["worker.replicas=4"])
    else:
        source = graph_source(VLLM if graph == "8xh200" else AGGREGATED, f"aggregated-{graph}.yaml")
    return replayable(source, Hints())


def workload_of(name: str, rate: float) -> LoadedWorkload:
    """Requests/s, all turns of sessions included."""
    kind = KINDS[name]
    is_session = kind.turns > 1
    document: dict[str, Any] = {
        "input": {"mean": kind.own + (0 if is_session else kind.prefix), "cv": kind.cv},
        "output": {"mean": kind.output, "cv": kind.cv},
        "arrival": {"poisson": rate / kind.turns},
    }
    if not is_session:
        document["input"] |= {"cv": kind.cv * kind.own / (kind.own + kind.prefix)}
    document["input"] |= {"max": 98_304}
    if kind.prefix:
        document["system_prompts"] = {"tokens": kind.prefix, "count": kind.prefixes}
    if is_session:
        document["conversation"] = {"turns": kind.turns, "think": kind.think_s}
    loaded = parse_workload(json.dumps(document), f"{name}.yaml")
    return replace(loaded, change=with_short_ones) if kind.has_others else loaded


def with_short_ones(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Every second request has OTHER_TOKENS that it shares with none."""
    return tuple(
        replace(request, input_tokens=OTHER_TOKENS, blocks=other_blocks(number))
        if number % 2
        else request
        for number, request in enumerate(requests)
    )


def other_blocks(number: int) -> tuple[int, ...]:
    count = OTHER_TOKENS // BLOCK_TOKENS
    return tuple(range(FIRST_OTHER + number * count, FIRST_OTHER + (number + 1) * count))


def rate_of(case: Case, deployment: Replayable, replays: Replays) -> float:
    """Requests/s at the load of the case."""
    kind = KINDS[case.kind]
    probe = parse_workload(
        f"requests: 1\ninput: {PROBE_TOKENS}\noutput: 2\narrival: {{constant: 1}}\n", "probe.yaml"
    )
    (row,) = Study(workload=probe, replays=replays, seeds=1).rows([deployment], None)
    prefill_rate = PROBE_TOKENS / (row.metrics[0].ttft_p50_ms / 1000)
    uncached = kind.own + (1 - CACHED) * kind.prefix
    if kind.has_others:
        uncached = (uncached + OTHER_TOKENS) / 2
    return case.load * deployment.pools[0].replicas * prefill_rate / uncached


def run(case: Case, requests: int | None) -> dict[str, Any]:
    begun = time.monotonic()
    deployment = deployment_of(case.graph)
    with Replays(environment_cache(require_environment())) as replays:
        rate = rate_of(case, deployment, replays)
        loaded = workload_of(case.kind, rate)
        if requests:
            loaded = loaded.with_requests(requests)
        else:
            loaded = with_enough_requests(loaded, deployment, replays)
        parts = parts_of(loaded, replays, SEEDS)
        tuning = tune(deployment, parts, SEEDS, lambda *_: None)
        took_s = time.monotonic() - begun
        held_out = replace(parts.choice, first_seed=HELD_OUT_SEED)
        compared = complete_grid(tuning, held_out)
    return {
        "is_held_out": case.is_held_out,
        "rate": round(rate, 2),
        "requests": len(loaded.requests(0)),
        **compared,
        "seconds": round(took_s),
    }


def complete_grid(tuning: Tuning, held_out: Study) -> dict[str, Any]:
    """The recommendation against the best of all settings, on traffic that neither chose."""
    trials = replayed(tuning.deployment, replace(held_out, seeds=1), grid())
    best = [trial.settings for trial in ranked(trials[0], trials)[:LOOKED_AT]]
    again = list(dict.fromkeys([DYNAMO_DEFAULT, tuning.recommended, *best]))
    base, *others = replayed(tuning.deployment, replace(held_out, seeds=HELD_OUT_SEEDS), again)
    own = next(t for t in [base, *others] if t.settings == tuning.recommended)
    first = ranked(base, [base, *others])[0]
    gains = log(ratio_of(base, own).mean), log(ratio_of(base, first).mean)
    return {
        "default_ttft_ms": latencies(base),
        "settings": dict(tuning.recommended.keys),
        "recommended_ttft_ms": latencies(own),
        "ratio": round(ratio_of(base, own).mean, 3),
        "p50_ratio": round(ratio_of(base, own, ["ttft_p50_ms"]).mean, 3),
        "p90_ratio": round(ratio_of(base, own, ["ttft_p90_ms"]).mean, 3),
        "exceeded": exceeded(base, own),
        "best": dict(first.settings.keys),
        "best_ratio": round(ratio_of(base, first).mean, 3),
        "is_found": gains[0] >= GOOD * gains[1] or gains[1] - gains[0] <= log(1 + TIE),
        "hint": bool(tuning.hint),
        "replays": tuning.replays,
    }


def replayed(
    deployment: Replayable, study: Study, candidates: Sequence[RouterSettings]
) -> list[Trial]:
    rows = study.rows([with_settings(deployment, settings) for settings in candidates], None)
    return [Trial(settings=s, row=row) for s, row in zip(candidates, rows, strict=True)]


def latencies(trial: Trial) -> list[float]:
    """The TTFT p50, p90 and p99 of the first seed."""
    return [round(getattr(trial.row.metrics[0], name), 1) for name in LATENCIES]


def summary(done: dict[str, Any]) -> dict[str, Any]:
    """By half: cases in which the recommendation has 0.9 of the best gain, or is worse."""
    return {
        half: {
            "cases": len(chosen),
            "found": sum(case["is_found"] for case in chosen),
            "worse_than_default": sum(case["ratio"] < 1 - TIE for case in chosen),
        }
        for half, is_held_out in (("development", False), ("held out", True))
        if (chosen := [case for case in done.values() if case["is_held_out"] == is_held_out])
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few requests, which show nothing")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    name = f"{NAME}_short" if args.short else NAME
    file = RESULTS / f"{name}.json"
    done: dict[str, Any] = json.loads(file.read_text())["cases"] if file.exists() else {}
    for case in cases():
        if str(case) in done or (args.cases and str(case) not in args.cases):
            continue
        done[str(case)] = run(case, SHORT_REQUESTS if args.short else None)
        print(f"{case}: {json.dumps(done[str(case)])}", file=sys.stderr, flush=True)
        figures = {"cases_done": f"{len(done)} of {len(cases())}", "summary": summary(done)}
        command = f"python benchmarks/{NAME}.py{' --short' if args.short else ''}"
        write_result(name, command, {**figures, "cases": done}, show=False)


if __name__ == "__main__":
    main()
