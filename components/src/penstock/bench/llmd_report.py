"""A run as llm-d's Benchmark Report 0.2.1, which tools of llm-d read and compare.

Only what was measured is filled in. Their schema: `llmdbenchmark/analysis/benchmark_report` in
github.com/llm-d/llm-d-benchmark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import fmean, stdev
from typing import Any

import yaml

from penstock.bench import aiperf
from penstock.bench.measurement import Bench, RequestLog
from penstock.bench.records import CANCELLED
from penstock.manifests.deployment import Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.simulate.metrics import MAX_REFUSED
from penstock.simulate.window import percentile

VERSION = "0.2.1"
MARK = "# Benchmark Report written by penstock bench"
TOOL = "aiperf"  # llm-d's name of it
SHARES = {"p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}
SHARES |= {"p95": 0.95}
HIGHEST = {"p99": 0.99, "p99p9": 0.999}
ROLES = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.WORKER: "replica"}
Report = dict[str, Any]


def report_of(
    bench: Bench,
    *,
    uid: str,
    experiment: str | None = None,
    stage: int = 0,
    stack: Sequence[Report] = (),
) -> Report:
    """One report. ``experiment``: an id that all reports of a sweep share. ``stage``: number of the
    load in the sweep. ``stack``: as `stack_of` returns it; empty if not known."""
    scenario: Report = {"load": _load(bench, stage)}
    if stack:
        scenario["stack"] = list(stack)
    report: Report = {
        "version": VERSION,
        "run": {
            "uid": uid,
            "eid": experiment,
            "time": _time(bench.log),
            "description": _description(bench),
        },
        "scenario": scenario,
        "results": {"request_performance": {"aggregate": _aggregate(bench)}},
    }
    return {key: _known(value) for key, value in report.items()}


def as_yaml(report: Report) -> str:
    return f"{MARK}\n" + yaml.safe_dump(report, sort_keys=False, allow_unicode=True)


def config_id(content: Any) -> str:
    """A hash by which equal configurations are recognized."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _known(node: Any) -> Any:
    """Without keys whose value is None."""
    if isinstance(node, Mapping):
        return {key: _known(value) for key, value in node.items() if value is not None}
    return [_known(each) for each in node] if isinstance(node, list) else node


def _time(log: RequestLog) -> Report:
    seconds = (log.last_ms - log.first_ms) / 1000
    return {
        "start": log.time_of(log.first_ms).isoformat(),
        "end": log.time_of(log.last_ms).isoformat(),
        "duration": f"PT{seconds:.3f}S",
    }


def _description(bench: Bench) -> str:
    log = bench.log
    begin, end = ((ms - log.first_ms) / 1000 for ms in log.window)
    window = f"from {begin:.1f} s to {end:.1f} s after the first request"
    counted = f"Latencies, lengths and rates are of requests that were sent {window}."
    remarks = [f"{bench.workload.name}, {bench.endpoint.model} at {bench.endpoint.url}.", counted]
    if bench.interrupted:
        remarks.append(f"Incomplete: {bench.interrupted}.")
    if bench.measurement.distorted_by:
        remarks.append(f"The client may have distorted it: {bench.measurement.distorted_by}.")
    return " ".join(remarks)


def _load(bench: Bench, stage: int) -> Report:
    workload = bench.workload.workload
    sent = list(bench.log.requests.values())
    conversation = workload.conversation
    turns = conversation and {"distribution": "fixed", "value": conversation.turns}
    native = {
        "workload": {
            "name": bench.workload.name,
            **workload.model_dump(exclude_none=True),
        },
        "seed": bench.seed,
        "slo": bench.slo.model_dump(exclude_none=True),
        "url": bench.endpoint.url,
        "model": bench.endpoint.model,
    }
    return {
        "metadata": {
            "cfg_id": config_id(native["workload"]),
            "description": bench.workload.name,
        },
        "standardized": {
            "tool": TOOL,
            "tool_version": aiperf.VERSION.removeprefix("AIPerf "),
            "source": "random",
            "stage": stage,
            "input_seq_len": _lengths([request.input_tokens for request in sent]),
            "output_seq_len": _lengths([request.output_tokens for request in sent]),
            "multi_turn": turns and {"enabled": True, "max_turns": turns},
            "rate_qps": workload.mean_rate,
            "concurrency": workload.concurrency or None,
        },
        "native": {"config": native},
    }


def _lengths(tokens: Sequence[int]) -> Report:
    """Of the requests of the workload, which are sampled or recorded."""
    if min(tokens) == max(tokens):
        return {"distribution": "fixed", "value": tokens[0]}
    return {
        "distribution": "other",
        "value": fmean(tokens),
        "min": min(tokens),
        "max": max(tokens),
    }


def _aggregate(bench: Bench) -> Report:
    measured, counted = bench.measurement, bench.log.counted
    failures = measured.failures
    cancelled = failures.reasons.get(CANCELLED, 0)
    has_p99 = failures.share <= MAX_REFUSED

    def statistics(units: str, values: Sequence[float]) -> Report | None:
        return _statistics(units, values, has_p99=has_p99)

    itl = [request.itl_ms for request in counted if request.itl_ms is not None]
    return {
        "requests": {
            "total": failures.sent,
            "failures": failures.total - cancelled,
            "incomplete": cancelled,
            "input_length": _statistics("count", [request.input_tokens for request in counted]),
            "output_length": _statistics("count", [request.tokens for request in counted]),
        },
        "latency": {
            "time_to_first_token": statistics("ms", [request.ttft_ms for request in counted]),
            # Theirs is the time after the first token divided by the tokens after it, as ours.
            "time_per_output_token": statistics("ms/token", itl),
            "normalized_time_per_output_token": statistics(
                "ms/token", [request.e2e_ms / request.tokens for request in counted]
            ),
            "request_latency": statistics("ms", [request.e2e_ms for request in counted]),
        },
        "throughput": {
            "output_token_rate": {"units": "tokens/s", "mean": measured.output_rate},
            "request_rate": {"units": "queries/s", "mean": measured.request_rate},
        },
    }


def _statistics(units: str, values: Sequence[float], *, has_p99: bool = True) -> Report | None:
    """None without values. If many requests failed, they could have been the slowest, so the
    highest percentiles and the maximum are left out."""
    if not values:
        return None
    shares = SHARES | HIGHEST if has_p99 else SHARES
    return {
        "units": units,
        "mean": fmean(values),
        "stddev": stdev(values) if len(values) > 1 else None,
        "min": min(values),
        **{name: percentile(values, share) for name, share in shares.items()},
        "max": max(values) if has_p99 else None,
    }


def stack_of(deployment: ServingDeployment) -> list[Report]:
    """Pools with replicas. Empty if the GPU is not known, or the parallelism of a pool."""
    gpu, model = deployment.gpu, deployment.model_name
    workers = [
        worker for worker in deployment.one_worker_per_component if worker.component.replicas
    ]
    if gpu is None or model is None or not all(worker.is_laid_out for worker in workers):
        return []
    return [_component(worker, gpu.name, model) for worker in workers]


def _component(worker: Worker, gpu: str, model: str) -> Report:
    standardized = {
        "kind": "inference_engine",
        "tool": worker.engine.module,
        "tool_version": f"ai-dynamo {version('ai-dynamo')}",
        "role": ROLES[worker.role],
        "replicas": worker.component.replicas,
        "model": {"name": model},
        "accelerator": {
            "model": gpu,
            "count": worker.component.gpus,
            "parallelism": {"tp": worker.tp, "dp": worker.dp, "pp": worker.pp, "ep": worker.ep},
        },
    }
    return {
        "metadata": {"label": worker.name, "cfg_id": config_id(standardized)},
        "standardized": standardized,
        "native": {},
    }
