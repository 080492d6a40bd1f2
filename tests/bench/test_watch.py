"""Progress and processor time of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.bench.run import Watch


def watched(counts: list[int], times: Iterator[tuple[float, float]]) -> tuple[Watch, list[object]]:
    calls: list[object] = []
    watch = Watch(lambda *what: calls.append(what), 10, lambda: next(times))
    for count in counts:
        watch(count)
    return watch, calls


def test_the_time_before_the_first_record_does_not_count() -> None:
    """Busy and all seconds, at the first record, later, and before the end."""
    times = iter([(90.0, 100.0), (91.0, 104.0), (92.0, 108.0)])
    watch, calls = watched([0, 0, 3, 5, 9, 10], times)
    assert watch.cpu_share == pytest.approx(2 / 8)
    assert calls[:3] == [
        ("starting AIPerf", 0, 0),
        ("starting AIPerf", 0, 0),
        ("sending requests", 0, 10),
    ]
    assert calls[-1] == ("sending requests", 10, 10)


@pytest.mark.parametrize("counts", [[], [0, 0], [10], [3]])
def test_a_run_that_is_too_short_has_no_share(counts: list[int]) -> None:
    watch, _ = watched(counts, iter([(90.0, 100.0)]))
    assert watch.cpu_share == 0.0


def test_a_share_is_at_most_1_although_idle_time_decreases() -> None:
    watch, _ = watched([1, 2], iter([(90.0, 100.0), (94.1, 104.0)]))
    assert watch.cpu_share == 1.0


def test_this_machine_has_processor_time() -> None:
    watch = Watch(lambda *_: None, 10)
    watch(1)
    sum(number**2 for number in range(3_000_000))
    watch(2)
    assert 0 < watch.cpu_share <= 1
