"""A plan as one self-contained HTML file: the recommendation, and charts of all replays."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.errors import SimulationError
from penstock.plan.evidence import Replayed, loss_name, neighbors, replayed
from penstock.plan.planning import NoPlan, Plan
from penstock.plan.plots import cost_plot, pareto_plot, sensitivity_plot
from penstock.plan.report import header, objective_line, shown, title
from penstock.plan.trials import Trial
from penstock.simulate.html_report import (
    Plot,
    bullets,
    drawn,
    escaped,
    html_table,
    side_by_side,
    write_html,
)
from penstock.simulate.report import marked, notes, table_cells
from penstock.simulate.study import Row

RECOMMENDED, CLOSEST = "recommended graph", "closest graph"
AT_MAXIMUM = (
    "Each graph is shown at the highest replayed rate at which it meets the SLO, or, if it meets "
    "the SLO at none, at the highest replayed rate."
)
NEAR = (
    "The replayed graphs that differ from it in one setting, or in one setting and the router "
    "settings:"
)
AT_PLANNED = "Each graph is shown at the planned scale."


def write_page(
    path: Path, plan: Plan, measured: Sequence[Trial], attain: float, command: str
) -> None:
    """``measured``: all replays of the search. InputError if the file cannot be written."""
    found = replayed(measured, plan.request, attain, plan.winner)
    _, *statements, counts, command = header(plan, attain, command, sys.maxsize)
    rows: dict[str, Row | str] = {"planned traffic": plan.winner.row, **plan.sensitivity_rows}
    rows |= {loss_name(pool): row for pool, row in plan.losses.items()}
    plots = [*_replay_plots(found, RECOMMENDED), sensitivity_plot(rows, attain)]
    pareto, cost, sensitivity = drawn(plots)
    best = shown(plan)
    parts = [
        f"<h2>Recommended: {escaped(str(plan.winner.candidate))}</h2>",
        bullets(statements),
        f"<p>{escaped(counts)}<br><code>{escaped(command)}</code>",
        "<h2>Best graphs</h2>",
        html_table(_figures(best, found)),
        *_replays(found, pareto, cost),
        "<h2>Sensitivity and loss of a worker</h2>",
        html_table(_sensitivity_cells(rows)),
        sensitivity,
        *_neighbors(found, RECOMMENDED),
        "<h2>Notes on the best graphs</h2>",
        bullets(notes([trial.row for trial in best], plan.workload)),
    ]
    write_html(path, title(plan), "\n".join(parts))


def write_page_without_plan(
    path: Path,
    result: NoPlan,
    measured: Sequence[Trial],
    attain: float,
    command: str,
    error: SimulationError,
) -> None:
    """The closest graph, and what to change. ``error``: what the command reports."""
    parts = [
        "<h2>No recommendation</h2>",
        f"<p>SLO: {escaped(objective_line(result.request, attain))}",
        f"<p>Result: {escaped(str(error))}",
        f"<p>Command:<br><code>{escaped(command)}</code>",
    ]
    if result.miss is not None:
        found = replayed(measured, result.request, attain, result.miss.trial)
        parts += [
            *_replays(found, *drawn(_replay_plots(found, CLOSEST))),
            f"<h2>Closest graph: {escaped(str(found.choice.candidate))}</h2>",
            html_table(_figures([found.choice], found)),
            *_neighbors(found, CLOSEST),
            "<h2>Notes on the closest graph</h2>",
            bullets(notes([found.choice.row], result.workload)),
        ]
    write_html(path, title(result), "\n".join(parts))


def _replay_plots(found: Replayed, choice_name: str) -> list[Plot]:
    return [pareto_plot(found, choice_name), cost_plot(found, choice_name)]


def _replays(found: Replayed, pareto: str, cost: str) -> Iterator[str]:
    """The charts of all replays, and the table of the Pareto front."""
    count, met = len(found.trials), sum(trial.meets_slo for trial in found.trials)
    where = AT_MAXIMUM if found.is_at_maximum else AT_PLANNED
    which = "that meet the SLO" if met else "that were replayed"
    yield "<h2>Throughput and cost of all replayed graphs</h2>"
    yield f"<p>{met} of {count} replayed graphs meet the SLO (filled marks). {where}"
    yield side_by_side([pareto, cost])
    yield f"<h3>Pareto front of the graphs {which}</h3>"
    yield html_table(_figures(found.front, found))


def _neighbors(found: Replayed, choice_name: str) -> Iterator[str]:
    choice = found.choice
    steps = neighbors(choice.candidate, (trial.candidate for trial in found.trials))
    near = [trial for trial in found.trials if trial.candidate in steps]
    yield f"<h2>Neighbors of the {choice_name}</h2>"
    if not near:
        yield "<p>No graph that differs from it in one setting was replayed."
        return
    yield f"<p>{NEAR}"
    names = ["differs in", "-", *(steps[trial.candidate] for trial in near)]
    yield html_table(_with_column(_figures([choice, *near], found), names))


def _figures(trials: Sequence[Trial], found: Replayed) -> list[list[str]]:
    """The columns of simulate's table, and of how many requests the figures are."""
    rows = marked([trial.row for trial in trials])
    lines = _with_column(table_cells(rows), ["requests", *(f"{row.requests:,}" for row in rows)])
    if not found.is_at_maximum:
        return lines
    return _with_column(lines, ["requests/s", *(f"{trial.request_rate:.3g}" for trial in trials)])


def _with_column(lines: Sequence[Sequence[str]], column: Sequence[str]) -> list[list[str]]:
    """With another second column."""
    pairs = zip(lines, column, strict=True)
    return [[line[0], cell, *line[1:]] for line, cell in pairs]


def _sensitivity_cells(rows: Mapping[str, Row | str]) -> list[list[str]]:
    head, *cells = table_cells([row for row in rows.values() if isinstance(row, Row)])
    found = iter(cells)
    lines = [
        [name, f"not replayed: {row}"] if isinstance(row, str) else [name, *next(found)[1:]]
        for name, row in rows.items()
    ]
    return [["traffic", *head[1:]], *lines]
