"""Renders a plan: the table, the reasons for the recommendation, and the graph's header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from penstock.plan.evidence import loss_name
from penstock.plan.margin import Margin, margin_line, meets_slo, shown_ms, worst_margins
from penstock.plan.planning import Limit, NoPlan, Plan
from penstock.plan.request import METHOD, Objective, PlanRequest
from penstock.plan.sensitivity import Comparison
from penstock.plan.space import BATCHES, STEPS
from penstock.plan.trials import EQUAL, SCALE_STEP, TIE, Trial, score_of
from penstock.significant import limit_text, significant
from penstock.simulate.accuracy import accuracy_line
from penstock.simulate.interval import COVERAGE
from penstock.simulate.metrics import spreads
from penstock.simulate.report import (
    NEVER_SIMULATED,
    arrival_of,
    assumed,
    fitting_table,
    marked,
    rejected,
)
from penstock.simulate.study import Row

WIDTH = 110  # of the header's lines
NEXT_STEP = SCALE_STEP * 1.01  # times the sustained scale: no scale in between is ever replayed
TABLE_WIDTH = 120  # columns, also where there is no terminal
LATE = "--time-limit was reached: fewer graphs and scales were replayed than possible"
LEFT_OUT = "--confidence leaves out disaggregated graphs, which have no measured points"
NOT_TRIED = (
    "workers that span several nodes, max_batch_size other than "
    f"{' and '.join(map(str, BATCHES))}, max_num_tokens other than {', '.join(map(str, STEPS))}"
)
NO_DRAFT = "speculative decoding (add --acceptance)"


def table_width(width: int | None) -> int:
    """Of a table, from the columns of the terminal; None: there is none."""
    return min(width or TABLE_WIDTH, TABLE_WIDTH)


def lines(plan: Plan, attain: float, width: int | None = None) -> Iterator[str]:
    """Everything that is printed. ``width``: columns of the terminal, None for no limit."""
    yield f"{title(plan)}; simulated, not measured"
    yield f"SLO: {objective_line(plan.request, attain)}"
    if plan.is_late:
        yield LATE
    yield from fitting_table(marked([trial.row for trial in shown(plan)]), table_width(width))
    yield f"recommended: {plan.winner.candidate}: {reason(plan)}"
    yield f"router: {plan.routing.reason}"
    yield from (f"speculation: {line}" for line in speculation(plan))
    yield from (f"availability: {line}" for line in availability(plan, attain))
    yield f"headroom: {_headroom(plan, attain)}"
    yield f"margin: {_margin(plan, attain)}"
    if plan.working_set:
        yield f"working set: {plan.working_set}"
    complete = ", with all workers" if plan.request.survives_loss else ""
    for name, row in plan.sensitivity_rows.items():
        yield f"sensitivity, {name}{complete}: {_changed_line(row, plan.request, attain)}"
    yield f"disaggregation: {disaggregation(plan)}"
    for layout, why in plan.excluded.items():
        yield f"not considered: {layout}: {why}"
    yield f"not considered: {NOT_TRIED if plan.request.draft else f'{NO_DRAFT}, {NOT_TRIED}'}"
    yield from _assumptions(plan)
    yield f"not simulated: {'; '.join(NEVER_SIMULATED)}"
    yield from rejected(plan.winner.row)
    yield from (f"not steady: {why}" for why in _unsteady(plan))
    yield counts(plan)
    yield from (f"accuracy, {t.candidate}: {accuracy_line(t.row)}" for t in shown(plan))


def _unsteady(plan: Plan) -> Iterator[str]:
    """Why the recommended graph has no steady state, if it has none."""
    steadiness = plan.winner.row.steadiness
    if steadiness is not None and not steadiness.is_steady:
        yield steadiness.reason


def counts(result: Plan | NoPlan) -> str:
    return f"{result.considered} candidates estimated, {result.replays} replays of the best"


def _assumptions(plan: Plan) -> Iterator[str]:
    """Those of the winner, then those that concern only other graphs of the table."""
    own = list(assumed(plan.winner.row))
    every = dict.fromkeys(w for trial in shown(plan) for w in assumed(trial.row))
    yield from (f"assumed: {what}" for what in own)
    yield from (f"assumed for other graphs: {what}" for what in every if what not in own)


def availability(plan: Plan, attain: float) -> Iterator[str]:
    """What the loss of one worker does: a line if it interrupts the service, and one for each pool
    that has others."""
    candidate = plan.winner.candidate
    if any(pool.replicas == 1 for pool in candidate.pools):
        where = "one worker in a pool" if candidate.is_disaggregated else "one worker"
        yield f"{where}: no redundancy. Plan with --min-replicas 2, or add a replica"
    for name, row in plan.losses.items():
        yield f"{loss_name(name)}: {_changed_line(row, plan.request, attain)}"


def shown(plan: Plan) -> list[Trial]:
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
    """What the winner has over the best of the other family, and whether a tie decided."""
    own, other = plan.winner, _other(plan)
    objective = plan.request.objective
    if objective is Objective.COST:
        count = own.candidate.gpus
        text = f"{_gpus(own)} {'suffices' if count == 1 else 'suffice'}{_at_user_rate(own)}"
        text += "" if count == 1 else ", and no replayed graph with fewer met the SLO"
    elif objective is Objective.THROUGHPUT:
        text = f"it sustains {_rate(own)}"
    else:
        text = _user_rate(own)
    kind = "aggregated" if own.candidate.is_disaggregated else "disaggregated"
    if other is None and plan.unfinished:
        text += f"; {_unfinished(plan)}"
    elif other is None:
        text += f"; {LEFT_OUT if plan.request.confidence else _none_met(plan, kind)}"
    else:
        text += f"; the best {kind} graph ({other.candidate}) {_compared(own, other, objective)}"
    best = max([own, *plan.runners_up], key=score_of(objective))
    if best is not own:
        is_as_complex = best.candidate.complexity == own.candidate.complexity
        tie = f"within {EQUAL:.0%}" if is_as_complex else f"within {TIE:.0%}, but more complex"
        text += f"; {best.candidate} is {tie}"
    return text


def _none_met(plan: Plan, kind: str) -> str:
    why = plan.unreplayed.get(kind == "disaggregated")
    return why or f"no replayed {kind} graph met the SLO"


def _other(plan: Plan) -> Trial | None:
    return plan.aggregated if plan.winner.candidate.is_disaggregated else plan.disaggregated


def _compared(own: Trial, other: Trial, objective: Objective) -> str:
    if objective is Objective.COST:
        least = "" if other.row.is_steady else "at least "  # a longer replay may need more
        return f"needs {least}{_gpus(other)}{_at_user_rate(other)}"
    if objective is Objective.THROUGHPUT:
        return f"sustains {_rate(other)}"
    ratio = own.user_rate / other.user_rate
    return f"has {_user_rate(other)} (the recommended one × {ratio:.2f})"


def _gpus(trial: Trial) -> str:
    count = trial.candidate.gpus
    return f"{count} GPU{'s' * (count != 1)}"


def _user_rate(trial: Trial) -> str:
    return f"{trial.user_rate:.0f} tok/s/user"


def _at_user_rate(trial: Trial) -> str:
    """Empty if no request has two output tokens."""
    return f", at {_user_rate(trial)}" if trial.user_rate else ""


def _rate(trial: Trial) -> str:
    return f"{significant(trial.request_rate)} requests/s, {trial.gpu_rate:,.0f} tok/s/GPU"


def speculation(plan: Plan) -> Iterator[str]:
    """What speculative decoding is assumed to accept and what it changes, if it was considered."""
    if (draft := plan.request.draft) is None:
        return
    rates = ", ".join(limit_text(rate) for rate in draft.rates)
    own, other = plan.winner, plan.other_decoding
    used, kind = ("", "without") if own.candidate.drafts else (" is not used", "with")
    best = f"no replayed graph {kind} {METHOD} met the SLO"
    if other is not None:
        is_rate = plan.request.objective is Objective.THROUGHPUT
        figure = _rate(other) if is_rate else _user_rate(other)
        best = f"the best replayed graph {kind} {METHOD} ({other.candidate}) has {_gpus(other)}"
        best += f" and {figure}" if is_rate or other.user_rate else ""
    yield f"{METHOD}{used} (draft model {draft.model}, assumed acceptance rates {rates}); {best}"


def headroom(plan: Plan, attain: float) -> Iterator[str]:
    """How far each part of the SLO, and the next scale that misses it, are away: with what
    `--confidence` and `--n-minus-one` add to the SLO."""
    for one in margins_of(plan, attain):
        took, limit = one.counted(plan.request), one.limit
        share = f"{one.name} p{attain * 100:.4g}"
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
    coverage = plan.request.confidence or COVERAGE
    line = margin_line(plan.winner.row, margins_of(plan, attain), coverage)
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
    rejected = f", {row.too_long} requests rejected as too long" if row.too_long else ""
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
    complete = [one for one in plan.compared if one.disaggregated and one.aggregated]
    met = [one for one in complete if _is_met(one)]
    favoring = [one for one in met if one.favors_disaggregated]
    if not complete:
        limit = Limit.TIME if plan.is_late else Limit.REPLAYS
        return f"not known: there were too few replays to compare scales; raise {limit}"
    assert complete[0].disaggregated
    assert complete[0].aggregated
    pair = f"{complete[0].disaggregated.candidate} compared with {complete[0].aggregated.candidate}"
    missed = [one for one in complete if not _is_met(one)]
    end = f"; at scale {_scales(missed)} both miss the SLO" if missed else ""
    unknown = [one for one in plan.compared if one.favors_disaggregated is None]
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
    kind = "disaggregated" if is_disaggregated else "aggregated"
    if limit is Limit.TIME:
        return f"{limit} ended the search before {kind} graphs were evaluated; raise it"
    return f"there were too few replays to evaluate {kind} graphs; raise {limit}"


def _is_met(one: Comparison) -> bool:
    return any(
        trial is not None and trial.meets_slo for trial in (one.disaggregated, one.aggregated)
    )


def _scales(some: Sequence[Comparison]) -> str:
    return ", ".join(f"× {limit_text(one.scale)}" for one in some)


def _difference(one: Comparison) -> str:
    own, other = one.disaggregated, one.aggregated
    assert own
    assert other
    if not other.meets_slo:
        return f"the aggregated graph meets the SLO for {other.goodput:.0%} of requests"
    if one.by_gpus and own.candidate.gpus < other.candidate.gpus:
        return f"{own.candidate.gpus} GPUs instead of {other.candidate.gpus}"
    return f"{own.user_rate:.0f} instead of {other.user_rate:.0f} tok/s/user"


def header(plan: Plan, attain: float, command: str, width: int = WIDTH) -> list[str]:
    """The comment at the top of the planned graph, as lines without `#`."""
    winner = plan.winner.candidate
    parts = [
        f"{title(plan)}.",
        f"SLO: {objective_line(plan.request, attain)}.",
        f"Recommended: {winner}, {_gpus(plan.winner)}: {reason(plan)}.",
        f"Router: {plan.routing.reason}.",
        *(f"Speculation: {line}." for line in speculation(plan)),
        *(f"Availability: {line}." for line in availability(plan, attain)),
        f"Headroom: {_headroom(plan, attain)}.",
        f"Margin: {_margin(plan, attain)}.",
        *([f"Working set: {plan.working_set}."] if plan.working_set else []),
        f"Disaggregation: {disaggregation(plan)}.",
        *([f"{LATE}."] if plan.is_late else []),
        *(f"{line.capitalize()}." for line in rejected(plan.winner.row)),
        *(f"Not steady: {why}." for why in _unsteady(plan)),
        *(f"Assumed: {what}." for what in assumed(plan.winner.row)),
        f"Accuracy: {accuracy_line(plan.winner.row)}.",
        "This describes the graph as planned: edits, such as `penstock scale`, do not change it.",
        "Simulated with measured kernels, not run on a GPU. Benchmark it before production use.",
        f"{counts(plan)}. Command:",
    ]
    lines = [line for part in parts for line in wrap(part, width, subsequent_indent="  ")]
    return [*lines, command]  # on one line, so that it can be copied
