"""The errors of `runs.py` by half: medians, coverage of the intervals, saturation, ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from statistics import median
from typing import Any

# Statistics of each metric, best first: the first that a source states is compared.
METRICS = {
    "ttft": ("ttft_p50_ms", "ttft_mean_ms", "ttft_p90_ms"),
    "itl": ("itl_mean_ms", "itl_p50_ms"),
    "throughput": ("output_tok_s", "total_tok_s", "request_rate"),
}
TARGETS = {"saturation": 0.10, "ttft": 0.25, "itl": 0.10, "throughput": 0.12, "hit": 0.25}
INTERVAL = {"ttft": "ttft", "itl": "itl", "throughput": "rate"}
LOADS = ("rate", "concurrency", "input", "output", "seconds", "requests")
QUEUEING = 3.0  # times the lowest TTFT of an arm with this input, above which it is saturated
KEEPS_UP = 0.95  # of the offered rate
DIFFERENT = 0.10  # arms whose measured figures differ by less are not ranked
SAMPLES = 2000  # of the bootstrap
Row = Mapping[str, Any]


def statistic(row: Row, metric: str) -> str | None:
    """The best one that the source states."""
    return next((name for name in METRICS[metric] if name in row["measured"]), None)


def errors(rows: Iterable[Row]) -> Iterator[tuple[Row, str, float]]:
    """(row, metric, relative error) of every figure that was measured and predicted."""
    rows = list(rows)
    lowest = _lowest_ttft(rows)
    for row in rows:
        for metric in METRICS:
            name = statistic(row, metric)
            if name is None or name not in row["predicted"]:
                continue
            measured = row["measured"][name]
            error = row["predicted"][name] / measured - 1
            if metric != "ttft":
                yield row, metric, error
            elif measured <= QUEUEING * lowest[_arm(row, name)]:
                yield row, "hit" if row["measured"].get("hit") else "ttft", error


def _arm(row: Row, name: str) -> tuple[Any, ...]:
    measured = row["measured"]
    return row["run"], measured.get("arm"), measured.get("input"), measured.get("output"), name


def _lowest_ttft(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if (name := statistic(row, "ttft")) is not None:
            found[_arm(row, name)].append(row["measured"][name])
    return {arm: min(values) for arm, values in found.items()}


def saturations(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Of every arm with at least four rates: where its throughput falls below the offered rate, or,
    in a ladder of stages so short that the last responses count, the highest throughput."""
    ladders: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if "rate" in row["measured"] and statistic(row, "throughput") and row["predicted"]:
            ladders[row["run"]][row["measured"].get("arm", "")].append(row)
    for run, arms in ladders.items():
        is_long = any(_share(_by_rate(arm)[0], "measured") >= KEEPS_UP for arm in arms.values())
        for name, arm in arms.items():
            if len(arm) < 4 or (not is_long and not _has_saturated(arm)):
                continue
            found = {kind: _saturation(arm, kind, is_long) for kind in ("measured", "predicted")}
            measured, predicted = found["measured"], found["predicted"]
            error = predicted / measured - 1
            row = {"run": run, "arm": name, "half": arm[0]["half"], "kind": arm[0]["kind"]}
            yield {**row, "measured": measured, "predicted": predicted, "error": error}


def _by_rate(arm: Iterable[Row]) -> list[Row]:
    return sorted(arm, key=lambda row: row["measured"]["rate"])


def _achieved(row: Row, kind: str) -> float:
    """Requests/s. Where the source states tokens/s: by the tokens that it counts per request."""
    name = statistic(row, "throughput")
    assert name is not None
    per_request = row["predicted"][name] / row["predicted"]["request_rate"]
    return float(row[kind][name]) / per_request


def _share(row: Row, kind: str) -> float:
    return _achieved(row, kind) / float(row["measured"]["rate"])


def _has_saturated(arm: Sequence[Row]) -> bool:
    """Whether the measured throughput has stopped to grow with the rate."""
    ordered = _by_rate(arm)
    top = max(_achieved(row, "measured") for row in ordered)
    return _achieved(ordered[-1], "measured") < KEEPS_UP * ordered[-1]["measured"]["rate"] and (
        _achieved(ordered[len(ordered) // 2], "measured") > 0.7 * top
    )


def _saturation(arm: Sequence[Row], kind: str, is_long: bool) -> float:
    ordered = _by_rate(arm)
    if not is_long:
        return max(_achieved(row, kind) for row in ordered)
    before = (0.0, 1.0)
    for row in ordered:
        rate, share = float(row["measured"]["rate"]), _share(row, kind)
        if share < KEEPS_UP:
            (low, good), fall = before, max(before[1] - share, 1e-9)
            return low + (rate - low) * max(0.0, good - KEEPS_UP) / fall
        before = (rate, share)
    return before[0]


def rankings(rows: Sequence[Row]) -> Iterator[tuple[Row, str, bool]]:
    """(row, metric, right) of each pair of arms under the same load that differ when measured."""
    loads: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if "arm" in row["measured"] and row["predicted"]:
            loads[(row["run"], *(row["measured"].get(name) for name in LOADS))].append(row)
    for same in loads.values():
        for one, two in combinations(same, 2):
            for metric in ("ttft", "throughput"):
                name = statistic(one, metric)
                if name is None or name not in two["measured"] or not one["predicted"].get(name):
                    continue
                ratio = one["measured"][name] / two["measured"][name]
                if abs(ratio - 1) >= DIFFERENT:
                    guess = one["predicted"][name] / two["predicted"][name]
                    yield one, metric, (ratio > 1) == (guess > 1)


def coverage(rows: Iterable[Row]) -> list[tuple[str, bool, float]]:
    """(run, whether the measured figure is in the interval, half-width) of every interval."""
    found = []
    for row in rows:
        for metric, interval in INTERVAL.items():
            name = statistic(row, metric)
            low, high = (row["predicted"].get(f"{interval}_{end}") for end in ("low", "high"))
            if name is not None and low is not None and name in row["predicted"]:
                ratio = row["measured"][name] / row["predicted"][name]
                found.append((row["run"], low <= ratio <= high, (high - low) / 2))
    return found


def _bootstrap(found: Sequence[tuple[str, bool, float]]) -> list[float]:
    """The middle 95 % of the coverage when runs are drawn again."""
    by_run: dict[str, list[bool]] = defaultdict(list)
    for run, is_in, _ in found:
        by_run[run].append(is_in)
    random, values = Random(46), list(by_run.values())
    shares = []
    for _ in range(SAMPLES):
        drawn = [hit for run in random.choices(values, k=len(values)) for hit in run]
        shares.append(sum(drawn) / len(drawn))
    shares.sort()
    return [round(shares[int(SAMPLES * p)], 3) for p in (0.025, 0.975)]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    knees = list(saturations(rows))
    parts = {half: _part(rows, knees, lambda row, h=half: row["half"] == h) for half in ("fit", "held-out")}
    kinds = sorted({row["kind"] for row in rows})
    by_kind = {
        kind: {
            half: _errors(rows, knees, lambda row, k=kind, h=half: (row["kind"], row["half"]) == (k, h))
            for half in ("fit", "held-out")
        }
        for kind in kinds
    }
    by_run: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = by_run.setdefault(row["run"], {"half": row["half"], "kind": row["kind"], "rows": 0})
        entry["rows"] += 1
        if row["error"]:
            entry["error"] = row["error"]
    for name, entry in by_run.items():
        entry |= _errors(rows, knees, lambda row, n=name: row["run"] == n)
    saturation = [{k: round(v, 3) if isinstance(v, float) else v for k, v in k_.items()} for k_ in knees]
    return {**parts, "kinds": by_kind, "runs": by_run, "saturation": saturation}


def _errors(
    rows: Sequence[Row], knees: Sequence[Row], chosen: Callable[[Row], bool]
) -> dict[str, Any]:
    found: dict[str, list[float]] = defaultdict(list)
    for row, metric, error in errors(rows):
        if chosen(row):
            found[metric].append(abs(error))
    found["saturation"] = [abs(knee["error"]) for knee in knees if chosen(knee)]
    return {
        metric: {
            "figures": len(values),
            "median_error": round(median(values), 3),
            "within_twice_the_target": round(
                sum(value <= 2 * TARGETS[metric] for value in values) / len(values), 3
            ),
        }
        for metric, values in found.items()
        if values
    }


def _part(
    rows: Sequence[Row], knees: Sequence[Row], chosen: Callable[[Row], bool]
) -> dict[str, Any]:
    mine = [row for row in rows if chosen(row)]
    ranked = [right for _, _, right in rankings(mine)]
    covered = coverage(mine)
    found = {
        "runs": len({row["run"] for row in mine}),
        "rows": len(mine),
        "not_predicted": sum(bool(row["error"]) for row in mine),
        **_errors(rows, knees, chosen),
    }
    if ranked:
        found["ranking"] = {"pairs": len(ranked), "right": round(sum(ranked) / len(ranked), 3)}
    if covered:
        found["intervals"] = {
            "rows": len({id(row) for row in mine if coverage([row])}),
            "figures": len(covered),
            "coverage": round(sum(hit for _, hit, _ in covered) / len(covered), 3),
            "coverage_95": _bootstrap(covered),
            "median_half_width": round(median(width for _, _, width in covered), 3),
        }
    return found
