"""The evaluation reports exactly the failure that was planted in a history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.drill.evaluate import FailureType, FaultRecord, evaluate, median, p99
from penstock.drill.traffic import Ending, StreamResult
from penstock.manifests.deployment import Role

STALL_S = 5.0


def request(number: int, **more: object) -> StreamResult:
    """Request ``number`` starts at second ``number`` and takes two seconds."""
    made = StreamResult(
        number=number,
        error="",
        started_s=float(number),
        first_token_s=number + 0.1,
        ended_s=number + 2.0,
        longest_gap_s=0.1,
        text=f"text {number}",
    )
    return replace(made, **more)  # type: ignore[arg-type]


def fault(**more: object) -> FaultRecord:
    """A decode worker is killed at second 10 and is back at second 13."""
    made = FaultRecord(
        number=1,
        kind="kill",
        target="decode.0",
        role=Role.DECODE,
        started_s=10.0,
        ended_s=10.0,
        recovered_s=13.0,
        has_survivor=True,
    )
    return replace(made, **more)  # type: ignore[arg-type]


HISTORY = [request(number) for number in range(30)]
EXPECTED = {number: f"text {number}" for number in range(30)}
PLANTED = {
    FailureType.LOST: request(9, ending=Ending.REJECTED, error="HTTP 503"),
    FailureType.TRUNCATED: request(
        9, ending=Ending.TRUNCATED, error="19 tokens streamed, 20 requested"
    ),
    FailureType.DUPLICATED: request(9, ending=Ending.DUPLICATED, error="21 tokens streamed"),
    FailureType.WRONG: request(9, text="text 8"),
    FailureType.STALLED: request(9, longest_gap_s=5.1),
}


def test_a_history_without_failures_passes() -> None:
    found = evaluate(HISTORY, [fault()], stall_s=STALL_S, expected=EXPECTED)
    assert (found.passes, found.failures, found.requests) == (True, (), 30)


@pytest.mark.parametrize("type_", list(FailureType))
def test_a_planted_failure_is_reported_as_exactly_that(type_: FailureType) -> None:
    history = [*HISTORY[:9], PLANTED[type_], *HISTORY[10:]]
    suspended = fault(stalls=True)
    found = evaluate(history, [suspended], stall_s=STALL_S, expected=EXPECTED)
    (failure,) = found.failures
    assert (failure.type, failure.request, failure.fault) == (type_, PLANTED[type_], suspended)
    (row,) = found.rows
    assert row.failed == {type_: 1}
    assert found.passes == (type_ is FailureType.STALLED)  # until the process is known to hang


def test_a_request_refused_without_a_response_is_lost() -> None:
    refused = request(9, ending=Ending.REFUSED, error="ConnectError: refused")
    (failure,) = evaluate([refused], [fault()], stall_s=STALL_S).failures
    assert failure.type is FailureType.LOST


def test_a_usage_that_does_not_match_the_tokens_is_wrong() -> None:
    (failure,) = evaluate(
        [request(9, error="usage says 3 tokens")], [fault()], stall_s=STALL_S
    ).failures
    assert failure.type is FailureType.WRONG


def test_without_expected_texts_only_the_counts_are_compared() -> None:
    assert evaluate([PLANTED[FailureType.WRONG]], [fault()], stall_s=STALL_S).passes


def test_a_failure_before_any_fault_is_never_permitted() -> None:
    early = request(3, ending=Ending.TRUNCATED, error="cut")
    (failure,) = evaluate([early], [fault()], stall_s=STALL_S).failures
    assert (failure.fault, failure.is_unavoidable, failure.cause) == (
        None,
        False,
        "no fault had been injected yet",
    )


FRONTEND = {"target": "frontend.0", "role": Role.FRONTEND}


def test_the_streams_of_a_frontend_that_dies_are_permitted_failures() -> None:
    cut = request(9, ending=Ending.TRUNCATED, error="cut")
    found = evaluate([cut], [fault(**FRONTEND)], stall_s=STALL_S)
    assert found.failures[0].is_unavoidable
    assert found.passes
    assert found.rows[0].unavoidable == 1


@pytest.mark.parametrize(("survivor", "cause"), [(True, "in time"), (False, "env install envoy")])
def test_requests_that_arrive_after_it_died_are_not(survivor: bool, cause: str) -> None:
    late = request(11, ending=Ending.REFUSED, error="refused")
    dead = fault(**FRONTEND, ended_s=12.0, has_survivor=survivor)
    (failure,) = evaluate([late], [dead], stall_s=STALL_S).failures
    assert not failure.is_unavoidable
    assert cause in failure.cause


def test_a_lost_stream_of_a_worker_with_a_survivor_is_avoidable() -> None:
    cut = request(9, ending=Ending.TRUNCATED, error="cut")
    (failure,) = evaluate([cut], [fault()], stall_s=STALL_S).failures
    assert not failure.is_unavoidable
    assert "another replica could have served it" in failure.cause


def test_a_failure_belongs_to_the_last_fault_that_had_begun() -> None:
    faults = [fault(), fault(number=2, kind="stop", started_s=20.0, ended_s=25.0, recovered_s=30.0)]
    cut = request(21, ending=Ending.TRUNCATED, error="cut")
    found = evaluate([cut], faults, stall_s=STALL_S)
    assert found.failures[0].fault == faults[1]
    assert [(row.kind, row.failed) for row in found.rows] == [
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
    assert row.recovery_s == [1.0, 3.0]


def test_percentiles() -> None:
    assert (median([]), p99([])) == (None, None)
    assert (median([1, 2, 9]), p99([1, 2, 9])) == (2, 9)
    assert p99(list(range(1, 201))) == 198


def test_each_fault_may_cause_the_permitted_failures() -> None:
    history = [request(n, ending=Ending.REJECTED, error="HTTP 503") for n in (9, 10, 11, 21)]
    faults = [fault(), fault(number=2, started_s=20.0, ended_s=20.0, recovered_s=21.0)]
    for limit, above in ((0, ("kill",)), (2, ("kill",)), (3, ())):
        found = evaluate(history, faults, stall_s=STALL_S, permitted={"kill": limit, "term": 9})
        assert (found.above_limit, found.passes) == (above, not above)


def test_a_loss_before_any_fault_is_never_permitted() -> None:
    early = request(1, ending=Ending.REJECTED, error="HTTP 503")
    found = evaluate([early], [fault()], stall_s=STALL_S, permitted={"kill": 9})
    assert found.above_limit == ("",)


@pytest.mark.parametrize(("second", "unavoidable"), [(10, True), (12, True), (14, False)])
def test_an_outage_excuses_failures_until_the_recovery(second: int, unavoidable: bool) -> None:
    outage = fault(kind="kill-supervisor", target="graph", role=None, is_outage=True)
    lost = request(second, ending=Ending.REFUSED, error="ConnectError")
    (failure,) = evaluate([lost], [outage], stall_s=STALL_S).failures
    assert failure.is_unavoidable is unavoidable


def test_an_outage_does_not_excuse_wrong_tokens() -> None:
    outage = fault(kind="kill-supervisor", target="graph", role=None, is_outage=True)
    (failure,) = evaluate(
        [request(9, text="x")], [outage], stall_s=STALL_S, expected=EXPECTED
    ).failures
    assert (failure.type, failure.is_unavoidable) == (FailureType.WRONG, False)


@pytest.mark.parametrize(
    ("stalls", "gap_s", "unavoidable"), [(True, 5.9, True), (True, 6.1, False), (False, 5.9, False)]
)
def test_a_stall_is_excused_only_while_the_fault_can_cause_it(
    stalls: bool, gap_s: float, unavoidable: bool
) -> None:
    stalled = request(9, longest_gap_s=gap_s)
    (failure,) = evaluate([stalled], [fault(stalls=stalls)], stall_s=STALL_S).failures
    assert (failure.type, failure.is_unavoidable) == (FailureType.STALLED, unavoidable)


def test_a_fault_of_the_graph_excuses_no_failure() -> None:
    edit = fault(kind="edit-config", target="graph", role=None)
    lost = request(10, ending=Ending.REJECTED, error="HTTP 404")
    (failure,) = evaluate([lost], [edit], stall_s=STALL_S).failures
    assert not failure.is_unavoidable
