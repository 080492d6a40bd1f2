"""OpenRouter's figures of an endpoint, computed from the frontends' own metrics. Sends no load.

The metrics are read often. TTFT, throughput and uptime are those of the requests that ended
meanwhile, of all clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import httpx

from penstock.bench.methods.frontend_counters import (
    Counters,
    RequestSpeeds,
    Scrape,
    is_frontend,
    read_scrape,
)
from penstock.bench.run import INTERRUPTED, Progress
from penstock.errors import BenchError
from penstock.verify.target import ProbeTarget

DURATION_S = 1800.0
POLL_S = 0.25  # the shorter, the more requests end alone between two readings
GET_S = 5.0  # time limit of one reading

Read = Callable[[str], str]
"""The metrics at a URL; raises OSError or httpx.HTTPError if they cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the frontends counted during a run."""

    model: str
    urls: tuple[str, ...]
    """Of the frontends, without `/metrics`."""
    seconds: float
    readings: int
    failed_readings: int
    processes: int
    """Frontends that were seen; one that restarts counts twice."""
    total: Counters
    """Of the run."""
    changes: Sequence[tuple[float, Counters]]
    """With the seconds from the begin of the run until each."""
    since_start: Counters
    """Since the frontends started."""
    known: tuple[float, ...]
    """Output tokens/s of requests whose throughput is known."""
    unknown: int
    """Number of the other successful requests."""
    interrupted: str = ""

    def last(self, seconds: float) -> Counters | None:
        """The last ``seconds``; None if the run was shorter."""
        if self.seconds < seconds:
            return None
        total = Counters()
        for at, change in self.changes:
            if at > self.seconds - seconds:
                total += change
        return total


@dataclass(kw_only=True)
class Recorder:
    """Turns readings of several frontends into changes of their counters."""

    changes: list[tuple[float, Counters]] = field(default_factory=list)
    last: dict[str, Counters] = field(default_factory=dict)
    """Of each process, by its id, or by its URL if it has none."""
    ended: Counters = field(default_factory=Counters)
    """Of processes without an id that restarted."""
    restarts: int = 0
    speeds: dict[str, RequestSpeeds] = field(default_factory=dict)

    def add(self, at_s: float, url: str, scrape: Scrape) -> None:
        """``at_s``: since the begin of the run."""
        name = scrape.process or url
        before = self.last.get(name)
        if before is None:
            # A process that is younger than the run counted from 0 within it.
            is_new = scrape.uptime_s is not None and scrape.uptime_s < at_s
            before = Counters() if is_new else scrape.counters
        change = scrape.counters - before
        if change.is_below_zero:
            self.ended += before
            self.restarts += 1
            change = scrape.counters
        self.last[name] = scrape.counters
        self.speeds.setdefault(name, RequestSpeeds()).add(change)
        if change != Counters() and change != change - change:
            self.changes.append((at_s, change))


def observe(
    urls: Sequence[str],
    model: str,
    duration_s: float,
    progress: Progress,
    *,
    read: Read | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Observation:
    """Read the metrics of all ``urls`` for ``duration_s`` seconds; Ctrl-C ends it early.

    BenchError if a frontend cannot be read at the begin, or is no Dynamo frontend.
    """
    recorder, begin = Recorder(), clock()
    readings = failed = 0
    interrupted = ""
    with ExitStack() as opened:
        read = read or _reader(urls, opened)
        for url in urls:
            recorder.add(0.0, url, _first(url, model, read))
        elapsed = clock() - begin
        try:
            while elapsed < duration_s:
                sleep(min(POLL_S, duration_s - elapsed))
                elapsed = clock() - begin
                for url in urls:
                    readings += 1
                    scrape = _next(url, model, read)
                    if scrape is None:
                        failed += 1
                    else:
                        recorder.add(elapsed, url, scrape)
                progress("reading metrics", round(min(elapsed, duration_s)), round(duration_s))
        except KeyboardInterrupt:
            interrupted = INTERRUPTED
    speeds = recorder.speeds.values()
    return Observation(
        model=model,
        urls=tuple(urls),
        seconds=elapsed,
        readings=readings,
        failed_readings=failed,
        processes=len(recorder.last) + recorder.restarts,
        total=sum((change for _, change in recorder.changes), Counters()),
        changes=recorder.changes,
        since_start=sum(recorder.last.values(), recorder.ended),
        known=tuple(speed for each in speeds for speed in each.known),
        unknown=sum(each.unknown for each in speeds),
        interrupted=interrupted,
    )


def _first(url: str, model: str, read: Read) -> Scrape:
    """BenchError if the metrics cannot be read, or are not those of a Dynamo frontend."""
    place = f"{url}/metrics"
    try:
        text = read(url)
        scrape = read_scrape(text, model)
    except (OSError, httpx.HTTPError) as error:
        message = f"cannot be read: {error or type(error).__name__}"
        fix = "Name the address of a frontend that serves its metrics at /metrics."
        raise BenchError(message, place=place, fix=fix) from None
    except ValueError:
        text = ""
    if not is_frontend(text):
        fix = "Name the address of a Dynamo frontend, not that of a gateway in front of it."
        message = "has no metrics of a Dynamo frontend"
        raise BenchError(message, place=place, fix=fix)
    return scrape


def _next(url: str, model: str, read: Read) -> Scrape | None:
    """None if the frontend does not respond, for example while it restarts."""
    try:
        text = read(url)
        return read_scrape(text, model) if is_frontend(text) else None
    except (OSError, httpx.HTTPError, ValueError):
        return None


def _reader(urls: Sequence[str], opened: ExitStack) -> Read:
    """Over HTTP, with the API key of the environment."""
    endpoints = {url: ProbeTarget(url=url) for url in urls}
    for endpoint in endpoints.values():
        opened.callback(endpoint.close)
    return lambda url: endpoints[url].text("/metrics", GET_S)


def require_traffic(observation: Observation) -> None:
    """After the figures were printed. BenchError if no request ended during the run."""
    if not any(observation.total.outcomes.values()):
        message = f"no request for {observation.model} ended within {observation.seconds:.0f} s"
        fix = "Repeat the run while clients use the model; this method sends no requests."
        raise BenchError(message, place=", ".join(observation.urls), fix=fix)
