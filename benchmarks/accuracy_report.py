"""Errors of predictions by group, corrections and intervals: `accuracy.py report`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from measured import FIT, HELD_OUT
from penstock.simulate import interval as intervals
from penstock.simulate.interval import Interval, MeasuredPoint, interval
from point_errors import BURST, METRICS, STEADY, UNSTATED, PointError

DATA = Path(intervals.__file__).parent / "data" / intervals.FILE
# Nebius measured 1.4 to 1.8 times InferenceX' ITL with the same configuration: no interval can
# include both.
DISAGREEING = ("nebius-soperator",)
KINDS = (STEADY, BURST, UNSTATED)
GROUPS: Mapping[str, Callable[[PointError], str]] = {
    "all": lambda _: "all",
    "engine and GPU": lambda e: f"{e.conditions.engine} {e.conditions.gpu}",
    "model": lambda e: f"{e.conditions.engine} {e.conditions.gpu} {e.conditions.model}",
    "source": lambda e: f"{e.conditions.engine} {e.conditions.gpu} {e.point['source_group']}",
    "parallelism": lambda e: f"{e.conditions.engine} {_parallelism(e)}",
    "lengths": lambda e: f"{e.conditions.engine} {e.point['isl']}/{e.point['osl']}",
    "requests in a batch": lambda e: f"{e.conditions.engine} {_batch(e.conditions.batch)}",
}
FEWEST = 3  # points of a group, below which it is left out
BATCHES = (8, 32, 128, 512)


def _parallelism(error: PointError) -> str:
    if int(error.point["decode_dp"] or 1) > 1:
        return "attention DP"
    return f"TP{error.point['decode_tp']}"


def _batch(batch: float) -> str:
    return next((f"up to {limit}" for limit in BATCHES if batch <= limit), f"over {BATCHES[-1]}")


def as_data(errors: Iterable[PointError], idle: Iterable[Mapping[str, Any]]) -> str:
    """The file in the package: the steady points of both halves that agree, and those of idle
    requests."""
    rows: list[Mapping[str, Any]] = [
        {
            "conditions": vars(error.conditions),
            "ratios": {name: round(ratio, 4) for name, ratio in error.ratios.items()},
            "source": error.point["source_group"],
        }
        for error in _agreeing(errors)
    ]
    rows += idle
    lines = ",\n".join(json.dumps(row) for row in rows)
    made = "Written by `python benchmarks/accuracy.py report`."
    return f'{{"made": {json.dumps(made)}, "points": [\n{lines}\n]}}\n'


def figures(errors: Sequence[PointError]) -> dict[str, Any]:
    """The tables of results/accuracy.json.

    Intervals are made three times: held-out points by the fitting half only; every point by the
    points of other sources; every point by all others that are in the package.
    """
    steady = [error for error in errors if error.kind == STEADY]
    agreeing = _agreeing(errors)
    fitting = [error for error in steady if error.point["split"] == FIT]
    held_out = [error for error in errors if error.point["split"] == HELD_OUT]
    return {
        "held-out": {
            kind: groups(with_intervals([e for e in held_out if e.kind == kind], lambda _: fitting))
            for kind in KINDS
        },
        "fit": {
            kind: groups(with_intervals(some, lambda error: [e for e in fitting if e is not error]))
            for kind in KINDS
            if (some := [e for e in errors if e.point["split"] == FIT and e.kind == kind])
        },
        "by points of other sources": groups(
            with_intervals(steady, lambda e: _other_sources(e, steady))
        ),
        "by all other points": groups(
            with_intervals(steady, lambda error: [e for e in agreeing if e is not error])
        ),
    }


def center_figures(errors: Sequence[PointError]) -> dict[str, Any]:
    """Median error of predictions, and of predictions that are multiplied by the median ratio of
    the 12 nearest of all other points, or of those of other sources."""
    agreeing = _agreeing(errors)
    others = {
        "all other points": lambda e: [o for o in agreeing if o is not e],
        "points of other sources": lambda e: _other_sources(e, agreeing),
    }
    return {
        name: {metric: _centers(metric, agreeing, by) for metric in METRICS}
        for name, by in others.items()
    }


def _centers(
    metric: str, errors: Sequence[PointError], by: Callable[[PointError], list[PointError]]
) -> dict[str, float]:
    plain, corrected = [], []
    for error in (e for e in errors if metric in e.ratios):
        here = error.conditions
        same = [o for o in by(error) if o.conditions.group == here.group and metric in o.ratios]
        if len(same) >= intervals.FEWEST:
            nearest = sorted(same, key=lambda o: o.conditions.distance(here))[: intervals.NEAREST]
            center = median(o.ratios[metric] for o in nearest)
            plain.append(abs(1 / error.ratios[metric] - 1))
            corrected.append(abs(center / error.ratios[metric] - 1))
    medians = {"error": median(plain), "corrected error": median(corrected)}
    return {"points": len(plain)} | {name: round(error, 3) for name, error in medians.items()}


def calibration_figures() -> dict[str, Any]:
    """What a calibration does to the intervals of the points in the package: coverage and half
    width, from points of other deployments, and from those of other models, engines and GPUs."""
    raw, calibrated = intervals.measured_points(), intervals.calibrated_points()
    sources = {
        "without": (raw, lambda p: [q for q in raw if q.deployment != p.deployment]),
        "with": (calibrated, lambda p: [q for q in calibrated if q.deployment != p.deployment]),
        "with, by other groups": (calibrated, _of_other_groups),
    }
    return {
        name: {metric: _coverage(metric, points, by) for metric in METRICS}
        for name, (points, by) in sources.items()
    }


def _of_other_groups(point: MeasuredPoint) -> list[MeasuredPoint]:
    here = point.conditions
    others = (q for q in intervals.calibrated_points() if q.conditions.group != here.group)
    return [other.of_group(here) for other in others]


def _coverage(
    metric: str,
    points: Sequence[MeasuredPoint],
    by: Callable[[MeasuredPoint], Sequence[MeasuredPoint]],
) -> dict[str, float]:
    pairs = [
        (point.ratios[metric], found)
        for point in points
        if metric in point.ratios and (found := interval(point.conditions, metric, by(point)))
    ]
    return {
        "points": len(pairs),
        "covered": round(mean(found.low <= ratio <= found.high for ratio, found in pairs), 3),
        "half width": round(median(found.half_width for _, found in pairs), 3),
    }


def _agreeing(errors: Iterable[PointError]) -> list[PointError]:
    return [e for e in errors if e.kind == STEADY and e.point["source_group"] not in DISAGREEING]


def _other_sources(error: PointError, errors: Iterable[PointError]) -> list[PointError]:
    return [e for e in errors if e.point["source_group"] != error.point["source_group"]]


WithIntervals = tuple[PointError, dict[str, Interval | None]]


def with_intervals(
    errors: Iterable[PointError], by: Callable[[PointError], Sequence[PointError]]
) -> list[WithIntervals]:
    """Each error with its intervals from the points that ``by`` returns for it."""
    return [
        (
            error,
            {
                metric: interval(error.conditions, metric, [e.as_measured_point for e in by(error)])
                for metric in error.ratios
            },
        )
        for error in errors
    ]


def groups(errors: Sequence[WithIntervals]) -> dict[str, Any]:
    return {name: _by(group, errors) for name, group in GROUPS.items()}


def _by(group: Callable[[PointError], str], errors: Sequence[WithIntervals]) -> dict[str, Any]:
    found: dict[str, list[WithIntervals]] = defaultdict(list)
    for one in errors:
        found[group(one[0])].append(one)
    return {
        key: {metric: s for metric in METRICS if (s := summary(metric, found[key]))}
        for key in sorted(found)
        if len(found[key]) >= FEWEST
    }


def summary(metric: str, errors: Sequence[WithIntervals]) -> dict[str, Any]:
    """Errors are predicted divided by measured, minus 1; empty without a measurement."""
    some = [(e.ratios[metric], found[metric]) for e, found in errors if metric in e.ratios]
    if not some:
        return {}
    known = [(ratio, i) for ratio, i in some if i is not None]
    result: dict[str, Any] = {
        "points": len(some),
        "error": round(mean(abs(1 / ratio - 1) for ratio, _ in some), 3),
        "bias": round(median(1 / ratio - 1 for ratio, _ in some), 3),
        "with interval": len(known),
    }
    if known:
        result |= {
            "covered": round(mean(i.low <= ratio <= i.high for ratio, i in known), 3),
            "half width": round(median((i.high / i.low) ** 0.5 - 1 for _, i in known), 3),
        }
    return result
