"""A plan in words: the table, why the winner won, and the header of the graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from textwrap import wrap
from typing import Any

from penstock.errors import Problem, SimulationError
from penstock.graph.slo import Slo
from penstock.plan.choose import EVEN, RUNG, TIE, score_of
from penstock.plan.planning import NoPlan, Plan
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.sensitivity import Comparison
from penstock.plan.trials import Trial
from penstock.simulate.metrics import percentile, spreads, steady_requests
from penstock.simulate.report import (
    ALWAYS_LEFT_OUT,
    KNOWN_ERROR,
    arrival_of,
    as_rows,
    assumed,
    table,
)
from penstock.simulate.study import Row

WIDTH = 110  # of the header's lines
NEXT = RUNG * 1.01  # times the load that holds: nothing between was to be replayed
NOT_TRIED = "speculation, several nodes a worker, batch limits other than those in the table"


def lines(plan: Plan, attain: float) -> Iterator[str]:
    """All that is printed."""
    yield f"{_plan_request(plan)}; simulated, not measured"
    yield f"wanted: {promise(plan.request, attain)}"
    yield from table([trial.row for trial in shown(plan)])
    yield f"chosen: {plan.winner.candidate}: {why(plan)}"
    yield f"headroom: {'; '.join(headroom(plan, attain))}"
    for name, row in plan.sensitivity_rows.items():
        yield f"what if, {name}: {_sensitivity_line(row, attain)}"
    yield f"disaggregation: {pays(plan)}"
    for layout, reason in plan.excluded.items():
        yield f"not considered: {layout}: {reason}"
    yield f"not considered: {NOT_TRIED}"
    for what in dict.fromkeys(w for trial in shown(plan) for w in assumed(trial.row)):
        yield f"assumed: {what}"
    yield f"not simulated: {'; '.join(ALWAYS_LEFT_OUT)}"
    yield f"{plan.considered} candidates, {plan.replays} replays"
    yield KNOWN_ERROR


def shown(plan: Plan) -> list[Trial]:
    """The winner, the best of both families, then the others."""
    best = [trial for trial in (plan.aggregated, plan.disaggregated) if trial is not None]
    return list({t.candidate: t for t in (plan.winner, *best, *plan.runners_up)}.values())


def _plan_request(plan: Plan) -> str:
    request = plan.request
    load = arrival_of(plan.workload.scaled(plan.base))
    what = f"{request.model} on up to {request.gpus} × {request.gpu.name}"
    return f"{what}, {plan.workload.name} ({load})"


def promise(request: PlanRequest, attain: float) -> str:
    words = {
        Objective.COST: "the fewest GPUs",
        Objective.THROUGHPUT: "the most load",
        Objective.INTERACTIVITY: "the most tokens a second for a user",
    }
    slo = f"{request.slo} for {_share(attain)} of requests"
    return f"{slo}; {words[request.objective]} ({request.objective})"


def _share(attain: float) -> str:
    return f"{attain * 100:.4g}%"


def why(plan: Plan) -> str:
    """What it has more of than the best of the other family, and whether a tie decided."""
    own, other = plan.winner, _other(plan)
    objective = plan.request.objective
    if objective is Objective.COST:
        count = own.candidate.gpus
        said = "1 GPU holds it" if count == 1 else f"{count} GPUs hold it; fewer were not seen to"
    elif objective is Objective.THROUGHPUT:
        said = f"it holds {_rate(own)}"
    else:
        said = f"{own.user_rate:.0f} tokens/s a user"
    kind = "aggregated" if own.candidate.is_disaggregated else "disaggregated"
    if other is None and plan.too_few:
        said += f"; the replays were too few for {kind} graphs"
    elif other is None:
        said += f"; no {kind} graph was seen to hold it"
    else:
        said += f"; the best {kind} one ({other.candidate}) {_against(own, other, objective)}"
    best = max([own, *plan.runners_up], key=score_of(objective))
    if best is not own:
        is_alike = best.candidate.effort == own.candidate.effort
        how = f"within {EVEN:.0%}" if is_alike else f"within {TIE:.0%}, and more effort to run"
        said += f"; {best.candidate} is as good {how}"
    return said


def _other(plan: Plan) -> Trial | None:
    return plan.aggregated if plan.winner.candidate.is_disaggregated else plan.disaggregated


def _against(own: Trial, other: Trial, objective: Objective) -> str:
    if objective is Objective.COST:
        return f"needs {other.candidate.gpus}, at {other.user_rate:.0f} tokens/s a user"
    if objective is Objective.THROUGHPUT:
        return f"holds {_rate(other)}"
    return f"has {other.user_rate:.0f} (× {own.user_rate / other.user_rate:.2f})"


def _rate(trial: Trial) -> str:
    found = dict(spreads(trial.row.metrics))
    per_gpu, requests = found["gpu_rate"].median, found["request_rate"].median
    return f"{requests:.3g} requests/s, {per_gpu:,.0f} tokens/s a GPU"


def headroom(plan: Plan, attain: float) -> Iterator[str]:
    """How far what was promised is away, at the share of requests that must meet it."""
    for name, promised, took in _taken(plan.winner.row, plan.request.slo, attain):
        left = 1 - took / promised
        yield f"{name} {took:.4g} of {promised:g} ms at {_share(attain)} ({left:.0%} left)"
    if plan.headroom.held:
        yield f"load × {plan.headroom.held:g} is held"
    if plan.headroom.breaks:
        yield f"load × {plan.headroom.breaks:.3g} is not held"
    is_most = plan.headroom.breaks is not None and plan.headroom.breaks <= NEXT
    if plan.request.objective is Objective.THROUGHPUT and not is_most:
        yield "between them nothing was replayed: for the most that it holds raise --replays"


def _taken(row: Row, slo: Slo, share: float) -> Iterator[tuple[str, float, float]]:
    """(what, promised ms, ms of the ``share`` of requests), the median over the seeds."""
    requests = [steady_requests(answer) for answer in row.answers]
    took = {
        "TTFT": (slo.ttft_ms, [[one.ttft_ms for one in some] for some in requests]),
        "ITL": (slo.itl_ms, [[one.itl_ms or 0.0 for one in some] for some in requests]),
        "end to end": (
            slo.e2e_ms,
            [[one.ended_ms - one.arrived_ms for one in some] for some in requests],
        ),
    }
    for name, (promised, seeds) in took.items():
        if promised is not None:
            yield name, promised, median(percentile(values, share) for values in seeds)


def _sensitivity_line(row: Row | str, attain: float) -> str:
    if isinstance(row, str):
        return f"not replayed: {row}"
    found = dict(spreads(row.metrics))
    share = row.goodput or 0.0
    verdict = "holds" if share >= attain else "misses"
    refused = f", {row.too_long} requests longer than the context" if row.too_long else ""
    return (
        f"{verdict}, {share:.0%} within the SLO, TTFT p50 {found['ttft_p50_ms'].median:.0f} ms, "
        f"ITL p50 {found['itl_p50_ms'].median:.1f} ms{refused}"
    )


def pays(plan: Plan) -> str:
    """From which load on a disaggregated is worth it."""
    if plan.request.gpus < 2:
        return "one GPU cannot be split"
    if plan.too_few:
        kind = "disaggregated" if plan.disaggregated is None else "aggregated"
        return f"the replays were too few to say what {kind} graphs hold: raise --replays"
    if plan.disaggregated is None:
        return "no disaggregated graph was seen to hold the load"
    if plan.aggregated is None:
        return "pays: no aggregated graph was seen to hold the load"
    said = [one for one in plan.compared if one.disaggregated and one.aggregated]
    served = [one for one in said if _is_held(one)]
    paying = [one for one in served if one.pays]
    if not said:
        return "the replays were too few to compare loads: raise --replays"
    assert said[0].disaggregated
    assert said[0].aggregated
    what = f"{said[0].disaggregated.candidate} against {said[0].aggregated.candidate}"
    beyond = [one for one in said if not _is_held(one)]
    end = f"; at {_loads(beyond)} of the load neither holds" if beyond else ""
    if not paying:
        return f"does not pay at {_loads(served)} of the load{end}: {what}"
    first = paying[0]
    goes_on = all(one.pays for one in served if one.scale >= first.scale)
    where = f"from × {first.scale:g} of the load on" if goes_on else f"only at {_loads(paying)}"
    return f"pays {where} ({_difference(first)}){end}: {what}"


def _is_held(one: Comparison) -> bool:
    return any(
        trial is not None and trial.meets_slo for trial in (one.disaggregated, one.aggregated)
    )


def _loads(some: Sequence[Comparison]) -> str:
    return ", ".join(f"× {one.scale:g}" for one in some)


def _difference(one: Comparison) -> str:
    assert one.disaggregated
    assert one.aggregated
    if not one.aggregated.meets_slo:
        return f"there one pool has {one.aggregated.goodput:.0%} within the SLO"
    if one.disaggregated.candidate.gpus < one.aggregated.candidate.gpus:
        return f"{one.disaggregated.candidate.gpus} GPUs, not {one.aggregated.candidate.gpus}"
    return (
        f"{one.disaggregated.user_rate:.0f} against {one.aggregated.user_rate:.0f} tokens/s a user"
    )


def header(plan: Plan, attain: float, command: str) -> list[str]:
    """The comment at the top of the graph."""
    said = [
        f"{_plan_request(plan)}.",
        f"Wanted: {promise(plan.request, attain)}.",
        f"Chosen: {plan.winner.candidate}, {plan.winner.candidate.gpus} GPUs: {why(plan)}.",
        f"Headroom: {'; '.join(headroom(plan, attain))}.",
        f"Disaggregation: {pays(plan)}.",
        "Simulated with measured kernels, not run on a GPU: benchmark it before it serves anybody.",
        f"{plan.considered} candidates, {plan.replays} replays:",
    ]
    lines = [line for part in said for line in wrap(part, WIDTH, subsequent_indent="  ")]
    return [*lines, command]  # whole, so that it can be copied


def as_json(plan: Plan, attain: float, graph: str) -> str:
    rows = [trial.row for trial in shown(plan)]
    found: dict[str, Any] = {
        "model": plan.request.model,
        "gpu": plan.request.gpu.name,
        "gpus": plan.request.gpus,
        "objective": plan.request.objective,
        "slo": plan.request.slo.model_dump(),
        "attain": attain,
        "workload": plan.workload.workload.model_dump(exclude_none=True),
        "chosen": str(plan.winner.candidate),
        "why": why(plan),
        "best_aggregated": str(plan.aggregated.candidate) if plan.aggregated else None,
        "best_disaggregated": str(plan.disaggregated.candidate) if plan.disaggregated else None,
        "headroom": list(headroom(plan, attain)),
        "load_headroom": {"holds": plan.headroom.held, "breaks": plan.headroom.breaks},
        "what_if": {
            name: _sensitivity_json(row, attain) for name, row in plan.sensitivity_rows.items()
        },
        "disaggregation": {"said": pays(plan), "loads": list(map(_compared_json, plan.compared))},
        "graphs": as_rows(rows),
        "not_considered": {str(layout): why for layout, why in plan.excluded.items()},
        "candidates": plan.considered,
        "replays": plan.replays,
        "known_error": KNOWN_ERROR,
        "graph": graph,
    }
    return json.dumps(found, indent=2)


def _sensitivity_json(row: Row | str, attain: float) -> dict[str, Any]:
    if isinstance(row, str):
        return {"not_replayed": row}
    figures = {name: asdict(found) for name, found in spreads(row.metrics)}
    return {"holds": (row.goodput or 0.0) >= attain, "figures": figures}


def _compared_json(one: Comparison) -> dict[str, Any]:
    return {
        "load": one.scale,
        "pays": one.pays,
        "disaggregated": _side(one.disaggregated),
        "aggregated": _side(one.aggregated),
    }


def _side(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {"holds": trial.meets_slo, "goodput": trial.goodput, "user_rate": trial.user_rate}


def refusal(found: NoPlan, attain: float, load: float = 1.0) -> SimulationError:
    """That nothing does it, how near the nearest comes, and what would do; ``load`` is what the
    workload was asked at."""
    request = found.request
    asked = promise(request, attain)
    if found.undecided:
        message = f"{found.replays} replays are too few to say what gives {asked}"
        return SimulationError(Problem(message=message, fix="raise --replays"))
    problems = [f"no graph of up to {request.gpus} × {request.gpu.name} was seen to give {asked}"]
    if found.miss is not None:
        trial = found.miss.trial
        took = ", ".join(
            f"{name} {ms:.4g} ms (wanted {promised:g})"
            for name, promised, ms in _taken(trial.row, request.slo, attain)
        )
        problems.append(f"nearest: {trial.candidate}: {trial.goodput:.1%} in the SLO; {took}")
    problems.append(f"{found.considered} candidates, {found.replays} replays")
    return SimulationError(
        Problem(message="; ".join(problems), fix="; or ".join(_ways(found, load)))
    )


def _ways(found: NoPlan, load: float) -> Sequence[str]:
    ways = []
    if found.miss is not None:
        flags = {"ttft_ms": "--ttft", "itl_ms": "--itl", "e2e_ms": "--e2e"}
        said, asked = found.miss.slo.model_dump(), found.request.slo.model_dump()
        words = [f"{flags[k]} {_up(v)}ms" for k, v in said.items() if v is not None]
        if said != asked:
            ways.append(f"{' '.join(words)}, which that graph meets")
        if found.miss.load is not None and found.request.objective is not Objective.THROUGHPUT:
            ways.append(f"--load {found.miss.load * load:g}, which it holds")
    if found.gpus is not None:
        ways.append(f"--gpus {found.gpus} (by the estimate, not replayed)")
    return ways or ["raise --replays, or loosen the SLO"]


def _up(value: float) -> str:
    """Two digits more than needed would promise too much, and fewer would miss."""
    return f"{-(-value // 1):.0f}" if value >= 10 else f"{-(-value * 10 // 1) / 10:g}"
