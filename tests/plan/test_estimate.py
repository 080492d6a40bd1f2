"""Estimates from invented step times, compared with known results of queueing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.slo import Slo
from penstock.manifests.deployment import Role
from penstock.plan.estimate import Estimator
from penstock.plan.space import STEPS, Candidate
from penstock.plan.steps import GRID, Steps, prompts_per_step
from penstock.plan.traffic import Traffic, has_shared_prefixes, traffic_of
from penstock.simulate.calibration import Factors
from penstock.workload import Request
from tests.plan.simulated_study import ONE, aggregated, disaggregated

TRAFFIC = Traffic(
    cached=0, fresh=4096, long_fresh=8192, output=100, context=4146, rate=2.0, concurrency=None
)
# An input takes 100 ms, a token 10 ms and 0.1 ms more for each decoding request.
STEP = Steps(
    prompt=dict.fromkeys(STEPS, 100.0),
    long_prompt=dict.fromkeys(STEPS, 200.0),
    share=dict.fromkeys(STEPS, 100.0),
    decode=tuple(10 + 0.1 * running for running in GRID),
    mixed={
        step: tuple(100 * prompts_per_step(4096, step) + 0.1 * running for running in GRID)
        for step in STEPS
    },
    capacity=4_000_000,
)
LOOSE = Slo(ttft_ms=5000, itl_ms=1000)


def estimator(traffic: Traffic = TRAFFIC, steps: Steps = STEP) -> Estimator:
    roles = (Role.WORKER, Role.PREFILL, Role.DECODE)
    return Estimator({(ONE, role): steps for role in roles}, traffic, transfer_ms=5.0)


def test_a_single_request_takes_the_time_of_its_steps() -> None:
    estimate = estimator(replace(TRAFFIC, rate=0.001)).at(disaggregated(1, 1), 1.0)
    assert estimate
    assert estimate.user_rate == pytest.approx(1000 / 10.1, rel=0.01)
    assert estimate.ttft_ms == pytest.approx(200 + 5 + 10.1, rel=0.01)


def test_prefill_limits_the_capacity_of_a_disaggregated_graph() -> None:
    """One worker prefills ten inputs per second."""
    capacity = estimator().capacity(disaggregated(1, 4), Slo(itl_ms=1000))
    assert capacity * TRAFFIC.rate == pytest.approx(10, rel=0.01)
    assert estimator().at(disaggregated(1, 4), 5.1) is None


def test_decode_limits_the_capacity_of_a_disaggregated_graph() -> None:
    """128 concurrent requests, each 100 tokens of 22.8 ms: 56 requests/s."""
    narrow = replace(disaggregated(8, 1), worker=replace(disaggregated(8, 1).worker, batch=128))
    capacity = estimator().capacity(narrow, Slo(itl_ms=1000))
    assert capacity * TRAFFIC.rate == pytest.approx(128 / (100 * 0.0228), rel=0.01)


def test_the_kv_cache_limits_the_concurrent_requests() -> None:
    small = replace(STEP, capacity=10 * TRAFFIC.context)
    capacity = estimator(steps=small).capacity(disaggregated(8, 1), Slo(itl_ms=1000))
    assert capacity * TRAFFIC.rate == pytest.approx(10 / (100 * 0.011), rel=0.01)


def test_prefill_slows_decode_in_one_pool_and_not_in_two() -> None:
    alone, apart = (estimator().at(c, 3.0) for c in (aggregated(1), disaggregated(1, 1)))
    assert alone
    assert apart
    assert alone.user_rate < 0.6 * apart.user_rate


def test_closed_loop_clients_send_requests_as_fast_as_they_are_served() -> None:
    """One client: sequential requests of 100 ms and 100 tokens, about 0.9 requests/s."""
    estimate = estimator(replace(TRAFFIC, concurrency=1)).at(disaggregated(1, 1), 1.0)
    assert estimate
    assert estimate.running == pytest.approx(1, abs=0.2)


def test_a_tighter_slo_has_less_capacity() -> None:
    loads = [estimator().capacity(aggregated(1), Slo(itl_ms=itl)) for itl in (100, 40, 20, 12)]
    assert loads == sorted(loads, reverse=True)
    assert estimator().capacity(aggregated(1), Slo(itl_ms=5)) == 0


def test_traffic_counts_possible_prefix_cache_hits() -> None:
    def request(at_ms: float, *blocks: int) -> Request:
        tokens = 64 * len(blocks)
        return Request(at_ms=at_ms, input_tokens=tokens, output_tokens=10, blocks=blocks)

    traffic = traffic_of(
        [request(0, 1, 2), request(500, 1, 3), request(1000, 4, 5)], concurrency=None
    )
    assert (traffic.fresh, traffic.cached) == (107, 21)  # 128, 64 and 128 of 128 each
    assert traffic.rate == 3
    assert has_shared_prefixes([request(0, 1), request(1, 1, 2)])
    assert not has_shared_prefixes([request(0, 1), request(1, 2)])


@pytest.mark.parametrize("candidate", [aggregated(2), disaggregated(1, 1), disaggregated(2, 3)])
def test_no_estimate_is_better_than_the_optimistic_one(candidate: Candidate) -> None:
    for slo in (LOOSE, Slo(ttft_ms=260), Slo(itl_ms=12), Slo(e2e_ms=2000)):
        capacity, bound = estimator().capacity(candidate, slo), estimator().bound()
        assert 0 < capacity <= bound.capacity(candidate, slo)
        twice = bound.scaled(2).capacity(candidate, slo)  # is a bound too
        assert twice == pytest.approx(bound.capacity(candidate, slo) / 2, rel=0.01)


def test_step_times_are_corrected() -> None:
    steps = STEP.corrected(Factors(prefill_speed=0.5, step_time=2.0, fixed_ttft_ms=9.0))
    step = next(iter(STEP.mixed))
    assert steps.prompt[step] == 2 * STEP.prompt[step]
    assert steps.share[step] == 2 * STEP.share[step]
    assert steps.long_prompt[step] == 2 * STEP.long_prompt[step]
    assert steps.decode == tuple(2 * ms for ms in STEP.decode)
    # Both factors are 2.
    assert steps.mixed[step] == pytest.approx([2 * ms for ms in STEP.mixed[step]])
    assert STEP.corrected(Factors()) == STEP


def test_an_estimate_has_the_corrected_times() -> None:
    slow = replace(TRAFFIC, rate=0.001)
    factors = Factors(prefill_speed=0.5, step_time=1.0)
    before = estimator(slow).at(disaggregated(1, 1), 1.0)
    after = estimator(slow, STEP.corrected(factors)).at(disaggregated(1, 1), 1.0)
    assert before
    assert after
    assert after.ttft_ms == pytest.approx(before.ttft_ms + 200, rel=0.01)
