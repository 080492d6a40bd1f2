"""Measured divided by predicted figures of the points that `accuracy.py predict` has replayed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.simulate.frontend import DEFAULT, TIMES
from penstock.simulate.interval import Conditions, MeasuredPoint, decoding, family, idle, layout_of
from point_graphs import Point, checkpoint_of, number

# Remarks of the sources and of docs/measured-points.md about figures that are out of line.
OUTLIERS = (
    "outlier",
    "does not rise",
    "out of line",
    "TP8 is slower",
    "fewer than the concurrency",
)
STEADY, BURST, UNSTATED = "steady", "burst", "configuration not stated"
# TensorRT-LLM 1.2 and vLLM 0.15. On B200, older points of the fitting half are slower.
RECENT = "2025-12-16"
METRICS = {"itl": "ITL", "ttft": "TTFT", "rate": "tokens/s/GPU"}


@dataclass(frozen=True, kw_only=True)
class PointError:
    point: Point
    measured: dict[str, float]  # itl and ttft in ms, rate in output tokens/s/GPU
    predicted: dict[str, float]
    conditions: Conditions
    derived: bool  # the throughput is that of Little's law from TTFT and ITL

    @property
    def kind(self) -> str:
        """Bursts have no steady state. AIConfigurator's points do not state limits, cache, spread
        of lengths and number of requests."""
        if self.point["load"] == "burst":
            return BURST
        return UNSTATED if self.point["source_group"] == "aiconfigurator" else STEADY

    @property
    def ratios(self) -> dict[str, float]:
        return {name: self.measured[name] / self.predicted[name] for name in self.measured}

    @property
    def as_measured_point(self) -> MeasuredPoint:
        return MeasuredPoint(conditions=self.conditions, ratios=self.ratios)


def point_error(point: Point, row: dict[str, str]) -> PointError | None:
    """None for an outlier of the source, and for a point that could not be replayed."""
    if row["error"] or any(text in point["note"] for text in OUTLIERS):
        return None
    pairs = {"itl": _pair(point, row, "tpot_ms"), "ttft": _pair(point, row, "ttft_ms")}
    found = {name: pair for name, pair in pairs.items() if pair}
    if "ttft" in found:  # the replay has no frontend; that of the sources has the default tokenizer
        ours, theirs = found["ttft"]
        found["ttft"] = ours, theirs + TIMES[DEFAULT].ms(number(point, "isl"))
    # The engine waits up to 20 steps to collect prefills, which the replay does not.
    if "batch_wait_timeout_iters" in point["engine_limits"]:
        found.pop("ttft", None)
    derived = not point["output_tok_s_gpu"]
    if not derived:
        found["rate"] = float(point["output_tok_s_gpu"]), float(row["output_tok_s_gpu"])
    elif point["load"] == "concurrency" and {"itl", "ttft"} <= set(found):
        measured, predicted = (_rate(point, found, which) for which in (0, 1))
        found["rate"] = measured, predicted
    return PointError(
        point=point,
        measured={name: pair[0] for name, pair in found.items()},
        predicted={name: pair[1] for name, pair in found.items()},
        conditions=_conditions(point, row),
        derived=derived,
    )


def _pair(point: Point, row: dict[str, str], name: str) -> tuple[float, float] | None:
    for column in (f"{name}_mean", f"{name}_p50"):
        if point[column]:
            return float(point[column]), float(row[column])
    return None


def _rate(point: Point, found: dict[str, tuple[float, float]], which: int) -> float:
    """Output tokens/s/GPU of a closed loop, by Little's law."""
    output = float(point["osl"])
    request_ms = found["ttft"][which] + found["itl"][which] * (output - 1)
    return float(point["concurrency"]) * output / request_ms * 1000 / float(point["gpus"])


def _conditions(point: Point, row: dict[str, str]) -> Conditions:
    replicas, dp = max(1, number(point, "decode_replicas")), max(1, number(point, "decode_dp"))
    gpus = number(point, "decode_tp") * dp * max(1, number(point, "decode_pp"))
    rate = float(row["output_tok_s_gpu"]) * gpus * replicas
    batch = decoding(rate, float(row["tpot_ms_mean"]), replicas * dp)
    queue_share = float(row["queue_ms_mean"]) / max(float(row["ttft_ms_mean"]), 1e-6)
    return Conditions(
        engine=point["engine"],
        gpu=point["gpu"],
        model=family("-".join(filter(None, checkpoint_of(point)))),
        layout=layout_of(dp, number(point, "decode_ep")),
        is_recent=is_recent(point),
        gpus=gpus,
        batch=round(batch, 1),
        is_idle=idle(batch, queue_share),
        input_tokens=float(point["isl"]),
        output_tokens=float(point["osl"]),
    )


def is_recent(point: Point) -> bool:
    return point["date"] >= RECENT and "dev" not in point["engine_version"]
