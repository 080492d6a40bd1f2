"""Computes correction factors: those with which a replay of the same requests is nearest to the
measurement.

Requests are grouped by their uncached input tokens. The middles of the groups are compared, since
single requests depend on chance: on the router's choice between equal workers, and on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log, nan

import numpy as np
from numpy.typing import NDArray

from penstock.errors import BenchError
from penstock.simulate.calibration import Factors

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
FEWEST = 40  # requests
GROUP, MOST_GROUPS, FEWEST_GROUPS = 10, 24, 4  # requests of a group, and numbers of groups
STEP = 0.1  # of the logarithm of a factor, to both sides, for its derivative
LARGEST = log(2.0)  # change of the logarithm of a factor in one iteration
SETTLED = 0.003  # change of the logarithm of a factor that ends the iterations
ITERATIONS = 8
AVERAGED = 4  # last iterations, whose mean counts if the factors do not settle
HUBER = 1.345  # scales of the errors, from which a group counts less: 95% efficient for normal ones
FLOOR = 0.003  # relative error below which groups are equally good
REWEIGHTINGS = 20
BLOCKS = 10  # parts of the run, of which the jackknife leaves out one after the other
# 95 % two-sided quantiles of Student's t by degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
WIDEST = 0.25  # half of the widest accepted interval of a factor
SPREAD = 1.5  # least ratio of long to short uncached inputs


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Of requests in order of arrival, in milliseconds; NaN where a request has none."""

    ttft: Array
    itl: Array


@dataclass(frozen=True, kw_only=True)
class Fit:
    factors: Factors
    intervals: tuple[tuple[float, float], ...]
    """Of each factor, in their order: 95% confidence."""
    requests: int
    before: Latencies
    """Predicted without factors."""
    after: Latencies
    """Predicted with them."""


Predict = Callable[[Sequence[Factors]], Sequence[Latencies]]
"""The predicted latencies of the measured requests with each of the factors."""


def fit(measured: Latencies, uncached: Array, predict: Predict) -> Fit:
    """``uncached``: input tokens of each request that are not in a prefix cache.

    BenchError if the requests are too few or too much alike to distinguish the factors.
    """
    (before,) = predict([Factors()])
    usable = np.isfinite(measured.ttft) & np.isfinite(before.ttft)
    _require_variety(usable, measured, uncached)
    model, logs, noise = _Model.of(measured, uncached, usable), np.zeros(2), np.zeros(3)
    fixed_ms, tried = 0.0, list[Array]()
    for _ in range(ITERATIONS):
        around, last = _around(logs, fixed_ms, predict), logs
        change, fixed_ms = model.solve(around, usable)
        logs = logs + np.clip(change, -LARGEST, LARGEST)
        tried.append(np.array([*logs, fixed_ms]))
        if float(np.abs(change).max()) < SETTLED:
            break
    else:
        # Chance in the replays keeps the factors from settling.
        last_factors = np.array(tried[-AVERAGED:])
        noise = last_factors.std(axis=0, ddof=1) / np.sqrt(AVERAGED)
        logs, fixed_ms = last_factors.mean(axis=0)[:2], float(last_factors.mean(axis=0)[2])
    factors = _factors(logs, fixed_ms)
    errors = T_95[BLOCKS - 2] * np.hypot(model.errors(around, last, usable), noise)
    intervals = intervals_of(factors, errors)
    require_certain(
        intervals,
        "Raise --requests, or measure at another load or with longer inputs and outputs.",
    )
    (after,) = predict([factors])
    return Fit(
        factors=factors,
        intervals=intervals,
        requests=int(usable.sum()),
        before=before,
        after=after,
    )


def _factors(logs: Array, fixed_ms: float = 0.0) -> Factors:
    speed, step = (exp(float(logarithm)) for logarithm in logs)
    return Factors(prefill_speed=speed, step_time=step, fixed_ttft_ms=fixed_ms)


def _around(logs: Array, fixed_ms: float, predict: Predict) -> Sequence[Latencies]:
    """At the factors, and with each of the two a little higher and lower. Without the fixed TTFT,
    but with its effect on the arrivals of later turns."""
    shifts = np.array([[0, 0], [STEP, 0], [-STEP, 0], [0, STEP], [0, -STEP]])
    predicted = predict([_factors(logs + shift, fixed_ms) for shift in shifts])
    return [Latencies(ttft=latencies.ttft - fixed_ms, itl=latencies.itl) for latencies in predicted]


@dataclass(frozen=True, kw_only=True)
class _Model:
    """The latencies as linear functions of the changes of the factors' logarithms."""

    measured: Latencies
    groups: Sequence[NDArray[np.int_]]
    """Requests with about as many uncached input tokens."""

    @staticmethod
    def of(measured: Latencies, uncached: Array, usable: Mask) -> _Model:
        order = np.flatnonzero(usable)
        order = order[np.argsort(uncached[order], kind="stable")]
        count = int(np.clip(len(order) // GROUP, FEWEST_GROUPS, MOST_GROUPS))
        return _Model(measured=measured, groups=np.array_split(order, count))

    def solve(self, around: Sequence[Latencies], counted: Mask) -> tuple[Array, float]:
        """(changes of the two logarithms, fixed TTFT in ms) from the ``counted`` requests."""
        ttft = self._equations("ttft", around, counted, constant=1.0)
        itl = self._equations("itl", around, counted, constant=0.0)
        changes = _robust(ttft, itl)
        if changes[2] >= 0:
            return changes[:2], float(changes[2])
        # Nothing takes less than no time.
        return _robust(*((left[:, :2], right) for left, right in (ttft, itl))), 0.0

    def _equations(
        self, name: str, around: Sequence[Latencies], counted: Mask, *, constant: float
    ) -> tuple[Array, Array]:
        """(coefficients, right-hand side), one row for each group, relative to its latency."""
        measured: Array = getattr(self.measured, name)
        rows, right = [], []
        for group in self.groups:
            indices = group[counted[group] & np.isfinite(measured[group])]
            if not len(indices):
                continue
            center = middle(measured[indices])
            base, *sides = (middle(getattr(side, name)[indices]) for side in around)
            slopes = [(sides[at] - sides[at + 1]) / (2 * STEP) for at in (0, 2)]
            rows.append(np.array([*slopes, constant]) / center)
            right.append((center - base) / center)
        return np.array(rows).reshape(-1, 3), np.array(right)

    def errors(self, around: Sequence[Latencies], logs: Array, usable: Mask) -> Array:
        """Standard errors of the two logarithms and of the fixed TTFT: by the jackknife over parts
        of the run, since neighboring requests are alike. ``logs``: those of ``around``."""
        ratios = []
        for part in np.array_split(np.flatnonzero(usable), BLOCKS):
            counted = usable.copy()
            counted[part] = False
            change, fixed_ms = self.solve(around, counted)
            ratios.append([*(logs + change), fixed_ms])
        values = np.array(ratios)
        spread = ((values - values.mean(axis=0)) ** 2).sum(axis=0)
        return np.asarray(np.sqrt((BLOCKS - 1) / BLOCKS * spread))


def middle(values: Array) -> float:
    """The mean of the middle half: as robust as needed, and smoother than the median where
    latencies come in steps."""
    ordered = np.sort(values[np.isfinite(values)])
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def array_of(values: Sequence[float | None]) -> Array:
    """NaN for None."""
    return np.array([nan if value is None else value for value in values], float)


def intervals_of(factors: Factors, errors: Array) -> tuple[tuple[float, float], ...]:
    """``errors``: half of the intervals of the two logarithms, and of the fixed TTFT in ms."""
    speed, step, fixed = errors
    least = max(0.0, factors.fixed_ttft_ms - float(fixed))
    return (
        (factors.prefill_speed * exp(-speed), factors.prefill_speed * exp(speed)),
        (factors.step_time * exp(-step), factors.step_time * exp(step)),
        (least, factors.fixed_ttft_ms + float(fixed)),
    )


def _robust(*parts: tuple[Array, Array]) -> Array:
    """The least squares of all parts, with Huber's weights by the scale of each part's errors."""
    weights = [np.full(len(right), 1 / max(1, len(right))) for _, right in parts]
    solution = np.zeros(parts[0][0].shape[1])
    for _ in range(REWEIGHTINGS):
        roots = [np.sqrt(weight)[:, None] for weight in weights]
        left = np.vstack([a * root for (a, _), root in zip(parts, roots, strict=True)])
        right = np.concatenate([b * root[:, 0] for (_, b), root in zip(parts, roots, strict=True)])
        size = np.linalg.norm(left, axis=0)
        size[size == 0] = 1.0
        last, solution = solution, np.linalg.lstsq(left / size, right, rcond=None)[0] / size
        weights = [_weights(a @ solution - b) for a, b in parts]
        if np.allclose(last, solution, rtol=1e-6, atol=1e-9):
            break
    return solution


def _weights(errors: Array) -> Array:
    scale = max(FLOOR, 1.4826 * float(np.median(np.abs(errors)))) if len(errors) else FLOOR
    far = np.maximum(1.0, np.abs(errors) / (HUBER * scale))
    return 1 / (far * scale**2)


def _require_variety(usable: Mask, measured: Latencies, uncached: Array) -> None:
    def refused(message: str, fix: str) -> BenchError:
        return BenchError(message, place="--calibrate", fix=fix)

    count = int(usable.sum())
    if count < FEWEST:
        message = f"{count} requests after the warm-up are too few; at least {FEWEST} are needed"
        raise refused(message, "Raise --requests.")
    if np.isfinite(measured.itl[usable]).sum() < count / 2:
        message = "more than half of the responses have no ITL, so the step time is not known"
        raise refused(message, "Use a workload with longer outputs, and a server that streams.")
    short, long = np.quantile(uncached[usable], (0.1, 0.9))
    if long < SPREAD * max(short, 1.0):
        message = (
            f"the uncached inputs have {short:.0f} to {long:.0f} tokens (10th to 90th percentile), "
            "so prefill speed and fixed TTFT cannot be distinguished"
        )
        fix = "Use a workload whose longest inputs have several times the tokens of the shortest."
        raise refused(message, fix)


def require_certain(intervals: Sequence[tuple[float, float]], fix: str) -> None:
    """BenchError if an interval is too wide."""
    for name, (low, high) in zip(("prefill speed", "step time"), intervals, strict=False):
        if high > low * (1 + WIDEST) ** 2:
            message = f"the 95% interval of the {name} is × {low:.2f} to {high:.2f}: too wide"
            raise BenchError(message, place="--calibrate", fix=fix)
