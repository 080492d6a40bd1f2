"""The HTML report of `penstock plan`: the recommendation, and charts of all replays."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.errors import SimulationError
from penstock.plan.evidence import Replayed, cost_per_million, loss_name, neighbors, replayed
from penstock.plan.margin import shown_ms
from penstock.plan.planning import NoPlan, Plan
from penstock.plan.plots import cost_plot, pareto_plot, sensitivity_plot
from penstock.plan.report import header, margins_of, objective_line, reason, shown, title
from penstock.plan.trials import Trial
from penstock.reports.page import (
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
    Tile,
    Verdict,
    write_report,
)
from penstock.simulate.report import marked, notes, table_cells
from penstock.simulate.study import Row
from penstock.simulate.working_set import working_sets
from penstock.text.numbers import significant
from penstock.workload.load import LoadedWorkload

SIMULATED = "simulated, not measured"
RECOMMENDED, CLOSEST = "recommended graph", "closest graph"
AT_MAXIMUM = (
    "Each graph is shown at the highest replayed rate at which it meets the SLO, or, if it meets "
    "the SLO at none, at the highest replayed rate."
)
NEAR = (
    "The replayed graphs that differ from it in one setting, or in one setting and the router "
    "settings:"
)
NO_NEIGHBOR = "No graph that differs from it in one setting was replayed."
AT_PLANNED = "Each graph is shown at the planned scale."


def write_page(
    path: Path,
    plan: Plan,
    measured: Sequence[Trial],
    attain: float,
    provenance: Sequence[tuple[str, str]],
) -> None:
    """``measured``: all replays of the search. InputError if the file cannot be written."""
    write_report(path, report_of(plan, measured, attain, provenance))


def report_of(
    plan: Plan, measured: Sequence[Trial], attain: float, provenance: Sequence[tuple[str, str]]
) -> Report:
    found = replayed(measured, plan.request, attain, plan.winner)
    _, *statements, counts, _ = header(plan, attain, "", sys.maxsize)
    rows: dict[str, Row | str] = {"planned traffic": plan.winner.row, **plan.sensitivity_rows}
    rows |= {loss_name(pool): row for pool, row in plan.losses.items()}
    best = shown(plan)
    recommended = f"Recommended: {plan.winner.candidate}. {statement(reason(plan))}"
    sensitivity: list[Part] = [sensitivity_plot(rows, found), _sensitivity_table(rows)]
    return Report(
        title=f"Plan for {title(plan)}",
        subtitle=f"{SIMULATED}; SLO: {objective_line(plan.request, attain)}",
        verdicts=[Verdict(state=State.MET, text=recommended)],
        tiles=list(_tiles(plan, attain)),
        sections=[
            Section(
                title="Reasons",
                parts=[Notes(lines=[*statements, counts.removesuffix(" Command:")])],
            ),
            Section(title="Best graphs", parts=[_table(_figures(best, found))]),
            _replays(found, RECOMMENDED),
            Section(title="Sensitivity and loss of a worker", parts=sensitivity),
            _neighbors(found, RECOMMENDED),
            Section(title="Notes on the best graphs", parts=[_notes(best, plan.workload)]),
        ],
        provenance=provenance,
    )


def write_page_without_plan(
    path: Path,
    result: NoPlan,
    measured: Sequence[Trial],
    attain: float,
    provenance: Sequence[tuple[str, str]],
    error: SimulationError,
) -> None:
    """The closest graph, and what to change. ``error``: what the command reports."""
    write_report(path, report_without_plan(result, measured, attain, provenance, error))


def report_without_plan(
    result: NoPlan,
    measured: Sequence[Trial],
    attain: float,
    provenance: Sequence[tuple[str, str]],
    error: SimulationError,
) -> Report:
    sections = []
    if result.miss is not None:
        found = replayed(measured, result.request, attain, result.miss.trial)
        closest = f"Closest graph: {found.choice.candidate}"
        sections = [
            Section(title=closest, parts=[_table(_figures([found.choice], found))]),
            _replays(found, CLOSEST),
            _neighbors(found, CLOSEST),
            Section(
                title="Notes on the closest graph", parts=[_notes([found.choice], result.workload)]
            ),
        ]
    return Report(
        title=f"Plan for {title(result)}",
        subtitle=f"{SIMULATED}; SLO: {objective_line(result.request, attain)}",
        verdicts=[Verdict(state=State.MISSED, text=f"No recommendation: {error}")],
        sections=sections,
        provenance=provenance,
    )


def _tiles(plan: Plan, attain: float) -> Iterator[Tile]:
    winner, request = plan.winner, plan.request
    yield Tile(name="SLO", value=str(request.slo), note=f"for {attain * 100:.4g}% of requests")
    yield Tile(name="GPUs", value=f"{winner.candidate.gpus} × {request.gpu.name}")
    yield Tile(name="Per user", value=f"{winner.user_rate:,.0f} tokens/s")
    yield Tile(name="Per GPU", value=f"{winner.gpu_rate:,.0f} tokens/s")
    cost = cost_per_million(winner, request.gpu_hour_price)
    if cost is not None:
        value = f"{significant(cost)}" if request.gpu_hour_price else f"{cost:,.0f} GPU-s"
        yield Tile(name="Cost", value=value, note="per million output tokens")
    for one in margins_of(plan, attain):
        took, limit = one.counted(request), one.limit
        value = f"{shown_ms(took)} of {shown_ms(limit)} ms"
        name = f"{one.name} p{attain * 100:.4g}"
        yield Tile(name=name, value=value, note=f"{1 - took / limit:.0%} left")


def statement(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _notes(trials: Sequence[Trial], loaded: LoadedWorkload) -> Notes:
    rows = [trial.row for trial in trials]
    return Notes(lines=list(notes(rows, working_sets(rows, loaded))))


def _replays(found: Replayed, choice_name: str) -> Section:
    """The charts of all replays, and the table of the Pareto front."""
    count, met = len(found.trials), sum(trial.meets_slo for trial in found.trials)
    where = AT_MAXIMUM if found.is_at_maximum else AT_PLANNED
    which = "that meet the SLO" if met else "that were replayed"
    return Section(
        title="Throughput and cost of all replayed graphs",
        parts=[
            f"{met} of {count} replayed graphs meet the SLO (filled marks). {where}",
            pareto_plot(found, choice_name),
            cost_plot(found, choice_name),
            f"Pareto front of the graphs {which}:",
            _table(_figures(found.front, found)),
        ],
    )


def _neighbors(found: Replayed, choice_name: str) -> Section:
    choice = found.choice
    steps = neighbors(choice.candidate, (trial.candidate for trial in found.trials))
    near = [trial for trial in found.trials if trial.candidate in steps]
    parts: list[Part] = [NO_NEIGHBOR]
    if near:
        names = ["differs in", "-", *(steps[trial.candidate] for trial in near)]
        parts = [NEAR, _table(_with_column(_figures([choice, *near], found), names))]
    return Section(title=f"Neighbors of the {choice_name}", parts=parts)


def _table(lines: Sequence[Sequence[str]]) -> Table:
    return Table(headings=lines[0], rows=lines[1:])


def _figures(trials: Sequence[Trial], found: Replayed) -> list[list[str]]:
    """The columns of simulate's table, and of how many requests the figures are."""
    rows = marked([trial.row for trial in trials])
    lines = _with_column(table_cells(rows), ["requests", *(f"{row.requests:,}" for row in rows)])
    if not found.is_at_maximum:
        return lines
    return _with_column(
        lines, ["requests/s", *(f"{significant(trial.request_rate)}" for trial in trials)]
    )


def _with_column(lines: Sequence[Sequence[str]], column: Sequence[str]) -> list[list[str]]:
    """With another second column."""
    pairs = zip(lines, column, strict=True)
    return [[line[0], cell, *line[1:]] for line, cell in pairs]


def _sensitivity_table(rows: Mapping[str, Row | str]) -> Table:
    head, *cells = table_cells([row for row in rows.values() if isinstance(row, Row)])
    found = iter(cells)
    lines = [
        [name, f"not replayed: {row}"] if isinstance(row, str) else [name, *next(found)[1:]]
        for name, row in rows.items()
    ]
    return Table(headings=["traffic", *head[1:]], rows=lines)
