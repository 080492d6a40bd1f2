"""A plan as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from penstock.plan.margin import meets_slo
from penstock.plan.planning import Plan
from penstock.plan.report import disaggregation, headroom, margins_of, reason, shown, speculation
from penstock.plan.sensitivity import Comparison
from penstock.plan.trials import Trial
from penstock.simulate.metrics import spreads
from penstock.simulate.report import SCHEMA_VERSION, as_rows, working_set_json
from penstock.simulate.study import Row


def as_json(plan: Plan, attain: float, graph: str) -> str:
    rows = [trial.row for trial in shown(plan)]
    best = plan.aggregated, plan.disaggregated
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": plan.request.model,
        "gpu": plan.request.gpu.name,
        "gpus": plan.request.gpus,
        "objective": plan.request.objective,
        "slo": plan.request.slo.model_dump(),
        "attain": attain,
        "workload": plan.workload.workload.model_dump(exclude_none=True),
        "recommended": str(plan.winner.candidate),
        "reason": reason(plan),
        "best_aggregated": str(best[0].candidate) if best[0] else None,
        "best_disaggregated": str(best[1].candidate) if best[1] else None,
        "speculation": _speculation_json(plan),
        "router": dict(plan.winner.candidate.settings.keys) | {"reason": plan.routing.reason},
        "headroom": list(headroom(plan, attain)),
        "confidence": plan.request.confidence,
        "margins": [asdict(one) | {"is_met": one.is_met} for one in margins_of(plan, attain)],
        "planned_scale": plan.base,
        "scale_headroom": asdict(plan.headroom),
        "n_minus_one": plan.request.survives_loss,
        "after_loss": {name: _changed_json(row, plan, attain) for name, row in plan.losses.items()},
        "sensitivity": {
            name: _changed_json(row, plan, attain) for name, row in plan.sensitivity_rows.items()
        },
        "working_set": working_set_json(plan.working_set),
        "disaggregation": {
            "summary": disaggregation(plan),
            "scales": list(map(_comparison_json, plan.compared)),
        },
        "graphs": as_rows(rows),
        "not_considered": {str(layout): why for layout, why in plan.excluded.items()},
        "candidates": plan.considered,
        "replays": plan.replays,
        "time_limit_reached": plan.is_late,
        "graph": graph,
    }
    return json.dumps(content, indent=2)


def _speculation_json(plan: Plan) -> dict[str, Any] | None:
    if plan.request.draft is None:
        return None
    return {
        "draft_model": plan.request.draft.model,
        "acceptance": plan.request.draft.rates,
        "is_used": plan.winner.candidate.drafts,
        "summary": next(iter(speculation(plan))),
    }


def _changed_json(row: Row | str, plan: Plan, attain: float) -> dict[str, Any]:
    if isinstance(row, str):
        return {"not_replayed": row}
    figures = {name: asdict(spread) for name, spread in spreads(row.metrics)}
    return {"meets_slo": meets_slo(row, plan.request, attain), "figures": figures}


def _comparison_json(one: Comparison) -> dict[str, Any]:
    return {
        "scale": one.scale,
        "favors_disaggregated": one.favors_disaggregated,
        "disaggregated": _trial_json(one.disaggregated),
        "aggregated": _trial_json(one.aggregated),
    }


def _trial_json(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "meets_slo": trial.meets_slo,
        "goodput": trial.goodput,
        "user_rate": trial.user_rate or None,
    }
