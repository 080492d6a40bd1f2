"""One run: the requests of a workload are written, sent by AIPerf, and evaluated."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.bench import aiperf
from penstock.bench.aiperf import Traffic
from penstock.bench.measurement import Bench, BenchRequest, Failures, RequestLog, measurement_of
from penstock.bench.records import Records, read_records
from penstock.bench.trace_file import at_speed, keyed, write_trace
from penstock.errors import BenchError, NotVerifiedError
from penstock.simulate.window import Conversations
from penstock.verify.preflight import KEY, require_endpoint
from penstock.verify.target import ProbeTarget

INTERRUPTED = "interrupted"
BYTES_PER_TOKEN = 6  # `2345, `, of a prompt in the file of requests

Progress = Callable[[str, int, int], None]
"""Gets what is done, and how many requests of how many are."""


class Watch:
    """Called with the number of recorded requests, several times per second.

    Both the time left and the processor time are counted from the first record on: until then,
    AIPerf starts, for about 10 s and with all processors.
    """

    def __init__(
        self,
        progress: Progress,
        total: int,
        cpu_times: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        """``cpu_times``: busy and all seconds of all processors since some time."""
        self._progress, self._total = progress, total
        self._cpu_times = cpu_times or _cpu_times
        self._from: tuple[float, float] | None = None
        self._to = (0.0, 0.0)

    def __call__(self, done: int) -> None:
        if not done:
            self._progress("starting AIPerf", 0, 0)
            return
        if self._from is None:
            self._progress("sending requests", 0, self._total)
            self._from = self._to = self._cpu_times()
        elif done < self._total:
            self._to = self._cpu_times()
        self._progress("sending requests", done, self._total)

    @property
    def cpu_share(self) -> float:
        """Of the processor time while requests were sent; 0 if it was too short to measure."""
        if self._from is None:
            return 0.0
        busy, every = (to - since for to, since in zip(self._to, self._from, strict=True))
        # The kernel's counters are not read at one moment: idle time can decrease.
        return min(1.0, busy / every) if every else 0.0


def _cpu_times() -> tuple[float, float]:
    times = psutil.cpu_times()
    every = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return every - times.idle - getattr(times, "iowait", 0.0), every


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The records of the requests that were sent."""

    records: Sequence[Records]
    """Of each endpoint."""
    cpu_share: float
    """Of this machine's processor time."""
    interrupted: str
    """What ended the run early; empty if nothing did."""


def send(traffic: Sequence[Traffic], progress: Progress) -> Sent:
    """Send all at the same time.

    If this is interrupted or fails, the result has the requests until then. BenchError if there
    are none, and if a folder cannot be written.
    """
    python = aiperf.require_environment()
    for each in traffic:
        _write_requests(each, progress)
    watch = Watch(progress, sum(len(each.requests) for each in traffic))
    failure = ""
    try:
        aiperf.run(python, traffic, watch)
    except KeyboardInterrupt:
        failure = INTERRUPTED
    except BenchError as error:
        if not all(each.records.exists() for each in traffic):
            raise
        failure = error.problems[0].message
    records = [read_records(each) for each in traffic]
    for each, of_each in zip(traffic, records, strict=True):
        if not of_each.served and not of_each.failed:
            if failure == INTERRUPTED:
                raise KeyboardInterrupt
            message = failure or "no request was sent"
            raise BenchError(message, place=each.endpoint.url)
    if not any(of_each.unsent for of_each in records):
        failure = ""  # AIPerf also fails if no request was served
    for each, of_each in zip(traffic, records, strict=True):
        if of_each.failed:
            failure = failure or _outage(each.endpoint.url)
    return Sent(records=records, cpu_share=watch.cpu_share, interrupted=failure)


def _write_requests(traffic: Traffic, progress: Progress) -> None:
    _require_space(traffic)

    def written(count: int) -> None:
        progress("writing requests", count, len(traffic.requests))

    try:
        write_trace(
            traffic.trace,
            at_speed(traffic.requests, traffic.endpoint.speed),
            traffic.endpoint.model,
            # With another salt in each run, no prefix cache has the prompts of an earlier one.
            secrets.token_hex(8),
            is_scheduled=traffic.concurrency is None,
            is_chat=traffic.endpoint.is_chat,
            written=written,
        )
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        fix = "Free space, or name a folder on another file system with --out."
        raise BenchError(message, place=str(traffic.trace), fix=fix) from None


def new_folder(path: Path) -> Path:
    """The folder of one run, inside that of all; BenchError if it cannot be created."""
    try:
        path.mkdir()
    except OSError as error:
        message = f"cannot be created: {error.strerror}"
        fix = "Free space, or name a folder on another file system with --out."
        raise BenchError(message, place=str(path), fix=fix) from None
    return path


def _require_space(traffic: Traffic) -> None:
    """BenchError if the requests do not fit on the file system."""
    needed = BYTES_PER_TOKEN * sum(request.input_tokens for request in traffic.requests.values())
    free = shutil.disk_usage(traffic.folder).free
    if needed > free:
        message = f"the requests need {needed / 1e6:,.2f} MB, and {free / 1e6:,.2f} MB are free"
        fix = "Send fewer requests, or name a folder on another file system with --out."
        raise BenchError(message, place=str(traffic.folder), fix=fix)


def bench(request: BenchRequest, folder: Path, progress: Progress) -> Bench:
    """Measure, and keep all files in ``folder``, which exists. Raises as `send` does."""
    requests = keyed(request.workload.requests(request.seed))
    traffic = Traffic(
        endpoint=request.endpoint,
        requests=requests,
        concurrency=request.workload.workload.concurrency or None,
        folder=folder,
        timeout_s=request.timeout_s,
    )
    sent = send([traffic], progress)
    (records,) = sent.records
    return Bench(
        **vars(request),
        log=RequestLog(requests=requests, records=records),
        measurement=measurement_of(
            records,
            request.slo,
            Conversations.of(list(requests.values())),
            is_scheduled=traffic.concurrency is None,
            cpu_share=sent.cpu_share,
        ),
        interrupted=sent.interrupted,
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
    """As `require_served`."""
    counted, failures = bench.measurement.counted, bench.measurement.failures
    require_served(counted, failures, bench.interrupted, bench.endpoint.url)


def require_served(counted: int, failures: Failures, interrupted: str, url: str) -> None:
    """As `require_uninterrupted`; also BenchError if no request was served. ``counted``: served
    requests."""
    require_uninterrupted(interrupted, url)
    if not counted:
        reasons = ", ".join(failures.reasons)
        message = f"served none of the requests: {reasons}"
        fix = "Read the endpoint's log; if it only needs longer, raise --request-timeout."
        if reasons in ("HTTP 401", "HTTP 403"):
            fix = f"Set the environment variable {KEY} to a key of this endpoint."
        raise BenchError(message, place=url, fix=fix)


def require_uninterrupted(interrupted: str, place: str = "") -> None:
    """After the figures were printed: KeyboardInterrupt if the user ended the run, BenchError if it
    failed. ``interrupted``: as in `Sent`."""
    if interrupted == INTERRUPTED:
        raise KeyboardInterrupt
    if interrupted:
        message = f"the run is incomplete: {interrupted}"
        fix = "Correct the cause and repeat the run; use these figures with care."
        raise BenchError(message, place=place, fix=fix)
