"""Measures what `penstock plan --router` gains on traffic that it did not see.

python benchmarks/router_settings.py --trace FILE [--short] [CASE…]   Writes
results/router_settings.json after each case, and skips cases that the file has. Each case is a
workload, a graph and a load: below, near or above the rate at which Dynamo's default saturates.
--trace: Mooncake's conversation trace; without it, its cases are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from penstock.graph.slo import Slo
from penstock.manifests.source import graph_source, open_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Row, Study
from penstock.tune.settings import DYNAMO_DEFAULT, RouterSettings, grid, with_settings
from penstock.tune.tuning import (
    NEEDED,
    QUEUED,
    Parts,
    Trial,
    Tuning,
    best_of,
    halves,
    parts_of,
    queue_share,
    ratio_of,
    tune,
    values,
    with_enough_conversations,
)
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from penstock.workload.request import BLOCK_TOKENS, Request
from report import RESULTS, write_result

ROOT = Path(__file__).parents[1]
NAME = "router_settings"
OWN = ROOT / "benchmarks" / "workloads" / "router"
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
GRAPHS = ("aggregated-8xb200", "disaggregated-b200", "20b-4xh100")
WORKLOADS = (
    *("conversation-trace", "agentic", "document-prompts", "hot-prefix"),
    *("many-prompts", "chat-history", "uneven-inputs", "bursts"),
)
# × the scale that saturates the graph with Dynamo's default.
LOADS = {"near": 0.95, "above": 1.2, "below": 0.6}
SATURATED = 3.0
# Of the conversations' rate, which differs between samples by some percent even with so many
# requests.
SERVED, CONVERSATION_REQUESTS = 0.9, 2500
LOW = 0.25  # × the workload's rate
DOUBLINGS, BISECTIONS = 8, 3
HELD_OUT_SEED, HELD_OUT_SEEDS = 100, 5
HOT_SHARE = 5  # every fifth request does not begin with the hot prefix
FIRST_OTHER = 10**9  # above the ids of all sampled blocks
COMPLETE = slice(0, 18, 3)  # cases of which the complete grid is replayed too
BOOTSTRAPS = 2000
GOOD, BAD = 1.3, 0.95  # ratios that are counted


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    seconds: float  # of traffic in a replay
    least: int
    most: int  # requests of a replay
    seeds: int  # of each part of `tune`
    trace_requests: int


FULL = Profile(
    name="full",
    seconds=60,
    least=500,
    most=12_000,
    seeds=4,
    trace_requests=12_000,
)
# At the highest rates a replay has some ten seconds of traffic.
SHORT = Profile(name="short", seconds=15, least=300, most=1200, seeds=3, trace_requests=3000)


@dataclass(frozen=True, kw_only=True)
class Case:
    load: str
    graph: str
    workload: str

    def __str__(self) -> str:
        return f"{self.load}, {self.graph}, {self.workload}"


def cases() -> list[Case]:
    """Ordered so that the first third has every workload with every graph, and all loads."""
    loads, found = list(LOADS), []
    for third, shift in product(range(len(LOADS)), range(len(GRAPHS))):
        for number, workload in enumerate(WORKLOADS):
            graph = GRAPHS[(number + shift) % len(GRAPHS)]
            load = loads[(number // len(GRAPHS) + shift + third) % len(LOADS)]
            found.append(Case(load=load, graph=graph, workload=workload))
    return found


def deployment_of(graph: str) -> Replayable:
    folder = ROOT / "dynamo_graphs"
    if graph == "aggregated-8xb200":
        source = graph_source(AGGREGATED, f"{graph}.yaml")
    elif graph == "disaggregated-b200":
        source = open_source(folder / "gpt-oss-120b-b200-disagg.yaml")
    else:
        source = open_source(folder / "gpt-oss-20b-h100.yaml", ["worker.replicas=4"])
    return replayable(source, Hints())


def workload_of(name: str, trace: Path | None, profile: Profile) -> LoadedWorkload:
    if name == "conversation-trace":
        loaded = find_workload("conversation", trace)
        return loaded.with_workload(loaded.workload.with_requests(profile.trace_requests))
    loaded = find_workload(name if name == "agentic" else str(OWN / f"{name}.yaml"))
    return replace(loaded, change=without_hot_prefix) if name == "hot-prefix" else loaded


def without_hot_prefix(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Every fifth request with other blocks, which it shares with none."""
    return tuple(
        r if number % HOT_SHARE else replace(r, blocks=other_blocks(number, r))
        for number, r in enumerate(requests)
    )


def other_blocks(number: int, request: Request) -> tuple[int, ...]:
    first = FIRST_OTHER + number * (10**6 // BLOCK_TOKENS)
    return tuple(range(first, first + len(request.blocks)))


def at(loaded: LoadedWorkload, scale: float, profile: Profile) -> LoadedWorkload:
    scaled = loaded.scaled(scale)
    rate = scaled.workload.mean_rate
    if rate is None:
        return scaled
    requests = min(max(round(rate * profile.seconds), profile.least), profile.most)
    return scaled.with_workload(scaled.workload.with_requests(requests))


def seconds_of(loaded: LoadedWorkload) -> float:
    """From the first to the last arrival; later turns of conversations come after it."""
    return max((r.at_ms or 0.0) for r in loaded.requests(0)) / 1000


class Bench:
    """Runs cases, and knows how much a deployment sustains under a workload."""

    def __init__(self, profile: Profile, trace: Path | None, known: dict[str, Any]) -> None:
        self.profile = profile
        self.trace = trace
        self.saturation: dict[str, Any] = known.get("saturation", {})

    def run(self, case: Case) -> dict[str, Any]:
        begun = time.monotonic()
        deployment = deployment_of(case.graph)
        loaded = workload_of(case.workload, self.trace, self.profile)
        with Replays(Cache(None, "")) as replays:
            limit = self._saturation(case, deployment, loaded, replays)
            # Interactive users notice when the first token takes three times as long.
            deployment = replace(deployment, slo=Slo(ttft_ms=limit["slo_ttft_ms"]))
            scaled = at(loaded, limit["scale"] * LOADS[case.load], self.profile)
            scaled = with_enough_conversations(scaled, deployment, replays)
            seen, unseen = scaled, scaled
            if scaled.workload.trace is not None:
                seen, unseen = halves(scaled)
            parts = parts_of(seen, replays, self.profile.seeds)
            tuning = tune(deployment, parts, self.profile.seeds, lambda *_: None)
            held_out = replace(
                parts.choice, workload=unseen, first_seed=HELD_OUT_SEED, seeds=HELD_OUT_SEEDS
            )
            found = {
                "scale": round(limit["scale"] * LOADS[case.load], 3),
                "requests": len(seen.requests(0)),
                "traffic_s": round(seconds_of(seen), 1),
                **result_of(tuning, held_out, complete_of(case, tuning, parts)),
            }
        return found | {"seconds": round(time.monotonic() - begun)}

    def _saturation(
        self, case: Case, deployment: Replayable, loaded: LoadedWorkload, replays: Replays
    ) -> dict[str, float]:
        """The scale, within 9 %, at which the TTFT's p90 with Dynamo's default is three times that
        at a low load, or from which conversations take so long that requests come more slowly."""
        name = f"{case.graph}, {case.workload}"
        if name not in self.saturation:
            self.saturation[name] = self._searched(deployment, loaded, replays)
        found: dict[str, float] = self.saturation[name]
        return found

    def _searched(
        self, deployment: Replayable, loaded: LoadedWorkload, replays: Replays
    ) -> dict[str, float]:
        def row_at(scale: float) -> Row:
            workload = at(loaded, scale, self.profile)
            if workload.workload.conversation:
                workload = with_enough_conversations(workload, deployment, replays)
                requests = max(workload.workload.fixed_requests or 0, CONVERSATION_REQUESTS)
                workload = workload.with_workload(workload.workload.with_requests(requests))
            if workload.workload.trace is not None:
                workload = halves(halves(workload)[0])[0]
            (row,) = Study(workload=workload, replays=replays, seeds=1).rows([deployment], None)
            return row

        def is_saturated(scale: float) -> bool:
            row = row_at(scale)
            found = row.steadiness if loaded.workload.conversation else None
            is_slower = found is not None and found.served_rate < SERVED * found.offered_rate
            return is_slower or row.metrics[0].ttft_p90_ms > limit

        limit = SATURATED * row_at(LOW).metrics[0].ttft_p90_ms
        low, high = LOW, 1.0
        for _ in range(DOUBLINGS):
            if is_saturated(high):
                break
            low, high = high, high * 2
        for _ in range(BISECTIONS):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if is_saturated(middle) else (middle, high)
        return {"scale": round(low, 3), "slo_ttft_ms": round(limit, 1)}


def complete_of(case: Case, tuning: Tuning, parts: Parts) -> Trial | None:
    """The best of the complete grid by all seeds of the choice part."""
    if case not in cases()[COMPLETE]:
        return None
    base, *others = replayed(tuning.deployment, parts.choice, [DYNAMO_DEFAULT, *grid()[1:]])
    return best_of(base, others)


def replayed(deployment: Replayable, study: Study, some: Sequence[RouterSettings]) -> list[Trial]:
    rows = study.rows([with_settings(deployment, settings) for settings in some], None)
    return [Trial(settings=s, row=row) for s, row in zip(some, rows, strict=True)]


def result_of(tuning: Tuning, held_out: Study, complete: Trial | None) -> dict[str, Any]:
    """Settings that stay have the ratio 1, as they are the same."""
    some = [DYNAMO_DEFAULT]
    if tuning.is_changed or complete is not None:
        some += [s for s in dict.fromkeys([tuning.chosen.settings]) if s not in some]
    if complete is not None and complete.settings not in some:
        some.append(complete.settings)
    trials = {}
    if len(some) > 1 or tuning.is_changed:
        trials = {t.settings: t for t in replayed(tuning.deployment, held_out, some)}
    found = tuning.confirmation
    result: dict[str, Any] = {
        "is_loaded": tuning.queues,
        "queue_share": round(queue_share(tuning.base.row), 3),
        "default_ttft_p90_ms": [round(v, 1) for v in values(tuning.base.row, "ttft_p90_ms")],
        "chosen": tuning.chosen.settings.keys,
        "choice_ratio": round(ratio_of(tuning.base, tuning.chosen).mean, 3),
        "confirmation_low": found and found.ratio.low and round(found.ratio.low, 3),
        "exceeded": found.exceeded if found else [],
        "is_changed": tuning.is_changed,
        "ratio": 1.0,
        "ratios": [1.0] * HELD_OUT_SEEDS,
        "replays": tuning.replays,
    }
    if tuning.is_changed:
        base, own = trials[DYNAMO_DEFAULT], trials[tuning.recommended]
        pairs = zip(values(base.row, "ttft_p90_ms"), values(own.row, "ttft_p90_ms"), strict=True)
        result["ratios"] = [round(a / b, 3) for a, b in pairs]
        result["ratio"] = round(ratio_of(base, own).mean, 3)
        result["p99_ratio"] = round(ratio_of(base, own, "ttft_p99_ms").mean, 3)
        result["itl_p90_ratio"] = round(ratio_of(base, own, "itl_p90_ms").mean, 3)
        result["slo_met"] = [base.row.goodput, own.row.goodput]
    if complete is not None:
        result["complete_grid"] = compared(tuning, complete, trials)
    return result


def compared(
    tuning: Tuning, complete: Trial, trials: dict[RouterSettings, Trial]
) -> dict[str, Any]:
    """How the search's choice compares with that of the complete grid; above 1: it is better."""
    result: dict[str, Any] = {
        "chosen": complete.settings.keys,
        "choice_part": round(ratio_of(complete, tuning.chosen).mean, 3),
        "held_out": 1.0,
    }
    if complete.settings != tuning.chosen.settings:
        pair = trials[complete.settings], trials[tuning.chosen.settings]
        result["held_out"] = round(ratio_of(*pair).mean, 3)
    return result


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Figures over all cases that are done."""
    done = list(found.values())
    loaded = [case for case in done if case["is_loaded"]]
    complete = [case["complete_grid"] for case in done if "complete_grid" in case]
    return {
        "pooled_ratio": pooled(done),
        "pooled_ratio_of_loaded_cases": pooled(loaded),
        "loaded_cases": len(loaded),
        f"share_of_loaded_cases_at_least_{GOOD}": share(loaded, lambda r: r >= GOOD),
        f"cases_below_{BAD}": [name for name, case in found.items() if case["ratio"] < BAD],
        "changed_cases": sum(case["is_changed"] for case in done),
        "search_relative_to_complete_grid": [one["held_out"] for one in complete],
    }


def share(some: Sequence[dict[str, Any]], test: Any) -> float | None:
    return round(fmean(bool(test(case["ratio"])) for case in some), 3) if some else None


def pooled(some: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """The geometric mean over cases, and its 95 % bounds by resampling cases and their seeds."""
    if not some:
        return None
    source = random.Random(0)
    logs = [[log(ratio) for ratio in case["ratios"]] for case in some]
    means = sorted(exp(fmean(resampled(logs, source))) for _ in range(BOOTSTRAPS))
    return {
        "mean": round(exp(fmean(fmean(case) for case in logs)), 3),
        "low": round(means[int(0.025 * BOOTSTRAPS)], 3),
        "high": round(means[int(0.975 * BOOTSTRAPS)], 3),
    }


def resampled(logs: Sequence[Sequence[float]], source: random.Random) -> Iterator[float]:
    for _ in logs:
        case = source.choice(logs)
        yield fmean(source.choices(case, k=len(case)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    profile = SHORT if args.short else FULL
    file = RESULTS / f"{NAME}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known = known if known.get("profile") == profile.name else {}
    bench = Bench(profile, args.trace, known)
    found: dict[str, Any] = known.get("cases", {})
    for case in cases():
        lacks_trace = args.trace is None and case.workload == "conversation-trace"
        is_named = not args.cases or str(case) in args.cases
        if str(case) in found or lacks_trace or not is_named:
            continue
        found[str(case)] = bench.run(case)
        one = found[str(case)]
        print(f"{case}: {one['ratio']} ({one['seconds']} s)", file=sys.stderr, flush=True)
        save(profile, found, bench)


def save(profile: Profile, found: dict[str, Any], bench: Bench) -> None:
    most = len(cases())
    figures = {
        "profile": profile.name,
        "cases_done": f"{len(found)} of {most}",
        "needed_lower_bound": NEEDED,
        "loaded": f"p90 of the prefill queue time is at least {QUEUED:.0%} of the p90 of TTFT",
        "ratio": "p90 of TTFT with Dynamo's default divided by that of the recommended settings, "
        "on held-out traffic; 1 where tune keeps the default",
        "summary": summary(found),
        "saturation": bench.saturation,
        "cases": found,
    }
    short = " --short" if profile is SHORT else ""
    write_result(NAME, f"python benchmarks/{NAME}.py --trace FILE{short}", figures, show=False)


if __name__ == "__main__":
    main()
