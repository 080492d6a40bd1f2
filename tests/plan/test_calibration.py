"""Plans with the correction factors of a calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.plan.request import Objective, PlanRequest, plan_request
from penstock.simulate.calibration import Factors
from penstock.workload import find_workload
from tests.plan.simulated_study import disaggregated
from tests.plan.test_estimate import STEP, estimator
from tests.plan.test_estimate import TRAFFIC as ONE_RATE
from tests.simulate.test_calibration import ENTRY, FACTORS, file_of

LOADED = find_workload("short-chat").with_requests(40)


def requested(scratch: Path, gpu: str, **more: object) -> PlanRequest:
    request = plan_request(
        "gpt-oss-120b",
        LOADED,
        scratch=scratch,
        gpu=gpu,
        gpus=2,
        slo=Slo(ttft_ms=400),
        objective=Objective.COST,
        attain=0.95,
        **more,  # type: ignore[arg-type]
    )
    return request.calibrated(file_of(ENTRY))


@pytest.mark.needs("sim")
def test_a_request_has_the_factors_of_its_model_gpu_and_engine(tmp_path: Path) -> None:
    assert requested(tmp_path, "h100").factors == FACTORS


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("gpu", "more", "message"),
    [
        ("b200", {}, "c.yaml has no entry for gpt-oss-120b, b200, trtllm; its entries are for"),
        ("h100", {"acceptance": (0.8, 0.6)}, "graphs with speculative decoding"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    tmp_path: Path, gpu: str, more: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        requested(tmp_path, gpu, **more)


def test_step_times_are_corrected() -> None:
    found = STEP.corrected(Factors(prefill_speed=0.5, step_time=2.0, fixed_ttft_ms=9.0))
    step = next(iter(STEP.mixed))
    assert found.prompt[step] == 2 * STEP.prompt[step]
    assert found.share[step] == 2 * STEP.share[step]
    assert found.long_prompt[step] == 2 * STEP.long_prompt[step]
    assert found.decode == tuple(2 * ms for ms in STEP.decode)
    # Both factors are 2.
    assert found.mixed[step] == pytest.approx([2 * ms for ms in STEP.mixed[step]])
    assert STEP.corrected(Factors()) == STEP


def test_an_estimate_has_the_corrected_times() -> None:
    slow = replace(ONE_RATE, rate=0.001)
    factors = Factors(prefill_speed=0.5, step_time=1.0)
    before = estimator(slow).at(disaggregated(1, 1), 1.0)
    after = estimator(slow, STEP.corrected(factors)).at(disaggregated(1, 1), 1.0)
    assert before
    assert after
    assert after.ttft_ms == pytest.approx(before.ttft_ms + 200, rel=0.01)
