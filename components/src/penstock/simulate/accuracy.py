"""The prediction intervals of a simulated graph, as text and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from statistics import mean, median
from typing import Any

from penstock.simulate.interval import (
    COVERAGE,
    Conditions,
    Interval,
    decoding,
    family,
    interval,
    layout_of,
    measured_points,
)
from penstock.simulate.metrics import spreads
from penstock.simulate.model import Replayable
from penstock.simulate.study import Row

# Of each metric of `interval`: the metric of the row, and the text of its interval.
METRICS = {
    "itl": ("itl_p50_ms", "ITL p50 {:.3g} to {:.3g} ms"),
    "ttft": ("ttft_p50_ms", "TTFT p50 {:.3g} to {:.3g} ms"),
    "rate": ("gpu_rate", "{:.3g} to {:.3g} tok/s/GPU"),
}
DISAGGREGATED = "no measured point for a disaggregated graph"


def accuracy_line(row: Row) -> str:
    """`90% interval: ITL p50 6.8 to 8.1 ms (12 measured points of gpt-oss-120b, vllm, h100)`."""
    found = row_intervals(row)
    if not found:
        return no_points(row.replayable)
    values = dict(spreads(row.metrics))
    texts = [
        text.format(
            values[name].median * found[metric].low, values[name].median * found[metric].high
        )
        for metric, (name, text) in METRICS.items()
        if metric in found and name in values
    ]
    engine, model = _engine(row.replayable), _model(row.replayable)
    used = next(iter(found.values()))
    models = model if used.is_of_model else f"other models than {model}"
    points = f"{used.points} measured points of {models}, {engine['backend']}"
    return f"{COVERAGE:.0%} interval: {', '.join(texts)} ({points}, {row.replayable.gpu.name})"


def no_points(deployment: Replayable) -> str:
    """`no measured point for gpt-oss-120b, sglang and gb300`."""
    if len(deployment.pools) > 1:
        return DISAGGREGATED
    engine = _engine(deployment)["backend"]
    return f"no measured point for {_model(deployment)}, {engine} and {deployment.gpu.name}"


def as_json(row: Row) -> dict[str, Any]:
    """Factors of the predicted figures, by metric; empty without measured points."""
    return {metric: asdict(found) for metric, found in row_intervals(row).items()}


def row_intervals(row: Row) -> Mapping[str, Interval]:
    conditions = conditions_of(row)
    if conditions is None:
        return {}
    points = measured_points()
    found = {metric: interval(conditions, metric, points) for metric in METRICS}
    return {metric: one for metric, one in found.items() if one is not None}


def conditions_of(row: Row) -> Conditions | None:
    """None if it was not measured at all: separate pools."""
    if len(row.replayable.pools) > 1 or not row.results:
        return None
    (pool,) = row.replayable.pools
    timing = pool.engine["engine"]["timing_model"]["config"]
    requests = row.results[0]["requests"]
    rate = median(one.output_rate for one in row.metrics)
    itl_ms = median(one.itl_p50_ms for one in row.metrics)
    return Conditions(
        engine=pool.engine["engine"]["backend"],
        gpu=row.replayable.gpu.name,
        model=_model(row.replayable),
        layout=layout_of(pool.engine["dp_size"], timing.get("moe_ep_size", 1)),
        is_recent=True,
        gpus=pool.gpus,
        batch=decoding(rate, itl_ms, pool.replicas * pool.engine["dp_size"]),
        input_tokens=mean(requests["input_length"]),
        output_tokens=mean(requests["output_length"]),
    )


def _engine(deployment: Replayable) -> Mapping[str, Any]:
    engine: Mapping[str, Any] = deployment.pools[0].engine["engine"]
    return engine


def _model(deployment: Replayable) -> str:
    return family(_engine(deployment)["timing_model"]["config"]["model"])
