"""What a plan reports about its search, its figures and disaggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.plan.documents import plan_document
from penstock.plan.evidence import first_answer
from penstock.plan.planning import Plan
from penstock.plan.report import (
    disaggregation,
    first_answer_line,
    header,
    kind_line,
    reason,
    report_of,
)
from penstock.plan.request import Objective
from penstock.plan.sensitivity import COMPARED, Headroom, compared
from penstock.plan.space import Candidate
from penstock.plan.trials import Limit, TrialSpec
from penstock.reports.text import table_lines
from penstock.simulate.report import table_of
from tests.plan.simulated_study import (
    LOADED,
    Behavior,
    aggregated,
    disaggregated,
    request,
    trials,
)
from tests.reports.read import text_of
from tests.support.outputs import read_output

CANDIDATE = aggregated(2)


def planned(winner: Candidate = CANDIDATE, **changes: Any) -> Plan:
    """A plan with a graph of one family only."""
    (best,) = trials({winner: Behavior(max_scale=2.0)}).of([TrialSpec(winner)])
    plan = Plan(
        request=request(),
        workload=LOADED,
        winner=best,
        aggregated=None if winner.is_disaggregated else best,
        disaggregated=best if winner.is_disaggregated else None,
        runners_up=(),
        base=1.0,
        headroom=Headroom(),
        sensitivity_rows={},
        losses={},
        compared=(),
        considered=2,
        replays=1,
        excluded={},
    )
    return replace(plan, **changes)


def printed_lines(plan: Plan) -> list[str]:
    return text_of(report_of(plan, 0.95)).splitlines()


def header_of(plan: Plan) -> str:
    """The header of the graph, on one line."""
    return " ".join(" ".join(header(plan, 0.95, "penstock plan")).split())


def document_of(plan: Plan) -> Any:
    return read_output("plan", plan_document(plan, 0.95, "").as_json())


def without_itl(plan: Plan) -> Plan:
    """Of requests with one output token."""
    row = plan.winner.row
    missing = {"itl_p50_ms": None, "itl_p90_ms": None, "itl_p99_ms": None, "user_rate": None}
    metrics = tuple(replace(one, **missing) for one in row.metrics)
    winner = replace(plan.winner, row=replace(row, metrics=metrics))
    return replace(plan, winner=winner, aggregated=winner, sensitivity_rows={"more": winner.row})


@pytest.mark.slow  # renders a graph
def test_a_plan_for_outputs_of_one_token_has_no_figures_of_tokens_per_user() -> None:
    plan = without_itl(planned(aggregated(1)))
    assert reason(plan) == "1 GPU suffices"
    assert kind_line(plan) == "no replayed disaggregated graph met the SLO"
    printed = printed_lines(plan)
    head, cells = (line.split("  ") for line in table_lines(table_of([plan.winner.row])))
    found = dict(zip(filter(None, head), filter(None, cells), strict=True))
    texts = {name.strip(): cell.strip() for name, cell in found.items()}
    assert texts["ITL p50 / p99 (ms)"] == "- / -"
    assert texts["tok/s/user"] == "-"
    (changed,) = (line for line in printed if line.startswith("sensitivity, more"))
    assert changed.endswith("TTFT p50 50 ms")
    assert "/user" not in header_of(plan)
    content = document_of(plan)
    assert "user_rate" not in content["graphs"][0]["figures"]


@pytest.mark.slow  # renders a graph
def test_a_plan_reports_the_requests_that_are_too_long() -> None:
    plan = planned(aggregated(1))
    assert "ejected requests" not in f"{printed_lines(plan)} {header_of(plan)}"
    winner = replace(plan.winner, row=replace(plan.winner.row, too_long=3))
    plan = replace(plan, winner=winner, aggregated=winner)
    limit = winner.row.replayable.context
    line = f"rejected requests: 3 (input and output longer than {limit} tokens)"
    assert line in printed_lines(plan)
    assert f"R{line[1:]}." in header_of(plan)
    assert document_of(plan)["graphs"][0]["too_long"] == 3


@pytest.mark.slow  # renders a graph
@pytest.mark.parametrize(
    ("winner", "kind"), [(disaggregated(1, 1), "aggregated"), (aggregated(2), "disaggregated")]
)
def test_a_plan_names_the_time_limit_and_not_the_slo_if_the_search_was_cut_short(
    winner: Candidate, kind: str
) -> None:
    unfinished = {not winner.is_disaggregated: Limit.TIME}
    plan = planned(winner, is_late=True, unfinished=unfinished)
    cause = f"--time-limit ended the search before {kind} graphs were evaluated; raise it"
    assert disaggregation(plan) == f"not known: {cause}"
    assert kind_line(plan) == cause
    text = header_of(plan)
    printed = " ".join(printed_lines(plan))
    content = document_of(plan)
    for output in (text, printed, content["disaggregation"]["summary"]):
        assert cause in output
        assert "graph met the SLO" not in output
    assert "--time-limit was reached: fewer graphs" in text
    assert content["time_limit_reached"] is True


@pytest.mark.slow  # renders a graph
def test_disaggregation_is_worth_it_if_the_whole_search_found_no_aggregated_graph() -> None:
    plan = planned(disaggregated(1, 1))
    assert disaggregation(plan) == "worth it: no replayed aggregated graph met the SLO"
    why = "no aggregated graph was replayed, because all miss the SLO in an estimate"
    unknown = replace(plan, unreplayed={False: why})
    assert disaggregation(unknown) == f"not known: {why}"
    assert kind_line(unknown) == why
    assert "--time-limit" not in header_of(plan)


@pytest.mark.slow  # renders a graph
@pytest.mark.parametrize(
    ("first", "behavior", "why"),
    [
        (
            aggregated(1),
            Behavior(2.0, longer=Behavior(0.5, goodput=0.5)),
            ": in a longer replay: only 50.0% of requests meet the SLO (95% needed), "
            "TTFT p50 50 ms, ITL p50 10.0 ms",
        ),
        (aggregated(4), Behavior(2.0), ", which needs 4 GPUs, at 100 tok/s/user"),
        (CANDIDATE, Behavior(2.0), None),
    ],
)
def test_the_report_states_why_the_first_answer_is_not_recommended(
    first: Candidate, behavior: Behavior, why: str | None
) -> None:
    search = trials({first: behavior})
    search.confirmed(search.of([TrialSpec(first)])[0])
    plan = planned()
    lines = text_of(report_of(plan, 0.95, [*search.measured, plan.winner])).splitlines()
    expected = [f"first answer: {first}{why}"] if why else []
    assert [line for line in lines if line.startswith("first answer")] == expected


@pytest.mark.parametrize(
    ("objective", "reached"),
    [
        (Objective.COST, "2 GPUs"),
        (Objective.THROUGHPUT, "10.1 requests/s, 110 tok/s/GPU"),
        (Objective.INTERACTIVITY, "100 tok/s/user"),
    ],
)
def test_the_first_answer_states_what_it_reaches(objective: Objective, reached: str) -> None:
    search = trials({CANDIDATE: Behavior(2.0)})
    (trial,) = search.of([TrialSpec(CANDIDATE)])
    missed = replace(trial, meets_slo=False)
    assert first_answer([missed], objective) is None
    assert first_answer([missed, trial, trial], objective) is trial
    lower = replace(trial, row=replace(trial.row, scale=0.5))
    assert (first_answer([lower], objective) is lower) is (objective is Objective.THROUGHPUT)
    start = "first answer (not yet confirmed; 100.0% of 5,000 requests met the SLO): "
    assert first_answer_line(trial, objective) == f"{start}{CANDIDATE}, {reached}"


SPLIT, WIDE = disaggregated(1, 1), aggregated(3)
PAIR = f"{SPLIT} compared with {WIDE}"


def plan_comparing(
    user_rate: float,
    *,
    scales: Sequence[float] = COMPARED,
    max_scale: float = 9.0,
    by_gpus: bool = True,
    left: int = 99,
) -> Plan:
    """``max_scale``, ``user_rate``: of the disaggregated graph; the other meets the SLO up to scale
    2, at 100 tok/s/user."""
    plan = planned(SPLIT)
    search = trials({SPLIT: Behavior(max_scale, user_rate), WIDE: Behavior(2.0)}, left=left)
    pairs = compared(search, SPLIT, WIDE, 1.0, by_gpus=by_gpus, scales=scales)
    return replace(plan, aggregated=plan.winner, compared=pairs)


@pytest.mark.slow  # renders a graph
def test_disaggregation_is_not_known_at_a_scale_without_a_replay_of_both_graphs() -> None:
    plan = plan_comparing(90, by_gpus=False, scales=(0.25, 0.5, 1.0, 2.0), left=4)
    unknown = "not known at scale × 0.5, × 2 (one or both graphs were not replayed)"
    assert disaggregation(plan) == f"not worth it at scale × 0.25, × 1; {unknown}: {PAIR}"
    scales = document_of(plan)["disaggregation"]["scales"]
    assert [one["favors_disaggregated"] for one in scales] == [False, None, False, None]
    assert scales[-1]["aggregated"] is None


FEWER, FASTER = "2 GPUs instead of 3", "150 instead of 100 tok/s/user"


@pytest.mark.slow  # renders a graph
@pytest.mark.parametrize(
    ("scales", "max_scale", "by_gpus", "verdict"),
    [
        ((1.0,), 9.0, True, f"worth it at scale × 1 ({FEWER})"),
        ((1.0,), 9.0, False, f"worth it at scale × 1 ({FASTER})"),
        ((0.5, 1.0, 2.0), 9.0, False, f"worth it from scale × 0.5 on ({FASTER})"),
        ((0.5, 1.0, 2.0), 0.5, False, f"worth it only at scale × 0.5 ({FASTER})"),
        ((1.0, 4.0), 1.0, True, f"worth it at scale × 1 ({FEWER}); at scale × 4 both miss the SLO"),
    ],
)
def test_disaggregation_is_worth_it_at_the_scales_that_were_compared(
    scales: Sequence[float], max_scale: float, by_gpus: bool, verdict: str
) -> None:
    plan = plan_comparing(150, scales=scales, max_scale=max_scale, by_gpus=by_gpus)
    assert disaggregation(plan) == f"{verdict}: {PAIR}"
