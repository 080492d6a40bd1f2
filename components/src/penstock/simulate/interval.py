"""Prediction intervals: how far measurements were from predictions at the nearest measured points.

`simulate` and `plan` print them. `benchmarks/accuracy.py report` writes the points.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import ceil, dist, exp, hypot, log, log2, sqrt
from statistics import NormalDist, median

from penstock.models.known import QUANTIZED, VARIANT

FILE = "measured_points.json"
COVERAGE = 0.9
NEAREST = 12  # points that make an interval
FEWEST = 6  # points below which there is no interval
FEWEST_OTHERS = 2  # points of a deployment, that stand for its calibration
UNLIKE = 3.0  # distance of another kind of parallelism, and of older software
FAR = 2.0  # distance of the nearest point from which on an interval is wider
IDLE_BATCH, IDLE_QUEUE = 2.0, 0.1
NARROWEST = 0.05  # half of the narrowest interval: measurements of the same point differ by some %
# Half of the interval of the logarithm of measured / predicted that includes 90 % of the figures of
# other clusters than those of the points: the fitting half of benchmarks/runs (results/runs.json).
ELSEWHERE = {"itl": 0.28, "rate": 0.37, "ttft": 1.2}
MEASURED_ELSEWHERE = {(engine, gpu) for engine in ("vllm", "trtllm") for gpu in ("h100", "h200")}
SAME_LAYERS = {"DeepSeek-R1": "DeepSeek-V3", "DeepSeek-V3.1": "DeepSeek-V3"}
SAME_QUANTIZATION = {"fp4": "nvfp4", "bf16": ""}


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Where errors of predictions are alike: the same group, and near in the rest."""

    engine: str
    gpu: str
    model: str  # see `family`
    layout: str  # of a worker: see `layout_of`
    is_recent: bool  # measured with a release of December 2025 or later
    gpus: int  # of a worker
    batch: float  # decoding requests of a rank
    input_tokens: float
    output_tokens: float
    is_idle: bool = False  # requests hardly run at the same time: see `idle`

    @property
    def group(self) -> tuple[str, str, str]:
        return self.engine, self.gpu, self.model

    @property
    def place(self) -> tuple[float, ...]:
        """A distance of 1 is a factor of 2 in one of the sizes."""
        sizes = (self.gpus, self.batch, self.input_tokens, self.output_tokens)
        return tuple(log2(max(1.0, size)) for size in sizes)

    def distance(self, other: Conditions) -> float:
        unlike = (self.layout != other.layout) + (self.is_recent != other.is_recent)
        return dist(self.place, other.place) + UNLIKE * unlike


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    conditions: Conditions
    ratios: Mapping[str, float]  # measured divided by predicted: itl, ttft, rate
    source: str = ""

    def of_group(self, other: Conditions) -> MeasuredPoint:
        """The point as if it were of the other's engine, GPU and model."""
        engine, gpu, model = other.group
        conditions = replace(self.conditions, engine=engine, gpu=gpu, model=model)
        return replace(self, conditions=conditions)

    @property
    def deployment(self) -> tuple[object, ...]:
        """Points of the same deployment differ only in their requests."""
        own = self.conditions
        return self.source, own.group, own.layout, own.is_recent, own.gpus


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The measurement is between ``low`` and ``high`` times the prediction, with COVERAGE."""

    low: float
    """Lower end of the interval, as a multiple of the predicted value."""
    high: float
    """Upper end of the interval, as a multiple of the predicted value."""
    points: int
    """Number of measured points behind the interval; 0 if it comes only from the errors of
    published runs of other models."""

    @property
    def half_width(self) -> float:
        """As a share of the center."""
        return sqrt(self.high / self.low) - 1


def layers_of(model: str) -> str:
    """`Llama-70B`: from an id or folder, without organization, version, tuning and quantization."""
    name = model.rstrip("/").rpartition("/")[2].removeprefix("Meta-")
    while (shorter := VARIANT.sub("", QUANTIZED.sub("", name))) != name:
        name = shorter
    name = re.sub(r"(Llama)-3\.\d", r"\1", name)
    return SAME_LAYERS.get(name, name)


def family(model: str) -> str:
    """`Llama-70B fp8`: the layers, and the quantization if the name ends with it."""
    quantized = QUANTIZED.search(model.rstrip("/"))
    name = quantized[1].lower() if quantized else ""
    return f"{layers_of(model)} {SAME_QUANTIZATION.get(name, name)}".rstrip()


def layout_of(attention_ranks: int, expert_ranks: int) -> str:
    """`attention-dp`, `tp-ep` (expert parallelism) or `tp`."""
    if attention_ranks > 1:
        return "attention-dp"
    return "tp-ep" if expert_ranks > 1 else "tp"


def idle(batch: float, queue_share: float) -> bool:
    """``queue_share``: the share of the TTFT for which requests wait. Under load, TTFT has other
    errors than that of a single request: steps of other requests delay it."""
    return batch < IDLE_BATCH and queue_share < IDLE_QUEUE


def decoding(output_rate: float, itl_ms: float, ranks: int) -> float:
    """Requests that a rank decodes at a time, by Little's law. ``output_rate``: tokens/s."""
    return output_rate * itl_ms / 1000 / ranks


def interval(
    conditions: Conditions,
    metric: str,
    points: Iterable[MeasuredPoint],
    coverage: float = COVERAGE,
    error: float = 0.0,
) -> Interval | None:
    """The interval of a prediction; None without enough points of the engine, GPU and model.

    The prediction is its center: a correction by the nearest points does not hold for other sources
    of measurements (docs/accuracy.md). The width is the smallest that includes the share
    ``coverage`` of the nearest points, counted as one more than they are (split conformal
    prediction). It grows with the distance to the nearest point. Points of idle requests make the
    intervals of TTFT of idle requests only, and no others. ``error``: of the calibration, half of
    its interval of the logarithm.
    """
    usable = _usable(conditions.group, metric, points)
    if metric == "ttft":
        usable = [p for p in usable if p.conditions.is_idle == conditions.is_idle]
    if len(usable) < FEWEST:
        return None
    nearest = sorted(usable, key=lambda p: p.conditions.distance(conditions))
    ratios = [log(point.ratios[metric]) for point in nearest[:NEAREST]]
    half = max(NARROWEST, _conformal([abs(ratio) for ratio in ratios], coverage))
    half *= max(1.0, nearest[0].conditions.distance(conditions) / FAR)
    half = hypot(half, error)
    return Interval(low=exp(-half), high=exp(half), points=len(ratios))


def elsewhere(
    found: Interval | None, conditions: Conditions, metric: str, coverage: float = COVERAGE
) -> Interval | None:
    """The interval for a cluster that did not measure the points: at least as wide as the errors
    for the published runs. None if there are neither enough points nor such errors.

    ``found``: the interval from the points; None if they are too few. It does not change for the
    TTFT of idle requests.
    """
    is_alone = metric == "ttft" and conditions.is_idle
    if is_alone or (found is None and conditions.group[:2] not in MEASURED_ELSEWHERE):
        return found
    normal = NormalDist()
    half = ELSEWHERE[metric] * normal.inv_cdf((1 + coverage) / 2)
    half /= normal.inv_cdf((1 + COVERAGE) / 2)
    if found is not None and found.high > exp(half):
        return found
    return Interval(low=exp(-half), high=exp(half), points=found.points if found else 0)


def has_interval(group: tuple[str, str, str], metric: str) -> bool:
    """``group``: as `Conditions.group`."""
    is_measured = len(_usable(group, metric, measured_points())) >= FEWEST
    return is_measured or group[:2] in MEASURED_ELSEWHERE


def _usable(
    group: tuple[str, str, str], metric: str, points: Iterable[MeasuredPoint]
) -> list[MeasuredPoint]:
    return [point for point in points if metric in point.ratios and point.conditions.group == group]


def _conformal(errors: Sequence[float], coverage: float) -> float:
    rank = ceil(coverage * (len(errors) + 1))
    return sorted(errors)[min(rank, len(errors)) - 1]


@cache
def measured_points() -> tuple[MeasuredPoint, ...]:
    content = json.loads(files("penstock.simulate.data").joinpath(FILE).read_text("utf-8"))
    return tuple(
        MeasuredPoint(
            conditions=Conditions(**row["conditions"]), ratios=row["ratios"], source=row["source"]
        )
        for row in content["points"]
    )


@cache
def calibrated_points() -> tuple[MeasuredPoint, ...]:
    """The points of `measured_points` as if their deployments had been calibrated: each ratio is
    divided by the median ratio of the other points of its deployment."""
    deployments = defaultdict[tuple[object, ...], list[MeasuredPoint]](list)
    for point in measured_points():
        deployments[point.deployment].append(point)
    return tuple(
        replace(point, ratios=dict(_without_common(point, points)))
        for points in deployments.values()
        for point in points
    )


def _without_common(
    point: MeasuredPoint, points: Sequence[MeasuredPoint]
) -> Iterator[tuple[str, float]]:
    for metric, ratio in point.ratios.items():
        others = [p.ratios[metric] for p in points if p is not point and metric in p.ratios]
        if len(others) >= FEWEST_OTHERS:
            yield metric, ratio / median(others)
