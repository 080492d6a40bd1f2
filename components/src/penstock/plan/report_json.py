"""A plan as JSON."""

from __future__ import annotations

from dataclasses import asdict

from penstock.plan.documents import (
    Changed,
    DisaggregationDocument,
    MarginDocument,
    NotReplayed,
    PlanDocument,
    RouterDocument,
    ScaleDocument,
    SpeculationDocument,
    TrialDocument,
)
from penstock.plan.margin import meets_slo
from penstock.plan.planning import Plan
from penstock.plan.report import disaggregation, headroom, margins_of, reason, shown, speculation
from penstock.plan.sensitivity import Comparison
from penstock.plan.trials import Trial
from penstock.simulate.documents import SCHEMA_VERSION, Figures
from penstock.simulate.metrics import spreads
from penstock.simulate.report import figures_of, working_set_document
from penstock.simulate.study import Row


def as_json(plan: Plan, attain: float, graph: str) -> str:
    aggregated, disaggregated = plan.aggregated, plan.disaggregated
    settings = plan.winner.candidate.settings
    return PlanDocument(
        schema_version=SCHEMA_VERSION,
        model=plan.request.model,
        gpu=plan.request.gpu.name,
        gpus=plan.request.gpus,
        objective=plan.request.objective,
        slo=plan.request.slo,
        attain=attain,
        workload=plan.workload.workload,
        recommended=str(plan.winner.candidate),
        reason=reason(plan),
        best_aggregated=str(aggregated.candidate) if aggregated else None,
        best_disaggregated=str(disaggregated.candidate) if disaggregated else None,
        speculation=_speculation(plan),
        router=RouterDocument(**asdict(settings), reason=plan.routing.reason),
        headroom=list(headroom(plan, attain)),
        confidence=plan.request.confidence,
        margins=[
            MarginDocument(**asdict(one), is_met=one.is_met) for one in margins_of(plan, attain)
        ],
        planned_scale=plan.base,
        scale_headroom=plan.headroom,
        n_minus_one=plan.request.survives_loss,
        after_loss={name: _changed(row, plan, attain) for name, row in plan.losses.items()},
        sensitivity={
            name: _changed(row, plan, attain) for name, row in plan.sensitivity_rows.items()
        },
        working_set=working_set_document(plan.working_set),
        disaggregation=DisaggregationDocument(
            summary=disaggregation(plan), scales=list(map(_comparison, plan.compared))
        ),
        graphs=[figures_of(trial.row) for trial in shown(plan)],
        not_considered={str(layout): why for layout, why in plan.excluded.items()},
        candidates=plan.considered,
        replays=plan.replays,
        time_limit_reached=plan.is_late,
        graph=graph,
    ).as_json()


def _speculation(plan: Plan) -> SpeculationDocument | None:
    if plan.request.draft is None:
        return None
    return SpeculationDocument(
        draft_model=plan.request.draft.model,
        acceptance=plan.request.draft.rates,
        is_used=plan.winner.candidate.drafts,
        summary=next(iter(speculation(plan))),
    )


def _changed(row: Row | str, plan: Plan, attain: float) -> Changed | NotReplayed:
    if isinstance(row, str):
        return NotReplayed(not_replayed=row)
    return Changed(
        meets_slo=meets_slo(row, plan.request, attain),
        figures=Figures(**dict(spreads(row.metrics))),
    )


def _comparison(one: Comparison) -> ScaleDocument:
    return ScaleDocument(
        scale=one.scale,
        favors_disaggregated=one.favors_disaggregated,
        disaggregated=_trial(one.disaggregated),
        aggregated=_trial(one.aggregated),
    )


def _trial(trial: Trial | None) -> TrialDocument | None:
    if trial is None:
        return None
    return TrialDocument(
        meets_slo=trial.meets_slo, goodput=trial.goodput, user_rate=trial.user_rate or None
    )
