"""The errors of `runs.py` by half: medians, coverage of the intervals, saturation, ranking."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations
from math import inf, log
from random import Random
from statistics import median
from typing import Any, NamedTuple

from penstock.simulate.accuracy import is_known
from penstock.simulate.interval import COVERAGE, Interval

# Statistics of each metric, best first: the first that a source states is compared.
METRICS = {
    "ttft": ("ttft_p50_ms", "ttft_mean_ms", "ttft_p90_ms"),
    "itl": ("itl_mean_ms", "itl_p50_ms"),
    "throughput": ("output_tok_s", "total_tok_s", "request_rate"),
}
TARGETS = {"saturation": 0.10, "ttft": 0.25, "itl": 0.10, "throughput": 0.12, "hit": 0.25}
INTERVAL = {"ttft": "ttft", "itl": "itl", "throughput": "rate"}
LOADS = ("rate", "concurrency", "input", "output", "seconds", "requests", "before")
QUEUEING = 3.0  # times the lowest TTFT of an arm with this input, above which it is saturated
KEEPS_UP = 0.95  # of the offered rate
FLAT = 0.7  # of an arm's highest throughput, reached at its middle rate if it saturates
DIFFERENT = 0.10  # arms whose measured figures differ by less are not ranked
NOT_REPLAYED = ("disaggregated", "tiered")  # kinds with a part that the replay does not have
SAMPLES = 2000  # of the bootstrap
Row = Mapping[str, Any]


def statistic(row: Row, metric: str) -> str | None:
    """The best one that the source states."""
    return next((name for name in METRICS[metric] if name in row["measured"]), None)


def errors(rows: Iterable[Row]) -> Iterator[tuple[Row, str, float]]:
    """(row, metric, relative error) of every figure that was measured and predicted."""
    rows = list(rows)
    lowest = _lowest_ttft(rows)
    saturation = {(knee["run"], knee["arm"]): knee["measured"] for knee in saturations(rows)}
    for row in rows:
        for metric in METRICS:
            name = statistic(row, metric)
            if name is None or name not in row["predicted"]:
                continue
            measured = row["measured"][name]
            error = row["predicted"][name] / measured - 1
            if metric != "ttft":
                yield row, metric, error
            elif measured <= QUEUEING * lowest[_arm(row, name)] and _rate(row) <= saturation.get(
                (row["run"], row["measured"].get("arm", "")), inf
            ):
                yield row, "hit" if row["measured"].get("hit") else "ttft", error


def _rate(row: Row) -> float:
    return float(row["measured"].get("rate", 0))


def _arm(row: Row, name: str) -> tuple[Any, ...]:
    measured = row["measured"]
    lengths = (str(measured.get(part)) for part in ("input", "output"))
    return row["run"], measured.get("arm"), *lengths, name


def _lowest_ttft(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    measured: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if (name := statistic(row, "ttft")) is not None:
            measured[_arm(row, name)].append(row["measured"][name])
    return {arm: min(ttft) for arm, ttft in measured.items()}


def saturations(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """The highest throughput in requests/s of every arm with at least four rates that saturates."""
    arms: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if "rate" in row["measured"] and statistic(row, "throughput") and row["predicted"]:
            arms[row["run"], row["measured"].get("arm", "")].append(row)
    for (run, name), arm in arms.items():
        ordered = sorted(arm, key=lambda row: row["measured"]["rate"])
        achieved = [_achieved(row, "measured") for row in ordered]
        is_flat = achieved[len(achieved) // 2] > FLAT * max(achieved)
        last_rate = ordered[-1]["measured"]["rate"]
        if len(arm) < 4 or not is_flat or achieved[-1] > KEEPS_UP * last_rate:
            continue
        measured, predicted = max(achieved), max(_achieved(row, "predicted") for row in arm)
        yield {
            "run": run,
            "arm": name,
            "half": arm[0]["half"],
            "measured": round(measured, 2),
            "predicted": round(predicted, 2),
            "error": round(predicted / measured - 1, 3),
        }


def _achieved(row: Row, kind: str) -> float:
    """Requests/s. Where the source states tokens/s: by the tokens that it counts per request."""
    name = statistic(row, "throughput")
    assert name is not None
    per_request = row["predicted"][name] / row["predicted"]["request_rate"]
    return float(row[kind][name] / per_request)


def rankings(rows: Sequence[Row]) -> Iterator[tuple[Row, str, bool]]:
    """(row, metric, right) of each pair of arms under the same load that differ when measured."""
    loads: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if "arm" in row["measured"] and row["predicted"]:
            loads[(row["run"], *(str(row["measured"].get(name)) for name in LOADS))].append(row)
    for same in loads.values():
        for first, second in combinations(same, 2):
            if first["measured"]["arm"] == second["measured"]["arm"]:
                continue
            for metric in ("ttft", "throughput"):
                name = statistic(first, metric)
                if (
                    name is None
                    or name not in second["measured"]
                    or not first["predicted"].get(name)
                ):
                    continue
                ratio = first["measured"][name] / second["measured"][name]
                if abs(ratio - 1) >= DIFFERENT:
                    guess = first["predicted"][name] / second["predicted"][name]
                    yield first, metric, (ratio - 1) * (guess - 1) > 0


class Covered(NamedTuple):
    """One interval of a row."""

    run: str
    has_measured: bool  # whether the measured figure is in it
    half_width: float  # as a share of the prediction
    is_printed: bool  # whether it is narrow enough to be printed


def coverage(rows: Iterable[Row]) -> list[Covered]:
    intervals = []
    for row in rows:
        for metric, interval in INTERVAL.items():
            name = statistic(row, metric)
            low, high = (row["predicted"].get(f"{interval}_{end}") for end in ("low", "high"))
            if name is not None and low is not None and name in row["predicted"]:
                ratio = row["measured"][name] / row["predicted"][name]
                intervals.append(
                    Covered(
                        run=row["run"],
                        has_measured=low <= ratio <= high,
                        half_width=(high - low) / 2,
                        is_printed=is_known(Interval(low=low, high=high, points=0)),
                    )
                )
    return intervals


def _bootstrap(intervals: Sequence[Covered]) -> list[float]:
    """The middle 95 % of the coverage when runs are drawn again."""
    by_run: dict[str, list[bool]] = defaultdict(list)
    for interval in intervals:
        by_run[interval.run].append(interval.has_measured)
    random, runs = Random(46), list(by_run.values())
    shares = []
    for _ in range(SAMPLES):
        drawn = [hit for run in random.choices(runs, k=len(runs)) for hit in run]
        shares.append(sum(drawn) / len(drawn))
    shares.sort()
    return [round(shares[int(SAMPLES * p)], 3) for p in (0.025, 0.975)]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    halves = {half: [r for r in rows if r["half"] == half] for half in ("fit", "held-out")}
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["run"]].append(row)
    return {
        **{half: _part(part) for half, part in halves.items()},
        "kinds": {
            kind: {
                half: figures(part)
                for half, all_kinds in halves.items()
                if (part := [r for r in all_kinds if r["kind"] == kind])
            }
            for kind in sorted({row["kind"] for row in rows})
        },
        "runs": {name: _of_run(run) for name, run in runs.items()},
        "saturation": list(saturations(rows)),
        "elsewhere": elsewhere(halves["fit"]),
    }


def elsewhere(rows: Sequence[Row]) -> dict[str, float]:
    """The size of the logarithm of measured / predicted that 90 % of the figures of aggregated
    graphs do not exceed. For ITL and throughput, each run counts the same. For TTFT, each figure
    does, as the runs with the largest errors have only one or two figures."""
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for row, metric, error in errors(r for r in rows if r["kind"] not in NOT_REPLAYED):
        found[metric].append((abs(log(1 + error)), row["run"]))
    return {
        INTERVAL[metric]: _quantile(metric, found[metric]) for metric in METRICS if found[metric]
    }


def _quantile(metric: str, figures: Sequence[tuple[float, str]]) -> float:
    counts = Counter(run for _, run in figures)
    ordered = sorted(figures)
    sums = list(accumulate(1.0 if metric == "ttft" else 1 / counts[run] for _, run in ordered))
    rank = next(rank for rank, total in enumerate(sums) if total >= COVERAGE * sums[-1])
    return round(ordered[rank][0], 2)


def _of_run(rows: Sequence[Row]) -> dict[str, Any]:
    first = rows[0]
    reasons = sorted({row["error"] for row in rows if row["error"]})
    common = {"half": first["half"], "kind": first["kind"], "rows": len(rows)}
    return common | ({"not_predicted": reasons} if reasons else {}) | figures(rows)


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Of each metric: the number of figures, the median absolute error, the share within twice the
    target, and the median of predicted / measured."""
    by_metric: dict[str, list[float]] = defaultdict(list)
    for _, metric, error in errors(rows):
        by_metric[metric].append(error)
    by_metric["saturation"] = [knee["error"] for knee in saturations(rows)]
    return {
        metric: {
            "figures": len(signed),
            "median_error": round(median(map(abs, signed)), 3),
            "within_twice_the_target": _share_of(abs(e) <= 2 * TARGETS[metric] for e in signed),
            "median_ratio": round(1 + median(signed), 3),
        }
        for metric, signed in by_metric.items()
        if signed
    }


def _share_of(flags: Iterable[bool]) -> float:
    flags = list(flags)
    return round(sum(flags) / len(flags), 3)


def _part(rows: Sequence[Row]) -> dict[str, Any]:
    part: dict[str, Any] = {
        "runs": len({row["run"] for row in rows}),
        "rows": len(rows),
        "not_predicted": sum(bool(row["error"]) for row in rows),
        **figures(rows),
    }
    if ranked := [is_right for _, _, is_right in rankings(rows)]:
        part["ranking"] = {"pairs": len(ranked), "right": _share_of(ranked)}
    intervals = coverage(rows)
    for name, some in {
        "intervals": intervals,
        "printed_intervals": [interval for interval in intervals if interval.is_printed],
    }.items():
        if some:
            part[name] = {
                "figures": len(some),
                "coverage": _share_of(interval.has_measured for interval in some),
                "coverage_95": _bootstrap(some),
                "median_half_width": round(median(i.half_width for i in some), 3),
            }
    return part
