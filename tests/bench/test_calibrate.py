"""The fit of correction factors, with a formula instead of replays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from penstock.bench.calibrate import Array, Latencies, Predict, fit
from penstock.errors import BenchError
from penstock.simulate.calibration import Factors

RANDOM = np.random.default_rng(5)
INPUTS = RANDOM.lognormal(8, 0.7, 200).round()
HIDDEN = Factors(prefill_speed=0.65, step_time=1.1, fixed_ttft_ms=30.0)
CASES = [
    HIDDEN,
    Factors(prefill_speed=3.0, step_time=0.4, fixed_ttft_ms=0.0),
    *(
        Factors(prefill_speed=speed, step_time=step, fixed_ttft_ms=fixed)
        for speed, step, fixed in RANDOM.uniform((0.3, 0.5, 5), (2, 2, 200), (4, 3))
    ),
]


def served(factors: Factors, inputs: Array) -> Latencies:
    """A prefill step waits for half a decode step, and each prefill delays 20 tokens."""
    prefill = (5 + 0.02 * inputs) / factors.prefill_speed
    step = 6 * factors.step_time
    return Latencies(
        ttft=prefill + step / 2 + factors.fixed_ttft_ms, itl=step + prefill.mean() / 20 + 0 * inputs
    )


def predictor(inputs: Array) -> Predict:
    def predict(factors: Sequence[Factors]) -> list[Latencies]:
        return [served(each, inputs) for each in factors]

    return predict


def measured(factors: Factors, inputs: Array = INPUTS, noise: float = 0.03) -> Latencies:
    exact = served(factors, inputs)
    random = np.random.default_rng(7)
    noisy = (each * random.normal(1, noise, len(each)) for each in (exact.ttft, exact.itl))
    ttft, itl = noisy
    return Latencies(ttft=ttft, itl=itl)


@pytest.mark.parametrize("hidden", CASES, ids=str)
def test_hidden_factors_are_recovered(hidden: Factors) -> None:
    fitted = fit(measured(hidden), INPUTS, predictor(INPUTS))
    assert fitted.requests == 200
    assert fitted.factors.prefill_speed == pytest.approx(hidden.prefill_speed, rel=0.05)
    assert fitted.factors.step_time == pytest.approx(hidden.step_time, rel=0.05)
    assert fitted.factors.fixed_ttft_ms == pytest.approx(hidden.fixed_ttft_ms, rel=0.05, abs=1.5)
    for value, (low, high) in zip(
        (fitted.factors.prefill_speed, fitted.factors.step_time, fitted.factors.fixed_ttft_ms),
        fitted.intervals,
        strict=True,
    ):
        assert 0 <= low <= value <= high


def test_stalled_requests_hardly_change_the_factors() -> None:
    run = measured(HIDDEN)
    run.ttft[::10] += 5000
    run.itl[::15] *= 20
    fitted = fit(run, INPUTS, predictor(INPUTS)).factors
    assert fitted.prefill_speed == pytest.approx(0.65, rel=0.05)
    assert fitted.step_time == pytest.approx(1.1, rel=0.05)


def test_requests_without_a_counterpart_are_left_out() -> None:
    run = measured(HIDDEN)
    run.ttft[:50] = np.nan
    assert fit(run, INPUTS, predictor(INPUTS)).requests == 150


def test_a_fixed_ttft_below_zero_becomes_zero() -> None:
    run = measured(Factors(prefill_speed=1.0, step_time=1.0, fixed_ttft_ms=-8.0))
    assert fit(run, INPUTS, predictor(INPUTS)).factors.fixed_ttft_ms == 0


@pytest.mark.parametrize(
    ("inputs", "noise", "message"),
    [
        (INPUTS[:30], 0.0, "30 requests after the warm-up are too few"),
        (np.full(200, 4000.0), 0.0, "prefill speed and fixed TTFT cannot be distinguished"),
        (INPUTS, 0.9, "95% interval of the .*: too wide"),
    ],
)
def test_a_run_that_does_not_show_the_factors_is_refused(
    inputs: Array, noise: float, message: str
) -> None:
    with pytest.raises(BenchError, match=message):
        fit(measured(HIDDEN, inputs, noise), inputs, predictor(inputs))


def test_responses_without_itl_do_not_show_the_step_time() -> None:
    run = measured(HIDDEN)
    run.itl[:150] = np.nan
    with pytest.raises(BenchError, match="no ITL"):
        fit(run, INPUTS, predictor(INPUTS))
