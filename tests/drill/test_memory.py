"""The memory of processes during a drill."""

from __future__ import annotations

import os

import pytest

from penstock.drill import memory
from penstock.drill.memory import MIB, MemorySampler, trend


def samples(minutes: int, growth_mib_per_hour: float) -> list[tuple[float, float]]:
    """One per 5 s, after a start-up that fills caches."""
    seconds = range(0, minutes * 60 + 1, 5)
    return [
        (1000.0 + s, MIB * ((50 if s < 60 else 100) + growth_mib_per_hour * s / 3600))
        for s in seconds
    ]


@pytest.mark.parametrize("slope", [0.0, 12.0, -3.0])
def test_the_slope_is_that_of_the_samples_after_the_start(slope: float) -> None:
    fit = trend("frontend.0", samples(62, slope))
    assert fit is not None
    assert fit.slope_mib_per_hour == pytest.approx(slope, abs=1e-6)
    assert fit.minutes == 60
    assert fit.last_mib - fit.first_mib == pytest.approx(slope)


def test_a_process_that_ran_briefly_has_no_slope() -> None:
    assert trend("decode.0", samples(6, 0)) is None
    assert trend("decode.0", samples(1, 0)) is None


def test_processes_are_sampled_and_those_that_ended_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "INTERVAL_S", 0.01)
    asked = []

    def processes() -> dict[str, int]:
        asked.append(1)
        return {"self": os.getpid(), "ended": 2**22 + 1}

    with MemorySampler(processes) as sampler:
        while len(asked) < 4:
            pass
    assert {name for name, _ in sampler.samples} == {"self"}
    assert all(rss > MIB for _, rss in sampler.samples["self", os.getpid()])
    assert sampler.trends() == ()
