"""The report of a plan, the statements in it, and the header of the planned graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from penstock.errors import SimulationError
from penstock.plan.charts import cost_chart, pareto_chart
from penstock.plan.evidence import (
    Replayed,
    cost_per_million,
    first_answer,
    loss_name,
    neighbors,
    replayed,
    surest_trials,
)
from penstock.plan.margin import Margin, margin_line, meets_slo, shown_ms, worst_margins
from penstock.plan.planning import NoPlan, Plan
from penstock.plan.request import METHOD, Objective, PlanRequest
from penstock.plan.search import SCALE_STEP
from penstock.plan.sensitivity import Comparison
from penstock.plan.space import BATCHES, KINDS, STEPS
from penstock.plan.trials import TIE, Limit, Trial, in_order, score_of
from penstock.reports.model import (
    Figure,
    Figures,
    Notes,
    Part,
    Report,
    Section,
    State,
    Table,
    Verdict,
)
from penstock.simulate.accuracy import accuracy_line
from penstock.simulate.metrics import spreads
from penstock.simulate.report import (
    SIMULATED,
    arrival_of,
    assumed,
    marked,
    never_simulated,
    notes,
    rejected,
    table_of,
)
from penstock.simulate.study import Row
from penstock.simulate.working_set import working_sets
from penstock.text.numbers import count_of, limit_text, significant
from penstock.workload.load import LoadedWorkload

WIDTH = 110  # of the header's lines
NEXT_STEP = SCALE_STEP * 1.01  # times the sustained scale: no scale in between is ever replayed
TABLE_WIDTH = 120  # columns, also where there is no terminal
LATE = "--time-limit was reached: fewer graphs and scales were replayed than possible"
UNCONFIRMED = "not confirmed: the time limit left no time for a longer replay"
LEFT_OUT = "--confidence leaves out disaggregated graphs, which have no measured points"
NOT_TRIED = (
    "workers that span several nodes, max_batch_size other than "
    f"{' and '.join(map(str, BATCHES))}, max_num_tokens other than {', '.join(map(str, STEPS))}"
)
NO_DRAFT = "speculative decoding (add --acceptance)"
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


def table_width(width: int | None) -> int:
    """Of a table, from the columns of the terminal; None: there is none."""
    return min(width or TABLE_WIDTH, TABLE_WIDTH)


def report_of(plan: Plan, attain: float, measured: Sequence[Trial] = ()) -> Report:
    """``measured``: all replays of the search, in order of time; without them, the report has
    neither the sections about them nor the first answer."""
    rows = [trial.row for trial in best_trials(plan)]
    requests = [f"{row.requests:,}" for row in rows]
    return Report(
        kind="Plan",
        title=title(plan),
        subtitle=SIMULATED,
        verdicts=[Verdict(State.MET, f"recommended: {plan.winner.candidate}: {reason(plan)}")],
        sections=[
            Section("", [Figures(list(_figures(plan, attain)))], is_detail=True),
            Section("Best graphs", [table_of(marked(rows), {"requests": requests})]),
            Section("Reasons", [Notes(list(_reasons(plan, attain, measured)))]),
            *(_details(plan, measured, attain) if measured else ()),
        ],
    )


def _reasons(plan: Plan, attain: float, measured: Sequence[Trial]) -> Iterator[str]:
    yield f"SLO: {objective_line(plan.request, attain)}"
    yield from _first_answer(plan, attain, measured)
    if plan.is_late:
        yield LATE
    for label, text in _statements(plan, attain):
        yield f"{label}: {text}"
    complete = ", with all workers" if plan.request.survives_loss else ""
    for name, row in plan.sensitivity_rows.items():
        yield f"sensitivity, {name}{complete}: {_changed_line(row, plan.request, attain)}"
    for layout, why in plan.excluded.items():
        yield f"not considered: {layout}: {why}"
    yield f"not considered: {NOT_TRIED if plan.request.draft else f'{NO_DRAFT}, {NOT_TRIED}'}"
    yield from _assumptions(plan)
    yield f"not simulated: {'; '.join(never_simulated(plan.workload.workload))}"
    yield from rejected(plan.winner.row)
    yield counts(plan)
    for trial in best_trials(plan):
        yield f"accuracy, {trial.candidate}: {accuracy_line(trial.row)}"


def first_answer_line(trial: Trial, objective: Objective) -> str:
    """What `plan` prints before it confirms a graph. ``trial``: as `first_answer` selects it."""
    reached = {
        Objective.COST: count_of(trial.candidate.gpus, "GPU"),
        Objective.THROUGHPUT: _rate(trial),
        Objective.INTERACTIVITY: _user_rate(trial),
    }
    share = f"{trial.goodput:.1%} of {trial.row.requests:,} requests met the SLO"
    return f"first answer (not yet confirmed; {share}): {trial.candidate}, {reached[objective]}"


def _first_answer(plan: Plan, attain: float, measured: Sequence[Trial]) -> Iterator[str]:
    """Why the first answer is not recommended."""
    winner, objective = plan.winner, plan.request.objective
    first = first_answer(measured, objective)
    if first is None or first.candidate == winner.candidate:
        return
    decided = {trial.candidate: trial for trial in surest_trials(measured, objective)}
    trial = decided[first.candidate]
    if trial.meets_slo:
        is_tie = _is_tie(winner, trial, objective)
        why = "is as good" if is_tie else _compared(winner, trial, objective)
        yield f"first answer: {first.candidate}, which {why}"
        return
    worst = min(trial.rows, key=lambda row: row.goodput or 0.0)
    state = ", with one worker fewer" if trial.losses else ""
    line = _changed_line(worst, plan.request, attain)
    yield f"first answer: {first.candidate}: in a longer replay{state}: {line}"


def _statements(plan: Plan, attain: float) -> Iterator[tuple[str, str]]:
    """What the report and the header of the graph state about the recommendation."""
    yield "aggregated or disaggregated", kind_line(plan)
    if as_good := "; ".join(ties(plan)):
        yield "as good", as_good
    yield "router", plan.routing
    if used := speculation(plan):
        yield "speculation", used
    yield from (("availability", line) for line in availability(plan, attain))
    yield "headroom", _headroom(plan, attain)
    yield "margin", _margin(plan, attain)
    if plan.working_set:
        yield "working set", str(plan.working_set)
    yield "frontends", _frontends(plan)
    yield "disaggregation", disaggregation(plan)
    steadiness = plan.winner.row.steadiness
    if steadiness is not None and not steadiness.is_steady:
        yield "not steady", steadiness.reason


def _frontends(plan: Plan) -> str:
    load = plan.winner.row.frontend_load
    busy = f"{count_of(significant(load.busy_cores), 'CPU core')} busy" if load else "CPU not known"
    return f"{plan.frontends}, of which the load needs {plan.frontends - 1} ({busy})"


def counts(result: Plan | NoPlan) -> str:
    considered, replays = count_of(result.considered, "candidate"), result.replays
    return f"{considered} estimated, {count_of(replays, 'replay')} of the best"


def _assumptions(plan: Plan) -> Iterator[str]:
    """Those of the winner, then those that concern only other graphs of the table."""
    of_winner = list(assumed(plan.winner.row))
    every = dict.fromkeys(what for trial in best_trials(plan) for what in assumed(trial.row))
    yield from (f"assumed: {what}" for what in of_winner)
    yield from (f"assumed for other graphs: {what}" for what in every if what not in of_winner)


def availability(plan: Plan, attain: float) -> Iterator[str]:
    """What the loss of one worker does: a line if it interrupts the service, and one for each pool
    that has others."""
    candidate = plan.winner.candidate
    if any(pool.replicas == 1 for pool in candidate.pools):
        where = "one worker in a pool" if candidate.is_disaggregated else "one worker"
        yield f"{where}: no redundancy. Plan with --min-replicas 2, or add a replica"
    for name, row in plan.losses.items():
        yield f"{loss_name(name)}: {_changed_line(row, plan.request, attain)}"


def best_trials(plan: Plan) -> list[Trial]:
    """The winner, the best aggregated and disaggregated graphs, then the runners-up."""
    best = [trial for trial in (plan.aggregated, plan.disaggregated) if trial is not None]
    return list({t.candidate: t for t in (plan.winner, *best, *plan.runners_up)}.values())


def title(result: Plan | NoPlan) -> str:
    request, scale = result.request, result.base if isinstance(result, Plan) else 1.0
    arrival = arrival_of(result.workload.scaled(scale))
    what = f"{request.model} on up to {request.gpus} × {request.gpu.name}"
    return f"{what}, {result.workload.name} ({arrival})"


def objective_line(request: PlanRequest, attain: float) -> str:
    """`TTFT ≤ 500 ms for 95% of requests; objective: fewest GPUs (cost)`."""
    texts = {
        Objective.COST: "fewest GPUs",
        Objective.THROUGHPUT: "highest request rate",
        Objective.INTERACTIVITY: "most output tokens/s per user",
    }
    return (
        f"{slo_text(request, attain)}; objective: {texts[request.objective]} ({request.objective})"
    )


def slo_text(request: PlanRequest, attain: float) -> str:
    text = f"{request.slo} for {_share(attain)} of requests"
    if request.confidence is not None:
        text += f" {upper_end(request.confidence)}"
    return text + (", also with one worker fewer" if request.survives_loss else "")


def upper_end(confidence: float) -> str:
    return f"at the upper end of the {confidence:.0%} intervals"


def _share(attain: float) -> str:
    return f"{attain * 100:.4g}%"


def reason(plan: Plan) -> str:
    """What the winner reaches, in one sentence."""
    is_confirmed = plan.winner.is_confirmed or not plan.is_late
    return _reached(plan) if is_confirmed else f"{_reached(plan)} ({UNCONFIRMED})"


def _reached(plan: Plan) -> str:
    winner, objective = plan.winner, plan.request.objective
    if objective is Objective.THROUGHPUT:
        return f"it sustains {_rate(winner)}"
    if objective is Objective.INTERACTIVITY:
        return _user_rate(winner)
    count = winner.candidate.gpus
    text = f"{_gpus(winner)} {'suffices' if count == 1 else 'suffice'}{_at_user_rate(winner)}"
    return text if count == 1 else f"{text}, and no replayed graph with fewer met the SLO"


def kind_line(plan: Plan) -> str:
    """Why the winner is better than the best graph of the other kind, in one sentence."""
    winner, other = plan.winner, _other(plan)
    own, kind = KINDS[::-1] if winner.candidate.is_disaggregated else KINDS
    if other is None and plan.unfinished:
        return _unfinished(plan)
    if other is None:
        return LEFT_OUT if plan.request.confidence else _none_met(plan, kind)
    objective = plan.request.objective
    first, *_ = in_order([winner, other], objective)
    if first is not winner or _is_tie(winner, other, objective):
        verdict = f"as good as the best {kind} graph"
    else:
        verdict = f"{own} is better here than the best {kind} graph"
    return f"{verdict} ({other.candidate}), which {_compared(winner, other, objective)}"


def ties(plan: Plan) -> Iterator[str]:
    """Graphs that are as good as the winner, which is less complex."""
    for trial in plan.runners_up:
        if _is_tie(plan.winner, trial, plan.request.objective):
            short = "" if trial.is_confirmed else ", in a short replay"
            yield f"{trial.candidate} (within {TIE:.0%}{short})"


def _is_tie(winner: Trial, other: Trial, objective: Objective) -> bool:
    *first, own = score_of(objective)(winner)
    *second, reached = score_of(objective)(other)
    return first == second and abs(reached - own) <= TIE * own


def _none_met(plan: Plan, kind: str) -> str:
    why = plan.unreplayed.get(kind == "disaggregated")
    return why or f"no replayed {kind} graph met the SLO"


def _other(plan: Plan) -> Trial | None:
    return plan.aggregated if plan.winner.candidate.is_disaggregated else plan.disaggregated


def _compared(winner: Trial, other: Trial, objective: Objective) -> str:
    if objective is Objective.COST:
        least = "" if other.row.is_steady else "at least "  # a longer replay may need more
        return f"needs {least}{_gpus(other)}{_at_user_rate(other)}"
    if objective is Objective.THROUGHPUT:
        return f"sustains {_rate(other)}"
    ratio = winner.user_rate / other.user_rate
    return f"has {_user_rate(other)} (the recommended one × {ratio:.2f})"


def _gpus(trial: Trial) -> str:
    return count_of(trial.candidate.gpus, "GPU")


def _user_rate(trial: Trial) -> str:
    return f"{trial.user_rate:.0f} tok/s/user"


def _at_user_rate(trial: Trial) -> str:
    """Empty if no request has two output tokens."""
    return f", at {_user_rate(trial)}" if trial.user_rate else ""


def _rate(trial: Trial) -> str:
    return f"{significant(trial.request_rate)} requests/s, {trial.gpu_rate:,.0f} tok/s/GPU"


def speculation(plan: Plan) -> str:
    """What speculative decoding is assumed to accept and what it changes; empty if it was not
    considered."""
    if (draft := plan.request.draft) is None:
        return ""
    rates = ", ".join(limit_text(rate) for rate in draft.rates)
    winner, other = plan.winner, plan.other_decoding
    used, kind = ("", "without") if winner.candidate.drafts else (" is not used", "with")
    best = f"no replayed graph {kind} {METHOD} met the SLO"
    if other is not None:
        is_rate = plan.request.objective is Objective.THROUGHPUT
        figure = _rate(other) if is_rate else _user_rate(other)
        best = f"the best replayed graph {kind} {METHOD} ({other.candidate}) has {_gpus(other)}"
        best += f" and {figure}" if is_rate or other.user_rate else ""
    return f"{METHOD}{used} (draft model {draft.model}, assumed acceptance rates {rates}); {best}"


def headroom(plan: Plan, attain: float) -> Iterator[str]:
    """How far each part of the SLO, and the next scale that misses it, are away: with what
    `--confidence` and `--n-minus-margin` add to the SLO."""
    for margin in margins_of(plan, attain):
        took, limit = margin.counted(plan.request), margin.limit
        share = f"{margin.name} p{attain * 100:.4g}"
        yield f"{share} {shown_ms(took)} ms of {shown_ms(limit)} ms ({1 - took / limit:.0%} left)"
    if plan.headroom.sustained:
        yield f"meets the SLO at scale × {limit_text(plan.headroom.sustained)}"
    if plan.headroom.failing:
        yield f"misses the SLO at scale × {significant(plan.headroom.failing)}"
    is_exact = plan.headroom.failing is not None and plan.headroom.failing <= NEXT_STEP
    if plan.request.objective is Objective.THROUGHPUT and not is_exact:
        yield "no scale in between was replayed; raise --replays for a more exact maximum"


def _headroom(plan: Plan, attain: float) -> str:
    """With what it is based on."""
    request = plan.request
    text = f"{upper_end(request.confidence)}: " if request.confidence is not None else ""
    return f"{_worst_loss(plan)}{text}{'; '.join(headroom(plan, attain))}"


def _margin(plan: Plan, attain: float) -> str:
    """Whether the SLO is met at the upper end of the intervals."""
    line = margin_line(plan.winner.row, margins_of(plan, attain), plan.request.confidence)
    return f"{_worst_loss(plan)}{line}"


def margins_of(plan: Plan, attain: float) -> list[Margin]:
    """With `--n-minus-one`, after the worst loss."""
    return worst_margins(plan.winner.rows, plan.request, attain)


def _worst_loss(plan: Plan) -> str:
    return "with one worker fewer: " if plan.winner.losses else ""


def _changed_line(row: Row | str, request: PlanRequest, attain: float) -> str:
    if isinstance(row, str):
        return f"not replayed: {row}"
    values = dict(spreads(row.metrics))
    share = row.goodput or 0.0
    verdict = f"{share:.1%} of requests meet the SLO"
    verdict = verdict if share >= attain else f"only {verdict} ({_share(attain)} needed)"
    if request.confidence is not None and share >= attain:
        how = "also" if meets_slo(row, request, attain) else "but not"
        verdict += f", {how} {upper_end(request.confidence)}"
    rejected = f", {count_of(row.too_long, 'request')} rejected as too long" if row.too_long else ""
    short = "" if share < attain or row.is_steady else ", in a replay that is not steady"
    itl = values.get("itl_p50_ms")
    itl_text = f", ITL p50 {itl.median:.1f} ms" if itl else ""
    ttft_text = f"TTFT p50 {values['ttft_p50_ms'].median:.0f} ms"
    return f"{verdict}, {ttft_text}{itl_text}{rejected}{short}"


def disaggregation(plan: Plan) -> str:
    """From which scale on a disaggregated graph is worth it."""
    if plan.request.gpus < 2:
        return "not possible with one GPU"
    if plan.request.confidence:
        return f"not known: {LEFT_OUT}"
    if plan.unfinished:
        return f"not known: {_unfinished(plan)}"
    if plan.disaggregated is None:
        return _none_met(plan, "disaggregated")
    if plan.aggregated is None:
        verdict = "not known" if False in plan.unreplayed else "worth it"
        return f"{verdict}: {_none_met(plan, 'aggregated')}"
    complete = [
        compared for compared in plan.compared if compared.disaggregated and compared.aggregated
    ]
    met = [compared for compared in complete if compared.is_met]
    favoring = [compared for compared in met if compared.favors_disaggregated]
    if not complete:
        limit = Limit.TIME if plan.is_late else Limit.REPLAYS
        return f"not known: there were too few replays to compare scales; raise {limit}"
    assert complete[0].disaggregated
    assert complete[0].aggregated
    pair = f"{complete[0].disaggregated.candidate} compared with {complete[0].aggregated.candidate}"
    missed = [compared for compared in complete if not compared.is_met]
    end = f"; at scale {_scales(missed)} both miss the SLO" if missed else ""
    unknown = [compared for compared in plan.compared if compared.favors_disaggregated is None]
    why = "one or both graphs were not replayed"
    end += f"; not known at scale {_scales(unknown)} ({why})" if unknown else ""
    if not favoring:
        return f"not worth it at scale {_scales(met)}{end}: {pair}"
    where = f"{'only ' if len(favoring) < len(met) else ''}at scale {_scales(favoring)}"
    if len(favoring) > 1 and favoring == met[-len(favoring) :]:
        where = f"from scale × {limit_text(favoring[0].scale)} on"
    return f"worth it {where} ({_difference(favoring[0])}){end}: {pair}"


def _unfinished(plan: Plan) -> str:
    """Why it is not known whether a graph of the other family meets the SLO."""
    ((is_disaggregated, limit),) = plan.unfinished.items()
    kind = KINDS[is_disaggregated]
    if limit is Limit.TIME:
        return f"{limit} ended the search before {kind} graphs were evaluated; raise it"
    return f"there were too few replays to evaluate {kind} graphs; raise {limit}"


def _scales(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(f"× {limit_text(compared.scale)}" for compared in comparisons)


def _difference(compared: Comparison) -> str:
    disaggregated, aggregated = compared.disaggregated, compared.aggregated
    assert disaggregated
    assert aggregated
    if not aggregated.meets_slo:
        return f"the aggregated graph meets the SLO for {aggregated.goodput:.0%} of requests"
    if compared.by_gpus and disaggregated.candidate.gpus < aggregated.candidate.gpus:
        return f"{_gpus(disaggregated)} instead of {aggregated.candidate.gpus}"
    return f"{disaggregated.user_rate:.0f} instead of {aggregated.user_rate:.0f} tok/s/user"


def _figures(plan: Plan, attain: float) -> Iterator[Figure]:
    winner, request = plan.winner, plan.request
    yield Figure("SLO", str(request.slo), f"for {_share(attain)} of requests")
    yield Figure("GPUs", f"{winner.candidate.gpus} × {request.gpu.name}")
    yield Figure("per user", f"{winner.user_rate:,.0f} tokens/s")
    yield Figure("per GPU", f"{winner.gpu_rate:,.0f} tokens/s")
    cost = cost_per_million(winner, request.gpu_hour_price)
    if cost is not None:
        text = significant(cost) if request.gpu_hour_price else f"{cost:,.0f} GPU-s"
        yield Figure("cost", text, "per million output tokens")
    for margin in margins_of(plan, attain):
        took, limit = margin.counted(request), margin.limit
        text = f"{shown_ms(took)} of {shown_ms(limit)} ms"
        yield Figure(f"{margin.name} p{attain * 100:.4g}", text, f"{1 - took / limit:.0%} left")


def report_without_plan(
    result: NoPlan, measured: Sequence[Trial], attain: float, error: SimulationError
) -> Report:
    """The closest graph, and what to change. ``error``: what the command reports."""
    sections: list[Section] = []
    if result.miss is not None:
        search = replayed(measured, result.request, attain, result.miss.trial)
        closest = [search.choice]
        sections = [
            Section(f"Closest graph: {search.choice.candidate}", [_trials_table(closest, search)]),
            _replays(search, CLOSEST),
            _neighbors(search, CLOSEST),
            Section("Notes on the closest graph", [_notes(closest, result.workload)]),
        ]
    return Report(
        kind="Plan",
        title=title(result),
        subtitle=f"{SIMULATED}; SLO: {objective_line(result.request, attain)}",
        verdicts=[Verdict(State.MISSED, f"no recommendation: {error}")],
        sections=sections,
    )


def _details(plan: Plan, measured: Sequence[Trial], attain: float) -> Iterator[Section]:
    """Charts and tables of all replays."""
    search = replayed(measured, plan.request, attain, plan.winner)
    rows: dict[str, Row | str] = {"planned traffic": plan.winner.row, **plan.sensitivity_rows}
    rows |= {loss_name(pool): row for pool, row in plan.losses.items()}
    yield _replays(search, RECOMMENDED)
    yield Section(
        "Sensitivity and loss of a worker",
        [_sensitivity_table(rows)],
        is_detail=True,
    )
    yield _neighbors(search, RECOMMENDED)
    yield Section(
        "Notes on the best graphs", [_notes(best_trials(plan), plan.workload)], is_detail=True
    )


def _notes(trials: Sequence[Trial], loaded: LoadedWorkload) -> Notes:
    rows = [trial.row for trial in trials]
    return Notes(list(notes(rows, working_sets(rows, loaded))))


def _replays(search: Replayed, choice_name: str) -> Section:
    """The charts of all replays, and the table of the Pareto front."""
    count, met = len(search.trials), sum(trial.meets_slo for trial in search.trials)
    where = AT_MAXIMUM if search.is_at_maximum else AT_PLANNED
    which = "that meet the SLO" if met else "that were replayed"
    return Section(
        "Throughput and cost of all replayed graphs",
        [
            f"{met} of {count} replayed graphs meet the SLO (filled marks). {where}",
            pareto_chart(search, choice_name),
            cost_chart(search, choice_name),
            f"Pareto front of the graphs {which}:",
            _trials_table(search.front, search),
        ],
        is_detail=True,
    )


def _neighbors(search: Replayed, choice_name: str) -> Section:
    choice = search.choice
    steps = neighbors(choice.candidate, (trial.candidate for trial in search.trials))
    near = [trial for trial in search.trials if trial.candidate in steps]
    parts: list[Part] = [NO_NEIGHBOR]
    if near:
        differs = ["-", *(steps[trial.candidate] for trial in near)]
        parts = [NEAR, _trials_table([choice, *near], search, {"differs in": differs})]
    return Section(f"Neighbors of the {choice_name}", parts, is_detail=True)


def _trials_table(
    trials: Sequence[Trial], search: Replayed, more: Mapping[str, Sequence[str]] | None = None
) -> Table:
    """The columns of simulate's table, and of how many requests the figures are."""
    rows = marked([trial.row for trial in trials])
    columns = dict(more or {})
    if search.is_at_maximum:
        columns["requests/s"] = [significant(trial.request_rate) for trial in trials]
    columns["requests"] = [f"{row.requests:,}" for row in rows]
    return table_of(rows, columns)


def _sensitivity_table(rows: Mapping[str, Row | str]) -> Table:
    table = table_of([row for row in rows.values() if isinstance(row, Row)])
    cells = iter(table.rows)
    lines = [
        [name, f"not replayed: {row}"] if isinstance(row, str) else [name, *next(cells)[1:]]
        for name, row in rows.items()
    ]
    return Table(["traffic", *table.headings[1:]], lines)


def header(plan: Plan, attain: float, command: str) -> list[str]:
    """The comment at the top of the planned graph, as lines without `#`."""
    winner = plan.winner.candidate
    parts = [
        f"{title(plan)}.",
        f"SLO: {objective_line(plan.request, attain)}.",
        f"Recommended: {winner}, {_gpus(plan.winner)}: {reason(plan)}.",
        *(f"{label.capitalize()}: {text}." for label, text in _statements(plan, attain)),
        *([f"{LATE}."] if plan.is_late else []),
        *(f"{line.capitalize()}." for line in rejected(plan.winner.row)),
        *(f"Assumed: {what}." for what in assumed(plan.winner.row)),
        f"Accuracy: {accuracy_line(plan.winner.row)}.",
        "This describes the graph as planned: edits, such as `penstock scale`, do not change it.",
        "Simulated with measured kernels, not run on a GPU. Benchmark it before production use.",
        f"{counts(plan)}. Command:",
    ]
    lines = [line for part in parts for line in wrap(part, WIDTH, subsequent_indent="  ")]
    return [*lines, command]  # on one line, so that it can be copied
