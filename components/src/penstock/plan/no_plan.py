"""What `plan` prints without a recommendation: why, and what would help.

No graph meets the SLO, or the search ended after Ctrl-C or at the time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.errors import SimulationError
from penstock.plan.evidence import surest_trials
from penstock.plan.margin import shown_ms, worst_margins
from penstock.plan.planning import NoPlan
from penstock.plan.report import counts, objective_line, slo_text, table_width, upper_end
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.sensitivity import nearness
from penstock.plan.trials import Limit, Trial, score_of
from penstock.reports.text import table_lines
from penstock.simulate.report import rejected, table_of
from penstock.text.numbers import count_of

PARTIAL_ROWS = 5
# The step times of all layouts come first: 10 s on two cores, most of it for reading AISimulate.
SHORTEST = f"Raise {Limit.TIME} to at least 20s: the first replay begins after about 10 s."


def no_plan_error(
    result: NoPlan, attain: float, load_argument: Callable[[float], str]
) -> SimulationError:
    """No graph meets the SLO: how close the closest comes, and which arguments would do.

    ``load_argument``: the argument of the command line for a multiple of the planned load.
    """
    request = result.request
    done = counts(result)
    if result.undecided and not _is_short_trace(result, attain):
        limit = Limit.TIME if result.is_late else Limit.REPLAYS
        message = f"{count_of(result.replays, 'replay')} cannot decide which graph meets"
        message = f"{message} {slo_text(request, attain)}"
        is_too_short = result.is_late and not result.replays
        return SimulationError(message, fix=SHORTEST if is_too_short else f"Raise {limit}.")
    gpus = f"up to {request.gpus} × {request.gpu.name}"
    parts = [f"no replayed graph with {gpus} met {slo_text(request, attain)}"]
    if result.miss is not None:
        trial = result.miss.trial
        shown_latencies = ", ".join(
            f"{margin.name} p{attain * 100:.4g} {shown_ms(margin.counted(request))} ms "
            f"(SLO: {shown_ms(margin.limit)} ms)"
            for margin in worst_margins(trial.rows, request, attain)
        )
        share = f"{trial.goodput:.1%} of requests within the SLO"
        if request.confidence is not None:
            share += " as predicted"
            shown_latencies = f"{upper_end(request.confidence)}: {shown_latencies}"
        state = ", with one worker fewer" if trial.losses else ""
        parts.append(f"closest: {trial.candidate}{state}: {share}; {shown_latencies}")
        parts.extend(rejected(trial.row))
        overloaded = (row.steadiness for row in trial.rows if not row.is_served)
        if steadiness := next(overloaded, None):
            parts.append(f"its replay is not steady: {steadiness.reason}")
    parts.append(done)
    fix = _alternatives(result, load_argument)
    if _is_short_trace(result, attain):
        flag = load_argument(1.0).split()[0]
        fix = f"Use a longer trace, or a lower {flag}."
    return SimulationError("; ".join(parts), fix=fix)


def _is_short_trace(result: NoPlan, attain: float) -> bool:
    """Whether the closest graph meets the SLO in a replay without a steady state. More replays of
    the same trace show no more."""
    if result.workload.workload.trace is None or result.miss is None:
        return False
    trial = result.miss.trial
    return trial.goodput >= attain and not trial.row.is_served


def _alternatives(result: NoPlan, load_argument: Callable[[float], str]) -> str:
    ways = []
    if result.miss is not None:
        possible, requested = result.miss.slo.model_dump(), result.request.slo.model_dump()
        limits = {field: ms for field, ms in possible.items() if ms is not None}
        arguments = [f"--{f.removesuffix('_ms')} {_rounded_up(ms)}ms" for f, ms in limits.items()]
        # The latencies of an overloaded graph grow with the length of the replay.
        if possible != requested and all(row.is_served for row in result.miss.trial.rows):
            ways.append(f"{' '.join(arguments)}, which the closest graph meets")
        if result.miss.scale is not None and result.request.objective is not Objective.THROUGHPUT:
            argument = load_argument(result.miss.scale)
            ways.append(f"{argument}, at which the closest graph meets the SLO")
    if result.gpus is not None:
        ways.append(f"--gpus {result.gpus} (estimated, not replayed)")
    return f"Use {'; or '.join(ways)}." if ways else "Raise --replays, or loosen the SLO."


def _rounded_up(ms: float) -> str:
    """Rounded up, so that the value is met: to integers from 10 on, else to one decimal."""
    return f"{-(-ms // 1):.0f}" if ms >= 10 else f"{-(-ms * 10 // 1) / 10:g}"


def best_first(
    measured: Sequence[Trial], objective: Objective, closest: Trial | None = None
) -> list[Trial]:
    """The trial of each replayed graph; of those that miss the SLO, the nearest first.

    ``closest``: comes before all others, which were nearer in short replays at most.
    """
    score = score_of(objective)

    def rank(trial: Trial) -> tuple[bool, tuple[float, ...]]:
        return trial.meets_slo, score(trial) if trial.meets_slo else nearness(trial)

    best = sorted(surest_trials(measured, objective), key=rank, reverse=True)
    if closest is None:
        return best
    return [closest, *(trial for trial in best if trial.candidate != closest.candidate)]


def partial_lines(
    best: Sequence[Trial],
    request: PlanRequest,
    attain: float,
    budget: int | None,
    width: int | None = None,
    why: str = "interrupted",
) -> Iterator[str]:
    """``best``: the trials of a search that was ended, best first. ``why``: what ended it."""
    most = "" if budget is None else f", at most {budget} replays"
    count = count_of(len(best), "candidate")
    yield f"partial result: {why} after {count}{most}; no recommendation"
    if best:
        yield f"SLO: {objective_line(request, attain)}"
        table = table_of([trial.row for trial in best[:PARTIAL_ROWS]])
        yield from table_lines(table, table_width(width))
        yield "best first; further replays may change the order"
