"""A report of each kind from constructed data: ordinary ones, and those with little or bad data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from penstock.bench import compare_report, report, sweep_report
from penstock.bench.compare import Comparison, check_limits, limit_of
from penstock.bench.difference import differences
from penstock.bench.measurement import (
    Bench,
    Predicted,
    Prediction,
    RequestLog,
    measurement_of,
    percentiles_of,
)
from penstock.bench.records import FailedRequest, Records
from penstock.bench.sweep import Level, Sweep
from penstock.drill import report as drill_report
from penstock.drill.evaluate import evaluate
from penstock.drill.run import DrillOptions, DrillResult
from penstock.drill.traffic import Ending
from penstock.graph.slo import Slo
from penstock.plan import report as plan_report
from penstock.plan.sensitivity import Headroom
from penstock.reports.model import Report
from penstock.reports.provenance import provenance
from penstock.simulate import report as simulate_report
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.study import Row
from penstock.simulate.window import ServedRequest
from penstock.verify import report as verify_report
from penstock.verify.probes import ProbeRun
from penstock.verify.result import cannot_tell, failed, passed
from penstock.workload import Request
from tests.bench import hand_written
from tests.bench.measured_runs import BENCH
from tests.bench.test_limits import comparison
from tests.drill.test_evaluate import fault, request
from tests.drill.test_report import TREND
from tests.plan.simulated_study import (
    LOADED,
    aggregated,
    disaggregated,
    replayed_deployment,
)
from tests.plan.simulated_study import request as plan_request
from tests.plan.test_evidence import trial
from tests.plan.test_report import planned
from tests.reports import constructed_shadow
from tests.simulate.test_metrics import answer

NASTY = "</script><b onclick=alert(1)>%{x} & " + "a-very-long-model-name/" * 8
FROM = provenance(f"penstock bench http://127.0.0.1:8000 --model '{NASTY}'", facts={"seed": "3"})
SLO = Slo(ttft_ms=250.0, itl_ms=20.0, e2e_ms=8000.0)


def served(seed: int, count: int, factor: float = 1.0) -> list[ServedRequest]:
    """Requests every 100 ms with latencies ``factor`` times as long."""
    random, requests = Random(seed), []
    for number in range(count):
        ttft = factor * random.lognormvariate(4.5, 0.5)
        itl, tokens = factor * random.lognormvariate(2.6, 0.2), random.randint(40, 200)
        e2e = ttft + itl * (tokens - 1)
        lengths = {"input_tokens": 1000, "cached_tokens": 200}
        requests.append(hand_written.served(ttft, e2e, tokens, at_ms=100.0 * number, **lengths))
    return requests


def measured(requests: list[ServedRequest], failures: list[FailedRequest], slo: Slo) -> Bench:
    sent = {
        (f"r{number}", 0): Request(
            at_ms=each.arrived_ms,
            input_tokens=each.input_tokens,
            output_tokens=each.tokens,
            blocks=(),
        )
        for number, each in enumerate(requests)
    }
    records = Records(
        start_ms=0.0,
        served={(f"r{number}", 0): each for number, each in enumerate(requests)},
        failed=tuple(failures),
        unsent=0,
        late_ms=(0.5,),
        chunk_gaps_ms=tuple(request.itl_ms or 0.0 for request in requests),
        requested_tokens=sum(request.input_tokens for request in requests),
    )
    return replace(
        BENCH,
        slo=slo,
        measurement=measurement_of(records, slo, None, is_scheduled=True, cpu_share=0.4),
        log=RequestLog(requests=sent, records=records),
    )


def bench() -> Report:
    reasons = ("HTTP 503", "no complete response within --request-timeout")
    failures = [
        FailedRequest(key=(f"f{n}", 0), sent_ms=700.0 * n, reason=reasons[n % 2]) for n in range(9)
    ]
    expected = served(2, 500, 0.9)
    prediction = Prediction(
        graph="a-graph", requests=500, too_long=2, **percentiles_of(expected, has_p99=True)
    )
    run = replace(measured(served(1, 600), failures, SLO), prediction=prediction)
    return report.report_of(run, Predicted(prediction=prediction, requests=expected))


def bench_without_slo() -> Report:
    endpoint = replace(BENCH.endpoint, model=NASTY)
    run = replace(measured(served(1, 3), [], Slo()), endpoint=endpoint, interrupted="interrupted")
    return report.report_of(run)


def bench_that_served_nothing() -> Report:
    failures = [FailedRequest(key=(f"f{n}", 0), sent_ms=100.0 * n, reason=NASTY) for n in range(5)]
    return report.report_of(measured([], failures, SLO))


def sweep() -> Report:
    factors = {1.0: 0.7, 2.0: 0.9, 4.0: 1.2, 8.0: 2.0}
    levels = [
        Level(
            scale=scale,
            bench=replace(
                measured(served(5, int(100 * scale), factor), [], SLO),
                workload=BENCH.workload.at_scale(scale),
            ),
        )
        for scale, factor in factors.items()
    ]
    measured_sweep = Sweep(levels=levels, unmeasured=[16.0], interrupted="", gpus=2)
    return sweep_report.report_of(measured_sweep)


def compared(count: int, *limits: str) -> Report:
    first, second = served(1, count), served(1, count, 1.06)
    pairs = [list(zip(first[n::10], second[n::10], strict=True)) for n in range(10)]
    result: Comparison = replace(
        comparison(),
        differences=differences(pairs),
        served=pairs,
        requests=count,
        overlapping=0.02,
    )
    checked = check_limits(result, [limit_of(limit) for limit in limits])
    return compare_report.report_of(result, checked)


def comparison_of_two() -> Report:
    return compared(600, "ttft_p90 > +5%", "itl_mean > +10%", "e2e_p50 > +1%")


def comparison_without_result() -> Report:
    result = replace(comparison(), differences=(), interrupted="the endpoint no longer serves")
    return compare_report.report_of(result, [])


def replay(seed: int, factor: float) -> dict[str, Any]:
    requests = served(seed, 300, factor)
    result = answer(
        *((each.arrived_ms, each.first_ms, each.ended_ms, each.tokens) for each in requests)
    )
    random = Random(seed)
    pool = {"workers": 3, "running": 8, "waiting": 1, "cache": 0.4}
    result["samples"] = [
        {"at_ms": 300.0 * n, "prefill": pool, "decode": {**pool, "running": random.randint(1, 20)}}
        for n in range(100)
    ]
    return result


@cache
def row(name: str, seed: int, factor: float, slo: Slo) -> Row:
    deployment = replace(replayed_deployment(), name=name, slo=slo)
    result = replay(seed, factor)
    metrics = (replay_metrics(result, deployment.gpus, slo),)
    return Row(replayable=deployment, metrics=metrics, results=(result,))


def simulated(rows: list[Row]) -> Report:
    study = simulate_report.Simulated(
        rows=rows,
        sustained=(),
        loaded=LOADED,
        attain=0.95,
        sets=[None] * len(rows),
    )
    return simulate_report.report_of(study)


def simulate() -> Report:
    factors = {"gpt-oss-120b-b200-disagg": 0.8, "gpt-oss-120b-b200-throughput": 1.5}
    return simulated([row(name, n, f, SLO) for n, (name, f) in enumerate(factors.items())])


def simulate_many() -> Report:
    """50 graphs with long names."""
    return simulated([row(f"{n}-{NASTY}", n, 0.5 + n / 30, SLO) for n in range(50)])


def simulate_without_slo() -> Report:
    return simulated([row("a-graph", 0, 1.0, Slo())])


def plan() -> Report:
    best = planned()
    asked = plan_request(slo=Slo(ttft_ms=51.0, itl_ms=12.0))
    worse = replace(best.winner.row, metrics=(replace(best.winner.row.metrics[0], goodput=0.5),))
    best = replace(
        best,
        request=asked,
        headroom=Headroom(sustained=1.5, failing=2.0),
        sensitivity_rows={"input length × 2": worse, "scale × 1.5": "too long"},
    )
    tried = [
        trial(aggregated(1), 140, 900, meets_slo=False),
        trial(aggregated(3), 160, 600),
        trial(disaggregated(1, 1), 180, 400),
        trial(disaggregated(1, 2), 90, 1100, meets_slo=False),
    ]
    return plan_report.report_of(best, 0.95, tried)


def drilled(count: int, *, was_interrupted: bool = False) -> Report:
    history = [request(number, ended_s=number + 2.0) for number in range(count)]
    faults = [fault(), fault(number=2, kind="scale", target="graph", started_s=60.0)]
    faults[1] = replace(faults[1], recovered_s=66.0, role=None)
    if count:
        history[9] = request(9, ending=Ending.TRUNCATED, error=f"19 tokens {NASTY}")
    result = DrillResult(
        options=DrillOptions(count=2, seed=7, streams=8),
        evaluation=evaluate(history, faults if count else [], stall_s=5),
        history=tuple(history),
        faults=tuple(faults) if count else (),
        memory=(TREND,) if count else (),
        seconds=91.0,
        was_interrupted=was_interrupted,
    )
    return drill_report.report_of("dynamo_graphs/quickstart.yaml", result)


def drill() -> Report:
    return drilled(90)


def drill_without_requests() -> Report:
    return drilled(0, was_interrupted=True)


def verify() -> Report:
    results = {
        "topology": passed("200 in 3 ms"),
        "streaming": failed("12 chunks of 20 tokens", "Set `frontend.stream: true`."),
        "prefix-cache": cannot_tell(f"no metric {NASTY}", "Name the metrics with --metrics."),
    }
    probes = [
        ProbeRun(name=name, result=result, seconds=0.4 * n, required=n == 1)
        for n, (name, result) in enumerate(results.items())
    ]
    return verify_report.report_of("http://127.0.0.1:8000", probes)


def verify_without_probes() -> Report:
    return verify_report.report_of(NASTY, [])


REPORTS: Mapping[str, Callable[[], Report]] = {
    each.__name__: each
    for each in (
        bench,
        bench_without_slo,
        bench_that_served_nothing,
        sweep,
        comparison_of_two,
        comparison_without_result,
        simulate,
        simulate_many,
        simulate_without_slo,
        plan,
        drill,
        drill_without_requests,
        verify,
        verify_without_probes,
        constructed_shadow.shadow,
        constructed_shadow.shadow_without_finding,
        constructed_shadow.shadow_of_one_request,
        constructed_shadow.shadow_of_nothing,
    )
}
