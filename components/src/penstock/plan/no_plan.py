"""The error if no graph meets the SLO, and the changes with which one would."""

from __future__ import annotations

from penstock.errors import Problem, SimulationError
from penstock.plan.margin import latencies
from penstock.plan.planning import Limit, NoPlan
from penstock.plan.report import counts, slo_text
from penstock.plan.request import Objective
from penstock.simulate.report import rejected


def no_plan_error(result: NoPlan, attain: float, scale: float = 1.0) -> SimulationError:
    """No graph meets the SLO: how close the closest comes, and which arguments would do.

    ``scale``: of the workload, as the command line has it.
    """
    request = result.request
    done = counts(result)
    if result.undecided and not _is_short_trace(result, attain):
        limit = Limit.TIME if result.is_late else Limit.REPLAYS
        message = f"{result.replays} replays are too few to decide which graph meets"
        message = f"{message} {slo_text(request, attain)}"
        return SimulationError(Problem(message=message, fix=f"Raise {limit}."))
    gpus = f"up to {request.gpus} × {request.gpu.name}"
    parts = [f"no replayed graph with {gpus} met {slo_text(request, attain)}"]
    if result.miss is not None:
        trial = result.miss.trial
        shown_latencies = ", ".join(
            f"{name} p{attain * 100:.4g} {ms:.4g} ms (SLO: {limit:g} ms)"
            for name, limit, ms in latencies(trial.row, request.slo, attain)
        )
        share = f"{trial.goodput:.1%} of requests within the SLO"
        parts.append(f"closest: {trial.candidate}: {share}; {shown_latencies}")
        parts.extend(rejected(trial.row))
        if not trial.row.is_served and trial.row.steadiness:
            parts.append(f"it is not steady: {trial.row.steadiness.reason}")
    parts.append(done)
    fix = _alternatives(result, scale)
    if _is_short_trace(result, attain):
        fix = "Use a longer trace, or a lower --scale."
    return SimulationError(Problem(message="; ".join(parts), fix=fix))


def _is_short_trace(result: NoPlan, attain: float) -> bool:
    """Whether the closest graph meets the SLO in a replay without a steady state. More replays of
    the same trace show no more."""
    if result.workload.workload.trace is None or result.miss is None:
        return False
    trial = result.miss.trial
    return trial.goodput >= attain and not trial.row.is_served


def _alternatives(result: NoPlan, scale: float) -> str:
    ways = []
    if result.miss is not None:
        flags = {"ttft_ms": "--ttft", "itl_ms": "--itl", "e2e_ms": "--e2e"}
        possible, requested = result.miss.slo.model_dump(), result.request.slo.model_dump()
        arguments = [f"{flags[k]} {_rounded_up(v)}ms" for k, v in possible.items() if v is not None]
        # The latencies of an overloaded graph grow with the length of the replay.
        if possible != requested and result.miss.trial.row.is_served:
            ways.append(f"{' '.join(arguments)}, which that graph meets")
        if result.miss.scale is not None and result.request.objective is not Objective.THROUGHPUT:
            ways.append(f"--scale {result.miss.scale * scale:g}, at which it meets the SLO")
    if result.gpus is not None:
        ways.append(f"--gpus {result.gpus} (estimated, not replayed)")
    return f"Use {'; or '.join(ways)}." if ways else "Raise --replays, or loosen the SLO."


def _rounded_up(ms: float) -> str:
    """Rounded up, so that the value is met: to integers from 10 on, else to one decimal."""
    return f"{-(-ms // 1):.0f}" if ms >= 10 else f"{-(-ms * 10 // 1) / 10:g}"
