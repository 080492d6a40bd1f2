"""One run: the requests of a workload are written, sent by AIPerf, and evaluated."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.bench import aiperf
from penstock.bench.measurement import measurement_of
from penstock.bench.records import read_records
from penstock.bench.report import Bench
from penstock.bench.trace_file import keyed, write_trace
from penstock.errors import BenchError, Problem
from penstock.graph.slo import Slo
from penstock.simulate.conversations import Conversations
from penstock.workload.load import LoadedWorkload

TRACE = "requests.jsonl"
INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """What is measured: an endpoint, and the traffic that it gets."""

    url: str
    """Without `/v1`."""
    model: str
    workload: LoadedWorkload
    slo: Slo
    attain: float
    seed: int
    timeout_s: float
    """Of one request."""


def bench(request: BenchRequest, folder: Path, progress: Callable[[str, int, int], None]) -> Bench:
    """Measure, and keep all files in ``folder``, which exists.

    A run that is interrupted or fails has the figures of the requests until then. BenchError if
    there are none, and if the folder cannot be written.
    """
    program = aiperf.require_environment()
    requests = keyed(request.workload.requests(request.seed))
    concurrency = request.workload.workload.concurrency or None
    trace, total = folder / TRACE, len(requests)
    progress("writing requests", 0, total)
    # With another salt in each run, no prefix cache has the prompts of an earlier one.
    salt = secrets.token_hex(8)
    try:
        write_trace(trace, requests, request.model, salt, is_scheduled=concurrency is None)
    except OSError as error:
        raise BenchError(
            Problem(place=str(trace), message=f"cannot be written: {error.strerror}")
        ) from None
    run = aiperf.Run(
        url=request.url,
        model=request.model,
        trace=trace,
        folder=folder,
        requests=total,
        concurrency=concurrency,
        timeout_s=request.timeout_s,
    )
    psutil.cpu_percent()
    failure = ""
    try:
        aiperf.run(program, [run], lambda done: progress("sending requests", done, total))
    except KeyboardInterrupt:
        failure = INTERRUPTED
    except BenchError as error:
        if not run.records.exists():
            raise
        failure = error.problems[0].message
    cpu_share = psutil.cpu_percent() / 100
    records = read_records(run.records, requests, is_scheduled=concurrency is None)
    if not records.served and not records.failed:
        raise BenchError(Problem(place=request.url, message=failure or "no request was sent"))
    if not records.unsent:
        failure = ""  # AIPerf also fails if no request was served
    return Bench(
        url=request.url,
        model=request.model,
        workload=request.workload,
        slo=request.slo,
        attain=request.attain,
        seed=request.seed,
        client=aiperf.VERSION,
        measurement=measurement_of(
            records,
            request.slo,
            Conversations.of(list(requests.values())),
            is_scheduled=concurrency is None,
            cpu_share=cpu_share,
        ),
        interrupted=failure,
    )
