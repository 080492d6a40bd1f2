"""A replay's figures are of a steady state, or the row says that they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.reports.text import table_lines
from penstock.simulate.documents import as_rows
from penstock.simulate.metrics import replay_metrics, spreads
from penstock.simulate.replay import Cache, Job, Replays, Result
from penstock.simulate.report import marked, notes, table_of
from penstock.simulate.study import Row, Study
from penstock.simulate.window import DURATIONS, Steadiness
from penstock.workload import find_workload
from penstock.workload.load import LoadedWorkload
from tests.simulate.test_metrics import answer, steady
from tests.simulate.test_study import prompts, round_robin

pytestmark = pytest.mark.slow


def queue(requests: int, *, every_ms: float, service_ms: float) -> dict[str, Any]:
    """One server: requests that arrive faster than it serves them wait for it."""
    rows, free = [], 0.0
    for number in range(requests):
        arrived = number * every_ms
        begun = max(arrived, free)
        free = begun + service_ms
        rows.append((arrived, begun + 1, free, 11))
    return answer(*rows)


def steadiness_of(result: dict[str, Any]) -> Steadiness:
    measured = replay_metrics(result, 1, Slo()).steadiness
    assert measured is not None
    return measured


def test_a_served_stream_of_many_durations_is_steady() -> None:
    state = steadiness_of(queue(200, every_ms=100, service_ms=90))
    assert (state.is_steady, state.growth, state.reason) == (True, 1.0, "")
    assert state.served_rate == pytest.approx(state.offered_rate, rel=0.02)
    assert state.request_s == pytest.approx(0.09)


@pytest.mark.parametrize("load", [1.1, 1.5, 4])
def test_an_overloaded_server_is_never_steady(load: float) -> None:
    for requests in (100, 1000, 10_000):
        state = steadiness_of(queue(requests, every_ms=100 / load, service_ms=100))
        assert not state.is_steady
        assert "requests/s complete" in state.reason
        assert state.served_rate == pytest.approx(10, rel=0.1)
    short = steadiness_of(queue(1000, every_ms=100 / load, service_ms=100))
    assert steadiness_of(queue(2000, every_ms=100 / load, service_ms=100)).is_overloaded(short)


def test_batches_that_still_fill_are_no_overload() -> None:
    """The first token comes at once, and the requests take longer than the window."""
    short, longer = (
        steadiness_of(answer(*((50.0 * i, 50.0 * i + 50, 50.0 * i + took, 11) for i in range(n))))
        for n, took in ((60, 3000), (120, 7000))
    )
    assert not longer.is_served
    assert not longer.is_overloaded(short)
    assert f"{DURATIONS:g} are needed" in longer.reason
    assert longer.growth > 1


@pytest.mark.parametrize("requests", [1000, 4000])
def test_a_queue_that_grows_slowly_is_not_steady(requests: int) -> None:
    state = steadiness_of(queue(requests, every_ms=100 / 1.03, service_ms=100))
    assert state.is_served
    assert state.is_long_enough
    assert (state.is_steady, state.growth) == (False, 2)
    assert state.reason.startswith("the median TTFT of the last third of the window is ")


@pytest.mark.parametrize("requests", [5, 10, 18, 30])
def test_requests_in_flight_at_the_end_of_an_idle_deployment_are_no_overload(
    requests: int,
) -> None:
    state = steadiness_of(queue(requests, every_ms=10_000, service_ms=200))
    assert (state.is_steady, state.reason) == (True, "")


def test_two_arrivals_at_the_end_are_no_overload() -> None:
    arrivals = [1000.0 * number for number in range(30)] + [29_050.0]
    state = steadiness_of(answer(*((at, at + 50, at + 300, 11) for at in arrivals)))
    assert state.is_steady


def test_requests_that_arrive_at_once_have_no_rate() -> None:
    for requests in (1, 300):
        state = steadiness_of(queue(requests, every_ms=0, service_ms=10))
        assert state.reason == ("all measured requests arrive at once, so there is no arrival rate")
        assert (state.offered_rate, state.served_rate, state.is_served) == (0, 0, False)
        assert state.full_growth == 8


def test_a_window_of_few_durations_needs_longer_traffic() -> None:
    state = steadiness_of(
        answer(*((100.0 * i, 100.0 * i + 50, 100.0 * i + 3000, 11) for i in range(150)))
    )
    assert state.is_served
    assert not state.is_steady
    assert f"{DURATIONS:g} are needed" in state.reason
    assert state.growth in (2, 4, 8)


def test_the_warm_up_does_not_become_longer_with_the_traffic() -> None:
    """A window of 10 s after 40 s of warm-up: five times 10 s need a run of 92.5 s."""
    short = Steadiness(window_s=10, request_s=10, offered_rate=4, served_rate=4, warm_up_s=40)
    assert short.growth == 2
    ramping = replace(short, served_rate=3, request_s=40)
    assert (ramping.growth, ramping.full_growth) == (2, 8)


@dataclass
class Served(Replays):
    """Replays whose result depends on the number of requests."""

    result: Callable[[int], dict[str, Any]] = lambda _: {}
    lengths: list[int] = field(default_factory=list)

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Result]:
        self.lengths += [job.trace.count("\n") for job in jobs]
        return [self.result(job.trace.count("\n")) for job in jobs]


def steady_row(
    result: Callable[[int], dict[str, Any]], loaded: LoadedWorkload
) -> tuple[Row, list[int]]:
    replays = Served(cache=Cache(None, ""), processes=1, result=result)
    (row,) = Study(workload=loaded, replays=replays, seeds=1).steady_rows([round_robin()], None)
    return row, replays.lengths


def short(requests: int) -> LoadedWorkload:
    loaded = find_workload("short-chat")
    return loaded.with_workload(loaded.workload.with_requests(requests))


def slow(requests: int) -> dict[str, Any]:
    """A request every 100 ms, which takes 3 s."""
    return answer(*((100.0 * i, 100.0 * i + 50, 100.0 * i + 3000, 11) for i in range(requests)))


def test_traffic_is_lengthened_until_the_state_is_steady() -> None:
    row, lengths = steady_row(slow, short(100))
    assert row.is_steady
    assert lengths[0] == 100
    assert lengths == sorted(lengths)
    assert len(lengths) >= 2
    assert lengths[-1] * 0.1 - 6 >= DURATIONS * 3  # without the warm-up of two durations
    assert steady_row(steady, short(300))[1] == [300]


def test_an_overloaded_deployment_is_repeated_once_only() -> None:
    row, lengths = steady_row(lambda n: queue(n, every_ms=50, service_ms=100), short(1000))
    assert lengths == [1000, 2000]
    assert not row.is_steady


def test_what_cannot_be_longer_stays_and_is_marked() -> None:
    trace = prompts(*[10] * 100)
    row, lengths = steady_row(slow, trace)
    assert lengths == [100]
    assert not row.is_steady
    assert steady_row(slow, short(20_000))[1] == [20_000]
    (_, line) = table_lines(table_of(marked([row])))
    assert line.startswith(f"{row.replayable.name} (not steady)")
    assert any(
        note.startswith("  not steady: the measured window (") for note in notes([row], [None])
    )
    (content,) = as_rows([row])
    assert content["is_steady"] is False
    steady_one, _ = steady_row(steady, short(300))
    assert "not steady" not in "\n".join(
        [*table_lines(table_of(marked([steady_one]))), *notes([steady_one], [None])]
    )


def test_few_requests_of_a_trace_have_no_clients() -> None:
    row, _ = steady_row(steady, prompts(*[10] * 18))
    counted = next(line for line in notes([row], [None]) if "requests in the figures" in line)
    assert counted.endswith("(few: the p99 is the maximum)")
    clients = replace(row, is_closed_loop=True)
    assert any("burst of all clients at the start" in line for line in notes([clients], [None]))


def test_pools_that_a_planner_changes_have_no_steady_state() -> None:
    assert replay_metrics(slow(50), 1, Slo(), counts_all_requests=True).steadiness is None


def test_a_part_of_a_trace_is_lengthened() -> None:
    trace = prompts(*[10] * 900)
    part = trace.with_workload(trace.workload.with_requests(100))
    row, lengths = steady_row(slow, part)
    assert row.is_steady
    assert lengths[0] == 100
    assert lengths[-1] > 100


@pytest.mark.parametrize(("refused", "has_p99"), [(0, True), (1, True), (3, False)])
def test_no_p99_where_more_than_one_percent_was_refused(refused: int, has_p99: bool) -> None:
    figures = replay_metrics(steady(198), 1, Slo(), refused)
    assert figures.refused_share == pytest.approx(refused / (198 + refused))
    names = dict(spreads([figures]))
    assert ("ttft_p99_ms" in names, "itl_p99_ms" in names) == (has_p99, has_p99)
    assert "ttft_p50_ms" in names
    row, _ = steady_row(lambda _: steady(198), short(198))
    refusing = replace(row, metrics=(figures,), too_long=refused)
    text = "\n".join(notes([refusing], [None]))
    assert ("no p99: 1.5% of the requests have no latency" in text) is not has_p99
    (_, line) = table_lines(table_of([refusing]))
    assert ("50 / -" in line) is not has_p99
