"""The best graphs of a search that did not finish: after Ctrl-C, or at the time limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.plan.evidence import surest_trials
from penstock.plan.report import objective_line, table_width
from penstock.plan.request import PlanRequest
from penstock.plan.score import Score, score_of
from penstock.plan.trials import Trial
from penstock.reports.text import table_lines
from penstock.simulate.report import table_of

PARTIAL_ROWS = 5


def partial_lines(
    measured: Sequence[Trial],
    request: PlanRequest,
    attain: float,
    budget: int | None,
    width: int | None = None,
    why: str = "interrupted",
) -> Iterator[str]:
    """The best of the trials of a search that was ended, best first. ``why``: what ended it."""
    surest = surest_trials(measured, request.objective)
    score = score_of(request.objective)
    best = sorted(surest, key=lambda t: (t.meets_slo, *_score(t, score)), reverse=True)
    most = "" if budget is None else f", at most {budget} replays"
    count = f"{len(surest)} candidate{'s' * (len(surest) != 1)}"
    yield f"partial result: {why} after {count}{most}; no recommendation"
    if best:
        yield f"SLO: {objective_line(request, attain)}"
        table = table_of([trial.row for trial in best[:PARTIAL_ROWS]])
        yield from table_lines(table, table_width(width))
        yield "best first; further replays may change the order"


def _score(trial: Trial, score: Score) -> tuple[float, ...]:
    return score(trial) if trial.meets_slo else (trial.goodput,)
