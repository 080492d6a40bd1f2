"""The prediction intervals of a simulated graph, as text and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import mean, median

from penstock.simulate.calibration import Calibration, group_of
from penstock.simulate.interval import (
    COVERAGE,
    FEWEST,
    Conditions,
    Interval,
    MeasuredPoint,
    calibrated_points,
    decoding,
    elsewhere,
    idle,
    interval,
    layout_of,
    measured_points,
)
from penstock.simulate.metrics import spreads
from penstock.simulate.model import Replayable
from penstock.simulate.study import Row
from penstock.simulate.window import percentile
from penstock.text.numbers import significant

# Of each metric of `interval`: the metric of the row, its name and its unit.
METRICS = {
    "itl": ("itl_p50_ms", "ITL p50", "ms"),
    "ttft": ("ttft_p50_ms", "TTFT p50", "ms"),
    "rate": ("gpu_rate", "", "tok/s/GPU"),
}
VAST = 3.0  # half of an interval that is not printed
OTHER_RUNS = "no measured point of this model; from the errors for published runs of others"
WIDEST = 3.0  # a wider interval, as a factor, says nothing about the figure


def accuracy_line(row: Row) -> str:
    """`90% interval: ITL p50 6.8 to 8.1 ms (12 measured points of gpt-oss-120b, vllm, h100)`.

    With a calibration, also how wide the interval was without: `ITL p50 6.8 to 8.1 ms (±18% →
    ±9%)`.
    """
    intervals = row_intervals(row)
    if row.replayable.calibration is not None:
        return _calibrated_line(row, intervals)
    if not intervals:
        return no_points(row.replayable)
    values = dict(spreads(row.metrics))
    texts = [
        _text(what, unit, values[name].median, intervals[metric])
        for metric, (name, what, unit) in METRICS.items()
        if metric in intervals and name in values
    ]
    points = max(entry.points for entry in intervals.values())
    where = ", ".join(_group(row.replayable))
    behind = f"{points} measured points of {where}" if points else OTHER_RUNS
    return f"{COVERAGE:.0%} interval: {', '.join(texts)} ({behind})"


def _calibrated_line(row: Row, intervals: Mapping[str, Interval]) -> str:
    if not intervals:
        return no_points(row.replayable)
    values = dict(spreads(row.metrics))
    before = _intervals(row, COVERAGE, is_calibrated=False)
    texts = [
        f"{_text(what, unit, values[name].median, intervals[metric])} "
        f"({_width(before.get(metric))} → {_width(intervals[metric])})"
        for metric, (name, what, unit) in METRICS.items()
        if metric in intervals and name in values
    ]
    return f"{COVERAGE:.0%} interval, without → with the calibration: {', '.join(texts)}"


def _width(interval: Interval | None) -> str:
    if interval is None:
        return "not known"
    width = interval.half_width
    return f"over ±{VAST:.0%}" if width > VAST else f"±{width:.0%}"


def is_known(interval: Interval) -> bool:
    """Whether the interval is narrow enough to say something about the figure."""
    return interval.high <= WIDEST * interval.low


def span(predicted: float, interval: Interval) -> str:
    """`6.8 to 8.1`, or `not known` if it is wider than WIDEST."""
    if not is_known(interval):
        return "not known"
    return f"{significant(predicted * interval.low)} to {significant(predicted * interval.high)}"


def _text(name: str, unit: str, predicted: float, interval: Interval) -> str:
    text = span(predicted, interval)
    return f"{name} {text} {unit}".strip() if is_known(interval) else f"{name or unit} {text}"


def no_points(deployment: Replayable) -> str:
    """`no measured point for gpt-oss-120b, sglang, gb300`."""
    return f"no measured point for {_never_measured(deployment) or ', '.join(_group(deployment))}"


def evidence(deployment: Replayable) -> str:
    """`ITL of 45 measured points of gpt-oss-120b, trtllm, b200 is 0.9 to 1.1 times the predicted
    one`: the middle 90% of them, whatever their workload."""
    model, engine, gpu = _group(deployment)
    ratios = [
        point.ratios["itl"]
        for point in measured_points()
        if point.conditions.group == (engine, gpu, model) and "itl" in point.ratios
    ]
    if _never_measured(deployment) or len(ratios) < FEWEST:
        return no_points(deployment)
    low, high = (percentile(ratios, (1 + sign * COVERAGE) / 2) for sign in (-1, 1))
    where = f"{len(ratios)} measured points of {model}, {engine}, {gpu}"
    if high > WIDEST * low:
        return f"the ratio of measured to predicted ITL varies by over {WIDEST:g}× among {where}"
    return (
        f"ITL of {where} is {significant(low, 2)} to {significant(high, 2)} times the predicted one"
    )


def _never_measured(deployment: Replayable) -> str:
    """What no measured point has; empty if the deployment has nothing of it."""
    if len(deployment.pools) > 1:
        return "a disaggregated graph"
    has_draft = "aic_nextn" in deployment.pools[0].engine["engine"]
    return "speculative decoding" if has_draft else ""


def row_intervals(row: Row, coverage: float = COVERAGE) -> Mapping[str, Interval]:
    """The interval of each metric with enough measured points."""
    is_calibrated = row.replayable.calibration is not None
    return _intervals(row, coverage, is_calibrated=is_calibrated)


def _intervals(row: Row, coverage: float, *, is_calibrated: bool) -> Mapping[str, Interval]:
    conditions = conditions_of(row)
    if conditions is None:
        return {}
    calibration = row.replayable.calibration if is_calibrated else None
    errors = _errors(calibration) if calibration else {}

    def points(metric: str) -> Sequence[MeasuredPoint]:
        return _calibrated(conditions, metric) if calibration else measured_points()

    intervals = {}
    for metric in METRICS:
        if metric == "rate" and row.is_served and not row.is_closed_loop:
            continue  # the rate is that of the arrivals
        found = interval(conditions, metric, points(metric), coverage, errors.get(metric, 0.0))
        if calibration is None:
            found = elsewhere(found, conditions, metric, coverage)
        intervals[metric] = found
    return {metric: entry for metric, entry in intervals.items() if entry is not None}


def _calibrated(conditions: Conditions, metric: str) -> Sequence[MeasuredPoint]:
    """Calibrated points: of the same engine, GPU and model if they are enough, else of all. The
    calibration removes what deployments of others differ by."""
    points = calibrated_points()
    same = [p for p in points if p.conditions.group == conditions.group and metric in p.ratios]
    return same if len(same) >= FEWEST else [point.of_group(conditions) for point in points]


def _errors(calibration: Calibration) -> dict[str, float]:
    """Half of the intervals of the factors' logarithms, by the metric that they correct."""
    prefill, step = (
        log(high / low) / 2
        for low, high in (calibration.prefill_speed_interval, calibration.step_time_interval)
    )
    return {"ttft": prefill, "itl": step, "rate": step}


def conditions_of(row: Row) -> Conditions | None:
    """The conditions of a prediction; None for what was not measured at all."""
    if _never_measured(row.replayable):
        return None
    (pool,) = row.replayable.pools
    timing = pool.engine["engine"]["timing_model"]["config"]
    requests = row.results[0]["requests"]
    rate = median(metrics.output_rate for metrics in row.metrics)
    itl_ms = median(metrics.itl_p50_ms or 0.0 for metrics in row.metrics)
    model, engine, gpu = _group(row.replayable)
    batch = decoding(rate, itl_ms, pool.replicas * pool.engine["dp_size"])
    return Conditions(
        engine=engine,
        gpu=gpu,
        model=model,
        layout=layout_of(pool.engine["dp_size"], timing.get("moe_ep_size", 1)),
        is_recent=True,
        gpus=pool.gpus,
        batch=batch,
        is_idle=idle(batch, _queue_share(row)),
        input_tokens=mean(requests["input_length"]),
        output_tokens=mean(requests["output_length"]),
    )


def _queue_share(row: Row) -> float:
    """The mean prefill queue time as a share of the mean TTFT, of the first seed."""
    columns = row.results[0]["requests"]
    names = ("arrival_time_ms", "first_token_ms", "last_token_ms", "prefill_queue_ms")
    ttft_ms = queue_ms = 0.0
    for arrived, first, last, queued in zip(*map(columns.get, names), strict=True):
        if last is not None:
            ttft_ms += first - arrived
            queue_ms += queued or 0.0
    return queue_ms / ttft_ms if ttft_ms else 0.0


def _group(deployment: Replayable) -> tuple[str, str, str]:
    """Model, engine and GPU."""
    model, gpu, engine = group_of(deployment)
    return model, engine, gpu
