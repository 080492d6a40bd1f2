"""Workers over time, compared with values computed by hand, and the fixed pools of a comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.graph.slo import Slo
from penstock.reports.text import table_lines
from penstock.simulate.documents import as_json
from penstock.simulate.fixed import fixed_pools
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import Planner, Replayable
from penstock.simulate.report import notes, table_of
from penstock.simulate.scaling import Event, Scaling, scaling_of
from penstock.simulate.study import Row
from penstock.workload import find_workload
from tests.simulate.test_metrics import answer, steady
from tests.simulate.test_replayable import of
from tests.support.outputs import read_output


def disagg() -> Replayable:
    """1 × 1 and 1 × 4 GPUs."""
    return of("gpt-oss-120b-b200-disagg", "prefill.replicas=1")


def planned() -> Replayable:
    return replace(
        disagg(),
        name="graph, planner",
        planner=Planner(config={}, startup_s=60.0, max_gpus=8),
        slo=Slo(ttft_ms=60),
    )


def change(at_s: float, active: int, starting: int = 0, draining: int = 0) -> dict[str, Any]:
    states = {"active": active, "starting": starting, "draining": draining}
    return {"at_ms": at_s * 1000, "pool": "prefill", **states}


def scaled() -> dict[str, Any]:
    """A second prefill worker that starts at 20 s, is ready at 50 s, stops at 80 s and is removed
    at 90 s of 100 s."""
    events = [
        {"at_s": 20.0, "component": "prefill", "from_count": 1, "to_count": 2},
        {"at_s": 80.0, "component": "prefill", "from_count": 2, "to_count": 1},
    ]
    changes = [
        change(20, 1, starting=1),
        change(50, 2),
        change(80, 1, draining=1),
        change(90, 1),
    ]
    found = steady()
    found["summary"]["duration_ms"] = 100_000.0
    return {**found, "scaling": {"events": events, "changes": changes}}


def test_a_worker_holds_its_gpus_from_the_decision_to_its_last_request() -> None:
    found = scaling_of(scaled(), planned())
    assert found.worker_ms == (170_000, 100_000)
    assert found.average == (1.7, 1.0)
    assert found.peak == (2, 1)
    assert found.gpus(planned()) == pytest.approx(1.7 * 1 + 1.0 * 4)
    assert [(s.at_ms, s.serving, s.allocated) for s in found.steps[0]] == [
        (0, 1, 1),
        (20_000, 1, 2),
        (50_000, 2, 2),
        (80_000, 1, 2),
        (90_000, 1, 1),
    ]
    assert found.events[0] == Event(at_s=20.0, pool="prefill", before=1, after=2)


def test_changes_after_the_end_do_not_count_and_the_last_of_one_time_does() -> None:
    late = scaled()
    late["scaling"]["changes"] = [change(30, 1, starting=4), change(30, 1), change(200, 9)]
    found = scaling_of(late, planned())
    assert found.worker_ms == (100_000, 100_000)
    assert [step.at_ms for step in found.steps[0]] == [0, 30_000, 200_000]


def test_an_aggregated_pool_is_found_by_the_planners_name() -> None:
    aggregated = of("gpt-oss-120b-b200-throughput", "worker.replicas=1")
    asked = scaled()
    for one in asked["scaling"]["changes"]:
        one["pool"] = "agg"
    for event in asked["scaling"]["events"]:
        event["component"] = "agg"
    found = scaling_of(asked, aggregated)
    assert found.worker_ms == (170_000,)
    assert {event.pool for event in found.events} == {"worker"}


def test_fixed_pools_allocate_all_their_workers() -> None:
    found = scaling_of(steady(), disagg())
    assert (found.events, found.peak, found.gpus(disagg())) == ((), (1, 1), 5)
    figures = replay_metrics(steady(), found.gpus(disagg()), Slo())
    assert figures.gpu_hours == pytest.approx(5 * found.end_ms / 3.6e6)


def flat(average: float, peak: int) -> Scaling:
    """A scaling of prefill, with one decode worker throughout."""
    asked = scaled()
    asked["scaling"]["changes"] = [change(0, 1), change(1, peak), change(2, 1)]
    found = scaling_of(asked, disagg())
    return replace(
        found, steps=tuple(found.steps), end_ms=(peak - 1) * 1000 / max(average - 1, 1e-9)
    )


def test_fixed_pools_have_the_rounded_average_and_the_peak() -> None:
    first, *others = fixed_pools(disagg(), [flat(1.5, 4)])
    assert [tuple(p.replicas for p in one.pools) for one in (first, *others)] == [
        (1, 1),
        (2, 1),
        (4, 1),
    ]
    assert [one.gpus for one in (first, *others)] == [5, 6, 8]
    (line,) = first.unscaled
    assert line.endswith("the initial size, the planner's average, rounded down")
    assert others[1].unscaled == ("the pools have a fixed size: the planner's peak",)
    assert others[0].name == "gpt-oss-120b-b200-disagg, fixed 2+1"


def test_a_planner_that_changes_nothing_is_compared_with_the_initial_pools_only() -> None:
    assert len(fixed_pools(disagg(), [scaling_of(steady(), disagg())])) == 1


def planned_row(asked: dict[str, Any]) -> Row:
    gpus = scaling_of(asked, planned()).gpus(planned())
    found = replay_metrics(asked, gpus, planned().slo, counts_all_requests=True)
    return Row(replayable=planned(), metrics=(found,), results=(asked,))


def test_scaling_events_and_gpu_hours_are_reported() -> None:
    row = planned_row(scaled())
    head, line = table_lines(table_of([row]))
    at = head.index("GPU-h")
    assert line[at:].startswith("0.158 ")  # 5.7 GPUs for 100 s
    assert " 5.7 " in line
    lines = list(notes([row], [None]))
    assert lines[0].startswith(
        "graph, planner: initially 1×1 prefill + 1×4 decode on b200, at most 8"
    )
    assert "  scaling events: 20 s prefill 1 → 2" in lines
    assert "    80 s prefill 2 → 1" in lines
    assert "all metrics include the start and the end of the workload" in lines
    document = read_output("simulate", as_json([row], find_workload("short-chat"), [], [None]))
    (scaling,) = document["graphs"][0]["scaling"]
    assert {step["serving"] for step in scaling["workers"]["prefill"]} == {1, 2}


def test_many_scaling_events_are_shortened_and_no_event_is_reported() -> None:
    many = scaled()
    many["scaling"]["events"] *= 20
    assert "    16 more events are in the output of --json" in list(
        notes([planned_row(many)], [None])
    )
    none = scaled()
    none["scaling"] = {"events": [], "changes": []}
    assert "  scaling events: none" in list(notes([planned_row(none)], [None]))


def test_counting_all_requests_includes_the_start_and_the_end() -> None:
    slow = answer(
        *((100.0 * i, 100.0 * i + (900 if i < 10 else 50), 100.0 * i + 1000, 2) for i in range(60))
    )
    assert replay_metrics(slow, 1, Slo(ttft_ms=100)).goodput == 1.0
    complete = replay_metrics(slow, 1, Slo(ttft_ms=100), counts_all_requests=True)
    assert complete.requests == 60
    assert complete.goodput == pytest.approx(50 / 60)
