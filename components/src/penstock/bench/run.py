"""One run: the requests of a workload are written, sent by AIPerf, and evaluated."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.bench import aiperf
from penstock.bench.measurement import measurement_of
from penstock.bench.model import Bench, RequestLog
from penstock.bench.records import Records, read_records
from penstock.bench.trace_file import Key, at_speed, keyed, write_trace
from penstock.bench.watch import Progress, Watch
from penstock.errors import BenchError, NotVerifiedError, Problem
from penstock.graph.slo import Slo
from penstock.simulate.window import Conversations
from penstock.verify.preflight import KEY, require_endpoint
from penstock.verify.target import ProbeTarget
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload

TRACE = "requests.jsonl"
INTERRUPTED = "interrupted"
BYTES_PER_TOKEN = 6  # `2345, `, of a prompt in the file of requests


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    url: str
    """Without `/v1`."""
    model: str
    """Model to request."""
    graph: str = ""
    """Its file; empty if it was named by its URL."""
    is_chat: bool = False
    """It gets chat requests, else completions."""
    speed: float = 1.0
    """Simulation speed; 0.5 runs at half real time. All times of requests are simulated."""
    engine_is_substitute: bool | None = None
    """Whether mockers serve instead of an engine; null if that is not known."""

    def __str__(self) -> str:
        mockers = "mockers, not an engine" if self.engine_is_substitute else ""
        notes = "; ".join(filter(None, (self.graph, mockers)))
        return f"{self.model} at {self.url}" + (f" ({notes})" if notes else "")


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one endpoint gets."""

    endpoint: Endpoint
    requests: Mapping[Key, Request]
    concurrency: int | None
    """None: requests are sent at their times of arrival."""
    folder: Path
    """For all files; exists."""
    duration_s: float | None = None
    """After which no request is sent, with a fixed concurrency; None: all are sent."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The records of the requests that were sent."""

    records: Sequence[Records]
    """Of each endpoint."""
    cpu_share: float
    """Of this machine's processor time."""
    interrupted: str
    """What ended the run early; empty if nothing did."""


def send(traffic: Sequence[Traffic], timeout_s: float, progress: Progress) -> Sent:
    """Send all at the same time. ``timeout_s``: of one request.

    If this is interrupted or fails, the result has the requests until then. BenchError if there
    are none, and if a folder cannot be written.
    """
    python = aiperf.require_environment()
    total = sum(len(each.requests) for each in traffic)
    runs = [_prepared(each, timeout_s, progress) for each in traffic]
    watch = Watch(progress, total)
    failure = ""
    try:
        aiperf.run(python, runs, watch)
    except KeyboardInterrupt:
        failure = INTERRUPTED
    except BenchError as error:
        if not all(run.records.exists() for run in runs):
            raise
        failure = error.problems[0].message
    records = [_read(each, run) for each, run in zip(traffic, runs, strict=True)]
    for each, of_each in zip(traffic, records, strict=True):
        if not of_each.served and not of_each.failed:
            if failure == INTERRUPTED:
                raise KeyboardInterrupt
            message = failure or "no request was sent"
            raise BenchError(Problem(place=each.endpoint.url, message=message))
    if not any(of_each.unsent for of_each in records):
        failure = ""  # AIPerf also fails if no request was served
    for each, of_each in zip(traffic, records, strict=True):
        if of_each.failed:
            failure = failure or _outage(each.endpoint.url)
    return Sent(records=records, cpu_share=watch.cpu_share, interrupted=failure)


def _prepared(traffic: Traffic, timeout_s: float, progress: Progress) -> aiperf.Run:
    trace, total = traffic.folder / TRACE, len(traffic.requests)
    _require_space(traffic)

    def written(count: int) -> None:
        progress("writing requests", count, total)

    # With another salt in each run, no prefix cache has the prompts of an earlier one.
    salt = secrets.token_hex(8)
    is_scheduled = traffic.concurrency is None
    model, speed = traffic.endpoint.model, traffic.endpoint.speed
    try:
        write_trace(
            trace,
            at_speed(traffic.requests, speed),
            model,
            salt,
            is_scheduled=is_scheduled,
            is_chat=traffic.endpoint.is_chat,
            written=written,
        )
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        fix = "Free space, or name a folder on another file system with --out."
        raise BenchError(Problem(place=str(trace), message=message, fix=fix)) from None
    return aiperf.Run(
        url=traffic.endpoint.url,
        model=model,
        trace=trace,
        folder=traffic.folder,
        conversations=len({conversation for conversation, _ in traffic.requests}),
        concurrency=traffic.concurrency,
        timeout_s=timeout_s / speed,
        is_chat=traffic.endpoint.is_chat,
        duration_s=traffic.duration_s and traffic.duration_s / speed,
    )


def new_folder(path: Path) -> Path:
    """The folder of one run, inside that of all; BenchError if it cannot be created."""
    try:
        path.mkdir()
    except OSError as error:
        message = f"cannot be created: {error.strerror}"
        fix = "Free space, or name a folder on another file system with --out."
        raise BenchError(Problem(place=str(path), message=message, fix=fix)) from None
    return path


def _require_space(traffic: Traffic) -> None:
    """BenchError if the requests do not fit on the file system."""
    needed = BYTES_PER_TOKEN * sum(request.input_tokens for request in traffic.requests.values())
    free = shutil.disk_usage(traffic.folder).free
    if needed > free:
        message = f"the requests need {needed / 1e6:,.2f} MB, and {free / 1e6:,.2f} MB are free"
        fix = "Send fewer requests, or name a folder on another file system with --out."
        raise BenchError(Problem(place=str(traffic.folder), message=message, fix=fix))


def _read(traffic: Traffic, run: aiperf.Run) -> Records:
    speed = traffic.endpoint.speed
    records = read_records(
        run.records,
        at_speed(traffic.requests, speed),
        is_scheduled=traffic.concurrency is None,
        is_chat=traffic.endpoint.is_chat,
    )
    return records.simulated(speed)


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """What is measured: an endpoint, and the traffic that it gets."""

    endpoint: Endpoint
    workload: LoadedWorkload
    slo: Slo
    attain: float
    seed: int
    timeout_s: float
    """Of one request."""


def bench(request: BenchRequest, folder: Path, progress: Progress) -> Bench:
    """Measure, and keep all files in ``folder``, which exists. Raises as `send` does."""
    requests = keyed(request.workload.requests(request.seed))
    concurrency = request.workload.workload.concurrency or None
    traffic = Traffic(
        endpoint=request.endpoint, requests=requests, concurrency=concurrency, folder=folder
    )
    sent = send([traffic], request.timeout_s, progress)
    return Bench(
        url=request.endpoint.url,
        model=request.endpoint.model,
        workload=request.workload,
        slo=request.slo,
        attain=request.attain,
        seed=request.seed,
        speed=request.endpoint.speed,
        engine_is_substitute=request.endpoint.engine_is_substitute,
        client=aiperf.VERSION,
        measurement=measurement_of(
            sent.records[0],
            request.slo,
            Conversations.of(list(requests.values())),
            is_scheduled=concurrency is None,
            cpu_share=sent.cpu_share,
        ),
        interrupted=sent.interrupted,
        log=RequestLog(requests=requests, records=sent.records[0]),
    )


def _outage(url: str) -> str:
    """Why the endpoint does not respond after a run with failures; empty if it does."""
    endpoint = ProbeTarget(url=url)
    try:
        require_endpoint(endpoint)
    except NotVerifiedError as error:
        return f"the endpoint no longer serves: {error.problems[0].message}"
    finally:
        endpoint.close()
    return ""


def require_complete(bench: Bench) -> None:
    """As `require_uninterrupted`; also BenchError if no request was served."""
    require_uninterrupted(bench.interrupted, bench.url)
    if not bench.measurement.counted:
        reasons = ", ".join(bench.measurement.failures.reasons)
        message = f"served none of the requests: {reasons}"
        fix = "Read the endpoint's log; if it only needs longer, raise --request-timeout."
        if reasons in ("HTTP 401", "HTTP 403"):
            fix = f"Set the environment variable {KEY} to a key of this endpoint."
        raise BenchError(Problem(place=bench.url, message=message, fix=fix))


def require_uninterrupted(interrupted: str, place: str = "") -> None:
    """After the figures were printed: KeyboardInterrupt if the user ended the run, BenchError if it
    failed. ``interrupted``: as in `Sent`."""
    if interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    if interrupted:
        message = f"the run is incomplete: {interrupted}"
        fix = "Correct the cause and repeat the run; use these figures with care."
        raise BenchError(Problem(place=place, message=message, fix=fix))
