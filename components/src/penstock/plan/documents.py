"""The JSON document of `penstock plan`, from which its published schema is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from penstock.errors import Problem
from penstock.graph.slo import Slo
from penstock.plan.margin import Margin, meets_slo
from penstock.plan.no_plan import PARTIAL_ROWS
from penstock.plan.planning import Plan
from penstock.plan.report import (
    best_trials,
    disaggregation,
    headroom,
    kind_line,
    margins_of,
    reason,
    speculation,
    ties,
)
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.sensitivity import Headroom
from penstock.plan.trials import Trial
from penstock.reports.json_document import Document, VersionedDocument
from penstock.simulate.documents import (
    Figures,
    GivenWorkload,
    GraphFigures,
    WorkingSetDocument,
    figures_of,
    working_set_document,
)
from penstock.simulate.metrics import spreads
from penstock.simulate.study import Row
from penstock.workload.load import LoadedWorkload


class SpeculationDocument(Document):
    """Speculative decoding, if it was considered."""

    draft_model: str
    """Id or path of the draft model."""
    acceptance: Sequence[float]
    """Assumed acceptance rates of draft token 1, 2, …, given that those before it were accepted."""
    is_used: bool
    """Whether the recommended graph uses it."""
    summary: str
    """Comparison with the best graph that decodes the other way."""


class RouterDocument(Document):
    """Router settings of the recommended graph, by the keys of `router` in the graph."""

    prefill_load_scale: float
    """Weight of the prefill load in the selection of a worker."""
    overlap_score_credit: float
    """Weight of cached prefix blocks in the selection of a worker."""
    queue_threshold: float | None
    """Load of a worker above which the router sends it no requests; null if requests wait in the
    engines."""
    queue_policy: str | None
    """Order of requests that wait in the router; null is `fcfs`, by arrival."""
    reason: str
    """Why the graph has these settings."""


class Changed(Document):
    """The recommended graph under other traffic, or with fewer workers."""

    meets_slo: bool
    """Whether the SLO is met."""
    figures: Figures
    """Metrics, each over the seeds."""


class NotReplayed(Document):
    """A change that was not replayed."""

    not_replayed: str
    """Why it was not replayed."""


class TrialDocument(Document):
    """One replayed graph."""

    meets_slo: bool
    """Whether the graph meets the SLO."""
    goodput: float
    """Share of requests that meet the SLO."""
    user_rate: Annotated[float | None, BeforeValidator(lambda rate: rate or None)]
    """Output tokens/s of the median request; null if no request has two output tokens."""


class ScaleDocument(Document):
    """The best disaggregated and the best aggregated graph at one scale."""

    scale: float
    """Multiple of the workload's arrival rate."""
    favors_disaggregated: bool | None
    """Whether the disaggregated graph is better; null if one of them was not replayed."""
    disaggregated: TrialDocument | None
    """The best disaggregated graph; null if it was not replayed."""
    aggregated: TrialDocument | None
    """The best aggregated graph; null if it was not replayed."""


class DisaggregationDocument(Document):
    """From which scale on a disaggregated graph is better."""

    summary: str
    """The result as text."""
    scales: Sequence[ScaleDocument]
    """Comparison at each replayed scale."""


class Question(VersionedDocument):
    """What the plan is for."""

    model: str
    """Id of the model."""
    gpu: str
    """GPU of the workers."""
    gpus: int
    """GPU budget."""
    objective: Objective
    """What the recommended graph is best in."""
    slo: Slo
    """SLO; null is no limit."""
    attain: float
    """Share of requests that must meet the SLO."""
    workload: GivenWorkload
    """Workload, as in a workload file; fields that are not set are missing."""


class PlanDocument(Question):
    """A recommended graph, and the reasons for it."""

    recommended: str
    """Pools and parallelism of the recommended graph."""
    reason: str
    """Why it is recommended."""
    other_kind: str
    """Why it is better than the best graph of the other kind (aggregated or disaggregated)."""
    as_good: list[str]
    """Graphs that are as good, but more complex."""
    best_aggregated: str | None
    """The best aggregated graph; null if none is known to meet the SLO."""
    best_disaggregated: str | None
    """The best disaggregated graph; null if none is known to meet the SLO."""
    speculation: SpeculationDocument | None
    """Speculative decoding; null if it was not considered."""
    router: RouterDocument
    """Router settings of the recommended graph."""
    headroom: Sequence[str]
    """Distance of each latency and of the load from the SLO, as text."""
    confidence: float | None
    """Coverage of the intervals that must meet the SLO; null: the prediction must meet it."""
    margins: Sequence[Margin]
    """Each latency of the SLO."""
    planned_scale: float
    """Multiple of the workload's arrival rate for which the graph is recommended."""
    scale_headroom: Headroom
    """Scales above the planned one."""
    n_minus_one: bool
    """Whether the SLO must also be met with one worker fewer."""
    after_loss: Mapping[str, Changed | NotReplayed]
    """Result after the loss of a worker, by the name of its pool."""
    sensitivity: Mapping[str, Changed | NotReplayed]
    """Result under other traffic, by the change."""
    working_set: WorkingSetDocument | None
    """Prompt tokens that are needed again; null without prefix caching or shared prefixes."""
    disaggregation: DisaggregationDocument
    """Comparison of disaggregated and aggregated graphs."""
    graphs: Sequence[GraphFigures]
    """Figures of the recommended graph, the best of each kind, and the next best."""
    not_considered: Mapping[str, str]
    """Layouts that were left out, each with the reason."""
    candidates: int
    """Number of graphs that were considered."""
    replays: int
    """Number of replays."""
    time_limit_reached: bool
    """Whether the time limit ended the search or the analyses."""
    graph: str
    """YAML of the recommended graph."""


class NoPlanDocument(Question):
    """The best graphs that were replayed, without a recommendation."""

    recommended: None
    """Always null."""
    reason: str
    """Why there is no recommendation."""
    fix: str | None
    """What to change; null if the command was interrupted."""
    graphs: Sequence[GraphFigures]
    """Figures of the graph that is closest to the SLO, and of the next best."""
    replayed: int
    """Number of graphs that were replayed."""


def plan_document(plan: Plan, attain: float, graph: str) -> PlanDocument:
    aggregated, disaggregated = plan.aggregated, plan.disaggregated
    settings = plan.winner.candidate.settings
    return PlanDocument.of(
        plan,
        **_question(plan.request, plan.workload, attain),
        recommended=str(plan.winner.candidate),
        reason=reason(plan),
        other_kind=kind_line(plan),
        as_good=list(ties(plan)),
        best_aggregated=str(aggregated.candidate) if aggregated else None,
        best_disaggregated=str(disaggregated.candidate) if disaggregated else None,
        speculation=_speculation(plan),
        router=RouterDocument.of(settings, reason=plan.routing),
        headroom=list(headroom(plan, attain)),
        confidence=plan.request.confidence,
        margins=margins_of(plan, attain),
        planned_scale=plan.base,
        scale_headroom=plan.headroom,
        n_minus_one=plan.request.survives_loss,
        after_loss={name: _changed(row, plan, attain) for name, row in plan.losses.items()},
        sensitivity={
            name: _changed(row, plan, attain) for name, row in plan.sensitivity_rows.items()
        },
        working_set=working_set_document(plan.working_set),
        disaggregation=DisaggregationDocument.of(
            summary=disaggregation(plan), scales=plan.compared
        ),
        graphs=[figures_of(trial.row) for trial in best_trials(plan)],
        not_considered={str(layout): why for layout, why in plan.excluded.items()},
        candidates=plan.considered,
        time_limit_reached=plan.is_late,
        graph=graph,
    )


def no_plan_document(
    request: PlanRequest,
    loaded: LoadedWorkload,
    attain: float,
    trials: Sequence[Trial],
    problem: Problem,
) -> NoPlanDocument:
    """``trials``: one of each graph, best first. ``problem``: why there is no recommendation."""
    return NoPlanDocument.of(
        **_question(request, loaded, attain),
        recommended=None,
        reason=problem.message,
        fix=problem.fix,
        graphs=[figures_of(trial.row) for trial in trials[:PARTIAL_ROWS]],
        replayed=len(trials),
    )


def _question(request: PlanRequest, loaded: LoadedWorkload, attain: float) -> dict[str, Any]:
    """The fields of `Question`."""
    return {
        "model": request.model,
        "gpu": request.gpu.name,
        "gpus": request.gpus,
        "objective": request.objective,
        "slo": request.slo,
        "attain": attain,
        "workload": loaded.workload,
    }


def _speculation(plan: Plan) -> SpeculationDocument | None:
    if plan.request.draft is None:
        return None
    return SpeculationDocument(
        draft_model=plan.request.draft.model,
        acceptance=plan.request.draft.rates,
        is_used=plan.winner.candidate.drafts,
        summary=speculation(plan),
    )


def _changed(row: Row | str, plan: Plan, attain: float) -> Changed | NotReplayed:
    if isinstance(row, str):
        return NotReplayed(not_replayed=row)
    return Changed(
        meets_slo=meets_slo(row, plan.request, attain),
        figures=Figures(**dict(spreads(row.metrics))),
    )
