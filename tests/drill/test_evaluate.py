"""The evaluation reports exactly the failure that was planted in a history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.drill.evaluate import Failure, FailureType, FaultRecord, evaluate, with_pauses
from penstock.drill.traffic import Ending, RequestKind, StreamResult
from penstock.manifests.deployment import Role

STALL_S = 5.0


def request(number: int, **more: object) -> StreamResult:
    """Request ``number`` starts at second ``number`` and takes two seconds."""
    sent = StreamResult(
        number=number,
        error="",
        started_s=float(number),
        first_token_s=number + 0.1,
        ended_s=number + 2.0,
        longest_gap_s=0.1,
        gap_ended_s=number + 1.0,
        text=f"text {number}",
    )
    return replace(sent, **more)  # type: ignore[arg-type]


def cut(number: int, **more: object) -> StreamResult:
    return request(number, ending=Ending.TRUNCATED, error="cut", **more)


def rejected(number: int) -> StreamResult:
    return request(number, ending=Ending.REJECTED, error="HTTP 503")


def fault(**more: object) -> FaultRecord:
    """A decode worker is killed at second 10 and is back at second 13."""
    record = FaultRecord(
        number=1,
        kind="kill",
        target="decode.0",
        role=Role.DECODE,
        started_s=10.0,
        ended_s=10.0,
        recovered_s=13.0,
        has_survivor=True,
    )
    return replace(record, **more)  # type: ignore[arg-type]


def only_failure(stream: StreamResult, cause: FaultRecord | None = None, **more: Any) -> Failure:
    """Of a history with one request and one fault."""
    (failure,) = evaluate([stream], [cause or fault()], stall_s=STALL_S, **more).failures
    return failure


HISTORY = [request(number) for number in range(30)]
EXPECTED = {number: f"text {number}" for number in range(30)}
PLANTED = {
    FailureType.LOST: rejected(9),
    FailureType.TRUNCATED: cut(9),
    FailureType.DUPLICATED: request(9, ending=Ending.DUPLICATED, error="21 tokens streamed"),
    FailureType.WRONG: request(9, text="text 8"),
    FailureType.STALLED: request(9, longest_gap_s=5.1, gap_ended_s=14.5),
}


def test_a_history_without_failures_passes() -> None:
    evaluation = evaluate(HISTORY, [fault()], stall_s=STALL_S, expected=EXPECTED)
    assert (evaluation.passes, evaluation.failures, evaluation.requests) == (True, (), 30)


@pytest.mark.parametrize("type_", list(FailureType))
def test_a_planted_failure_is_reported_as_exactly_that(type_: FailureType) -> None:
    history = [*HISTORY[:9], PLANTED[type_], *HISTORY[10:]]
    suspended = fault(stalls=True)
    evaluation = evaluate(history, [suspended], stall_s=STALL_S, expected=EXPECTED)
    (failure,) = evaluation.failures
    assert (failure.type, failure.request, failure.fault) == (type_, PLANTED[type_], suspended)
    (row,) = evaluation.rows
    assert row.failed == {type_: 1}
    assert evaluation.passes == (type_ is FailureType.STALLED)  # until the process is known to hang


def test_a_request_refused_without_a_response_is_lost() -> None:
    refused = request(9, ending=Ending.REFUSED, error="ConnectError: refused")
    assert only_failure(refused).type is FailureType.LOST


def test_a_usage_that_does_not_match_the_tokens_is_wrong() -> None:
    assert only_failure(request(9, error="usage says 3 tokens")).type is FailureType.WRONG


def test_without_expected_texts_only_the_counts_are_compared() -> None:
    assert evaluate([PLANTED[FailureType.WRONG]], [fault()], stall_s=STALL_S).passes


def test_a_failure_before_any_fault_is_not_excused() -> None:
    failure = only_failure(cut(3))
    assert (failure.fault, failure.is_unavoidable) == (None, False)
    assert failure.cause == "no fault had been injected yet"


FRONTEND = {"target": "frontend.0", "role": Role.FRONTEND, "port": 8001}
ENVOY = {
    "target": "endpoint.1",
    "role": None,
    "port": 8000,
    "clients": (40_001,),
    "ends_requests": True,
}


@pytest.mark.parametrize(
    ("target", "frontend_port", "client_port", "unavoidable"),
    [
        (FRONTEND, 8001, 40_001, True),
        (FRONTEND, 8002, 40_001, False),
        (ENVOY, 8001, 40_001, True),
        (ENVOY, 8001, 40_002, False),
        (ENVOY, None, None, False),
        (ENVOY | {"ends_requests": False}, 8001, 40_001, False),  # SIGTERM drains it
    ],
)
def test_only_the_streams_of_a_frontend_or_envoy_that_dies_are_permitted_failures(
    target: dict[str, object], frontend_port: int, client_port: int, unavoidable: bool
) -> None:
    stream = cut(9, frontend_port=frontend_port, client_port=client_port)
    evaluation = evaluate([stream], [fault(**target)], stall_s=STALL_S)
    assert evaluation.failures[0].is_unavoidable is unavoidable
    assert evaluation.passes is unavoidable
    assert evaluation.rows[0].unavoidable == unavoidable


def test_without_another_frontend_all_open_streams_are_permitted_failures() -> None:
    dead = fault(**FRONTEND, has_survivor=False)
    assert evaluate([cut(9)], [dead], stall_s=STALL_S).passes


@pytest.mark.parametrize("target", [FRONTEND, ENVOY, {"target": "graph", "is_outage": True}])
def test_a_stream_that_breaks_after_the_recovery_is_avoidable(target: dict[str, object]) -> None:
    late = cut(9, ended_s=14.1, frontend_port=8001, client_port=40_001)
    failure = only_failure(late, fault(**({"role": None} | target)))
    assert not failure.is_unavoidable
    assert "after the recovery" in failure.cause


@pytest.mark.parametrize(
    ("survivor", "cause"), [(True, "retry should have"), (False, "env install envoy")]
)
def test_requests_that_arrive_after_it_died_are_not(survivor: bool, cause: str) -> None:
    late = request(11, ending=Ending.REFUSED, error="refused")
    dead = fault(**FRONTEND, ended_s=12.0, has_survivor=survivor)
    failure = only_failure(late, dead)
    assert not failure.is_unavoidable
    assert cause in failure.cause


def test_a_lost_stream_of_a_worker_with_a_survivor_is_avoidable() -> None:
    failure = only_failure(cut(9))
    assert not failure.is_unavoidable
    assert "another replica could have served it" in failure.cause


@pytest.mark.parametrize("kind", list(RequestKind))
@pytest.mark.parametrize(
    ("changes", "is_lost_with_its_worker"),
    [
        ({"ends_requests": True}, True),
        # A change that drains its workers must lose nothing.
        ({"kind": "edit-config", "target": "graph", "role": None}, False),
        ({"kind": "term"}, False),
    ],
)
def test_only_a_grammar_excuses_what_is_lost_with_a_killed_worker(
    kind: RequestKind, changes: dict[str, object], is_lost_with_its_worker: bool
) -> None:
    failure = only_failure(cut(9, kind=kind), fault(**changes))
    is_excused = is_lost_with_its_worker and kind in (RequestKind.GUIDED, RequestKind.TOOLS)
    assert (failure.is_unavoidable, failure.is_not_migratable) == (is_excused, is_excused)
    never_began = replace(rejected(9), kind=kind)  # another worker could have taken it
    assert only_failure(never_began, fault(**changes)).is_unavoidable is False


@pytest.mark.parametrize(("gap_s", "has_survivor", "unavoidable"), [
    (5.2, True, False), (5.2, False, True), (4.9, True, True),
])  # fmt: skip
def test_one_process_that_hangs_excuses_a_stall_only_until_it_must_be_replaced(
    gap_s: float, has_survivor: bool, unavoidable: bool
) -> None:
    stopped = fault(stalls=True, ends_requests=True, has_survivor=has_survivor, recovered_s=17.0)
    stalled = request(9, longest_gap_s=gap_s, gap_ended_s=10 + gap_s, ended_s=20.0)
    (failure,) = evaluate([stalled], [stopped], stall_s=2.0).failures
    assert failure.is_unavoidable is unavoidable, failure.cause


def test_a_failure_belongs_to_the_last_fault_that_had_begun() -> None:
    faults = [fault(), fault(number=2, kind="stop", started_s=20.0, ended_s=25.0, recovered_s=30.0)]
    evaluation = evaluate([cut(21)], faults, stall_s=STALL_S)
    assert evaluation.failures[0].fault == faults[1]
    assert [(row.kind, row.failed) for row in evaluation.rows] == [
        ("kill", {}),
        ("stop", {FailureType.TRUNCATED: 1}),
    ]


def test_a_fault_without_recovery_and_leftovers_fail() -> None:
    assert not evaluate(HISTORY, [fault(recovered_s=None)], stall_s=STALL_S).passes
    assert not evaluate(HISTORY, [fault()], stall_s=STALL_S, leftovers=["pid 7"]).passes


def test_a_row_counts_the_requests_that_overlap_and_the_recovery() -> None:
    faults = [fault(), fault(number=2, started_s=20.0, ended_s=20.0, recovered_s=21.0)]
    (row,) = evaluate(HISTORY, faults, stall_s=STALL_S).rows
    assert row.faults == 2
    # Requests 8 to 13 overlap the first fault, 18 to 21 the second.
    assert row.requests == 6 + 4
    assert (row.recovery_s_median, row.recovery_s_p99) == (2.0, 3.0)


def test_each_fault_may_cause_the_permitted_failures() -> None:
    history = [rejected(number) for number in (9, 10, 11, 21)]
    faults = [fault(), fault(number=2, started_s=20.0, ended_s=20.0, recovered_s=21.0)]
    for limit, above in ((0, ("kill",)), (2, ("kill",)), (3, ())):
        evaluation = evaluate(
            history, faults, stall_s=STALL_S, permitted={"kill": limit, "term": 9}
        )
        assert (evaluation.above_limit, evaluation.passes) == (above, not above)


def test_a_failure_before_any_fault_is_never_permitted() -> None:
    evaluation = evaluate([rejected(1)], [fault()], stall_s=STALL_S, permitted={"kill": 9})
    assert evaluation.above_limit == ("",)


OUTAGE = fault(kind="kill-supervisor", target="graph", role=None, is_outage=True)


@pytest.mark.parametrize(("second", "unavoidable"), [(10, True), (12, True), (14, False)])
def test_an_outage_excuses_failures_until_the_recovery(second: int, unavoidable: bool) -> None:
    lost = request(second, ending=Ending.REFUSED, error="ConnectError")
    assert only_failure(lost, OUTAGE).is_unavoidable is unavoidable


def test_an_outage_does_not_excuse_wrong_tokens() -> None:
    failure = only_failure(request(9, text="x"), OUTAGE, expected=EXPECTED)
    assert (failure.type, failure.is_unavoidable) == (FailureType.WRONG, False)


@pytest.mark.parametrize(
    ("of_network", "began_s", "ended_s", "unavoidable"),
    [
        (False, 9, 17.9, True),
        (False, 9, 18.1, False),  # more than the limit after the recovery
        (False, 13.1, 18.2, False),  # the fault was over
        (False, 5.1, 13, True),
        (False, 4.9, 13, False),  # a stall before the fault
        (True, 9, 18.9, True),  # TCP waits as long again as the connection was dead
        (True, 9, 19.1, False),
    ],
)
def test_a_stall_is_excused_only_while_the_fault_can_cause_it(
    of_network: bool, began_s: float, ended_s: float, unavoidable: bool
) -> None:
    stalled = request(8, longest_gap_s=ended_s - began_s, gap_ended_s=ended_s, ended_s=20.0)
    started_s = 7.0 if of_network else 10.0
    stopped = fault(stalls=True, is_of_network=of_network, started_s=started_s)
    failure = only_failure(stalled, stopped)
    assert (failure.type, failure.is_unavoidable) == (FailureType.STALLED, unavoidable)


def test_a_stall_during_a_fault_that_suspends_nothing_is_not_excused() -> None:
    failure = only_failure(request(9, longest_gap_s=5.9, gap_ended_s=15.5))
    assert (failure.type, failure.is_unavoidable) == (FailureType.STALLED, False)


def test_a_fault_of_the_graph_excuses_no_failure() -> None:
    edit = fault(kind="edit-config", target="graph", role=None)
    assert not only_failure(rejected(10), edit).is_unavoidable


def times(*seconds: float) -> list[StreamResult]:
    return [request(number, ended_s=ended_s) for number, ended_s in enumerate(seconds)]


@pytest.mark.parametrize(
    ("completed", "recovery_s"),
    [
        ((8.0, 8.5, 9.0, 10.5, 11.0, 12.0), 3.0),  # no pause: until the processes are ready
        ((8.0, 8.5, 9.5, 14.6, 15.0), 4.6),  # ready after 3 s, but nothing completes until 14.6
        ((8.0, 8.5, 9.5, 10.2, 12.9, 17.0, 17.1), 7.0),  # of two pauses the last one
        ((4.0, 7.0, 10.5, 13.5), 3.0),  # groups of requests complete every 3 s
        ((8.0, 8.5, 9.0, 12.0, 12.9, 13.2, 20.0), 3.0),  # a pause after the recovery is not its own
        ((12.0, 16.0), 3.0),  # nothing tells what is usual
    ],
)
def test_the_recovery_is_what_clients_see(completed: tuple[float, ...], recovery_s: float) -> None:
    (record,) = with_pauses([fault()], times(*completed))
    assert record.recovery_s == pytest.approx(recovery_s)
    (row,) = evaluate(times(*completed), [record], stall_s=STALL_S).rows
    assert row.recovery_s_median == pytest.approx(record.recovery_s)


def test_a_pause_ends_for_a_fault_at_the_next_one() -> None:
    second = fault(number=2, started_s=14.0, recovered_s=15.0)
    records = with_pauses([fault(), second], times(8.0, 8.5, 9.5, 18.0))
    assert [record.recovery_s for record in records] == [4.0, 4.0]


def test_a_fault_without_recovery_has_no_time() -> None:
    (record,) = with_pauses([fault(recovered_s=None)], times(8.0, 8.5, 9.5, 14.6))
    assert record.recovery_s is None
