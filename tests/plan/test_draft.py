"""Speculative decoding as a part of the candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.manifests.deployment import Role
from penstock.plan.estimate import DRAFTING, Estimator
from penstock.plan.graph_text import graph_text
from penstock.plan.planning import Plan
from penstock.plan.request import DRAFT_TOKENS, METHOD, Draft, draft_of
from penstock.plan.space import Candidate, Layout, candidates
from tests.plan.simulated_study import ONE, aggregated, disaggregated, request
from tests.plan.test_estimate import STEP, TRAFFIC
from tests.plan.test_report import document_of, planned, printed_lines

GPT_OSS = "openai/gpt-oss-120b"
RATES = (0.8, 0.5, 0.25)
DRAFT = Draft(model="org/head", rates=RATES)
DRAFTS = replace(aggregated(2), drafts=True)


def test_a_step_generates_the_accepted_tokens_and_one_more() -> None:
    assert DRAFT.length == pytest.approx(1 + 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * 0.25)
    assert Draft(model="org/head", rates=(1.0, 1.0)).length == 3


def test_the_draft_model_of_gpt_oss_is_known() -> None:
    draft = draft_of(GPT_OSS, None, (*RATES, 0.2, 0.1))
    assert draft == Draft(model="nvidia/gpt-oss-120b-Eagle3-v3", rates=RATES)
    assert draft.tokens == DRAFT_TOKENS
    assert draft_of(GPT_OSS, "org/head", RATES) == DRAFT
    assert draft_of(GPT_OSS, None, None) is None


def test_another_model_needs_a_draft_model_and_a_draft_model_needs_rates() -> None:
    with pytest.raises(UsageError, match=r"is known for org/m\. Fix: Name one with --draft-model"):
        draft_of("org/m", None, RATES)
    with pytest.raises(UsageError, match="Add --acceptance RATES, such as --acceptance chat"):
        draft_of(GPT_OSS, "org/head", None)


def test_each_candidate_is_also_considered_with_a_draft_model() -> None:
    plain = candidates(request(), [Layout(gpus=1)])
    both = candidates(request(draft=DRAFT), [Layout(gpus=1)])
    assert set(both) == {*plain, *(replace(candidate, drafts=True) for candidate in plain)}
    assert str(DRAFTS) == f"2 × TP1 aggregated, batch 1024, steps of 8192, {METHOD}"
    assert aggregated(2).complexity < DRAFTS.complexity < aggregated(3).complexity


@pytest.mark.parametrize("candidate", [aggregated(1), disaggregated(1, 1)])
def test_a_request_alone_is_faster_by_the_tokens_of_its_steps(candidate: Candidate) -> None:
    roles = (Role.WORKER, Role.PREFILL, Role.DECODE)
    table = {(ONE, role): STEP for role in roles}
    estimator = Estimator(table, replace(TRAFFIC, rate=0.001), transfer_ms=5.0, draft=DRAFT)
    plain, drafts = estimator.at(candidate, 1.0), estimator.at(replace(candidate, drafts=True), 1.0)
    assert plain
    assert drafts
    # Four tokens are verified, each as long as one of another request: 10.4 instead of 10.1 ms.
    expected = DRAFT.length * 10.1 / 10.4 / DRAFTING
    assert drafts.user_rate / plain.user_rate == pytest.approx(expected, rel=0.01)
    best = estimator.bound().at(replace(candidate, drafts=True), 1.0)
    assert best
    assert best.user_rate / plain.user_rate == pytest.approx(DRAFT.length, rel=0.01)
    fast = Slo(itl_ms=9)
    assert (
        estimator.capacity(candidate, fast)
        == 0
        < estimator.capacity(replace(candidate, drafts=True), fast)
    )


def test_the_graph_has_the_draft_model_only_if_the_candidate_drafts() -> None:
    text = graph_text(request(draft=DRAFT), DRAFTS)
    assert "speculation:\n  method: eagle3\n  draft_model: org/head\n  draft_tokens: 3\n" in text
    assert "speculation" not in graph_text(request(draft=DRAFT), aggregated(2))


def considered(*, drafts: bool, has_other: bool) -> Plan:
    winner = DRAFTS if drafts else aggregated(2)
    plan = planned(winner)
    other = replace(plan.winner, candidate=replace(winner, drafts=not drafts))
    asked = replace(plan.request, draft=DRAFT)
    return replace(plan, request=asked, other_decoding=other if has_other else None)


@pytest.mark.slow  # renders a graph
def test_the_plan_states_the_rates_and_the_best_graph_of_the_other_kind() -> None:
    def line(plan: Plan) -> str:
        return next(text for text in printed_lines(plan) if text.startswith("speculation: "))

    used = line(considered(drafts=True, has_other=True))
    assert f"{METHOD} (draft model org/head, assumed acceptance rates 0.8, 0.5, 0.25)" in used
    assert f"graph without {METHOD} ({aggregated(2)}) has 2 GPUs and 100 tok/s/user" in used
    unused = line(considered(drafts=False, has_other=False))
    assert unused.startswith(f"speculation: {METHOD} is not used")
    assert f"no replayed graph with {METHOD} met the SLO" in unused
    document = document_of(considered(drafts=True, has_other=True))
    assert document["speculation"]["draft_model"] == "org/head"
    without = planned(aggregated(2))
    assert not any(text.startswith("speculation") for text in printed_lines(without))
    assert "not considered: speculative decoding (add --acceptance)" in "\n".join(
        printed_lines(without)
    )
