"""Run a shift: measure the old release, mirror its requests, and move growing shares of them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.cluster.api_errors import UnavailableError
from penstock.errors import ClusterError, RolloutError
from penstock.metrics import Metrics
from penstock.shift.comparison import WAITING_S, Waiting, failures_of, interval, latencies_of
from penstock.shift.counts import Counter, Counts
from penstock.shift.weights import GatewayFile
from penstock.text.numbers import limit_text

LIMIT_S = 1800.0  # of a step
LOOK_S = 2.0  # between two scrapes
UNAVAILABLE_S, UNDO_S = 60.0, 600.0  # of the API server, for a write, and for the last one
LOOKS, MOST_MISSED = 15, 5  # 30 s, in which no frontend has responded for 10 s
NOT_REACHED_S = 60.0  # without a request
REACHED_BY = 400  # requests of the old release, of which a share of 5% has at least one
SAME_PREFIXES = 50  # percent


class Clock(Protocol):
    """Monotonic seconds."""

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class Frontends(Protocol):
    """The frontends of a release."""

    def scrape(self) -> Mapping[Hashable, Metrics]:
        """The metrics of those that respond, by a key of the process."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How fast a shift goes, and what it permits."""

    steps: tuple[int, ...]
    """Shares of the new release, in percent, one after the other."""
    copies: int
    """Share of the requests that the new release gets as copies first, in percent; 0: none."""
    step_s: float
    """Each step lasts at least as long."""
    step_requests: int
    """Each step lasts at least until the new release has completed as many requests."""
    limit_s: float
    """Longest duration of a step: after it, the requests are too few to compare."""
    slower: float
    """Permitted factor of TTFT and ITL."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The running gateway of the file."""

    publish: Callable[[], None]
    """Apply the file as last written. ClusterError."""
    confirm: Callable[[], None]
    """RolloutError if the gateway does not have the weights of the file."""
    guard: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """Holds signals, so that no write is left incomplete."""


class Shift:
    """Moves the requests of a gateway."""

    def __init__(
        self,
        file: GatewayFile,
        old: Frontends,
        new: Frontends,
        options: Options,
        gateway: Gateway,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._file, self._options, self._gateway = file, options, gateway
        self._clock, self._say = clock, say
        self._frontends = (old, new)
        self._steps = (Counter(), Counter())  # since the step began
        self._totals = (Counter(), Counter())  # since the shift began
        self._lifetime = Counter(lifetime=True)  # of the old release
        self._started: tuple[deque[tuple[float, int]], ...] = (deque(), deque())
        self._most_waiting = Waiting(started=0, without_token=0)  # of the old release
        self._missed: deque[bool] = deque(maxlen=LOOKS)  # looks at the new release

    def run(self) -> None:
        """Return when the new release serves all requests.

        RolloutError if it is worse, or if the requests are too few: the old release then gets all
        requests, as after any other exception.
        """
        file, options = self._file, self._options
        file.require_editable(options.steps)
        try:
            self._apply()
            before = self._step(f"{file.old} serves", None)
            has_copies = bool(options.copies and not file.percent)
            if has_copies:
                self._write(0, copies=options.copies)
                self._step(f"copies of {options.copies}% of the requests to {file.new}", 0)
            for percent in options.steps:
                if percent > file.percent or percent == 100:
                    self._write(percent)
                    # Afterwards, no request of the old release has the same time. With copies, the
                    # new one has already had the whole load.
                    at_end = None if percent < 100 or has_copies else before
                    self._step(f"{percent}% of the requests to {file.new}", percent, at_end)
        except BaseException:
            with self._gateway.guard():
                self._undo()
            raise

    def _undo(self) -> None:
        file = self._file
        if not file.restore():
            self._say(f"{file.path} was edited or cannot be written, and keeps its weights")
        try:
            self._apply(UNDO_S, ClusterError)
        except ClusterError:
            self._say(
                f"{file.new} may still get requests. Set its weight to 0 in {file.path}, and run "
                f"`penstock gateway render {file.path} | kubectl apply -f -`"
            )

    def _write(self, percent: int, *, copies: int = 0) -> None:
        with self._gateway.guard():
            self._file.set_percent(percent, copies=copies)
            self._apply()

    def _apply(
        self, limit_s: float = UNAVAILABLE_S, retried: type[ClusterError] = UnavailableError
    ) -> None:
        """Publish the file, also if the cluster does not respond for some time."""
        deadline = self._clock.now() + limit_s
        while True:
            try:
                self._gateway.publish()
                return
            except retried as error:
                if self._clock.now() >= deadline:
                    raise
                self._say(f"{error}; retrying for up to {limit_s:.0f} s")
                self._clock.sleep(LOOK_S)

    def _step(self, what: str, percent: int | None, before: Counts | None = None) -> Counts:
        """Wait until a step has enough requests; those of the old release.

        ``percent``: of the requests; 0: copies; None: only the old release serves. ``before``:
        compare latencies with those, instead of with those at the same time.
        """
        options, began = self._options, self._clock.now()
        name = self._file.old if percent is None else self._file.new
        self._look()
        self._missed.clear()
        for counter in self._steps:
            counter.restart()
        self._say(f"{what} …")
        while True:
            self._clock.sleep(LOOK_S)
            self._look()
            self._file.require_unedited()
            seconds = self._clock.now() - began
            old, new = (counter.counts() for counter in self._steps)
            if percent is not None:
                self._require_good(before or old, new, percent)
            measured = old if percent is None else new
            if seconds >= options.step_s and measured.completed >= options.step_requests:
                break
            # Of a share, all can be missing randomly if there are few.
            is_reached = measured.started or (percent and old.started < REACHED_BY)
            if not is_reached and seconds >= NOT_REACHED_S:
                raise RolloutError(
                    f"no request reached it within {seconds:.0f} s. {self._restored}",
                    place=name,
                    fix=f"Send requests to the gateway, and check that it uses {self._file.path}.",
                )
            if seconds >= options.limit_s:
                raise RolloutError(
                    f"completed only {measured.completed} requests in {seconds / 60:.0f} minutes, "
                    f"which is too few to compare. {self._restored}",
                    place=name,
                    fix="Start the shift when more requests arrive, or lower --step-requests (now "
                    f"{options.step_requests}).",
                )
        self._gateway.confirm()
        for each, counts in ((self._file.old, old), (self._file.new, new)):
            if percent is not None or each == name:
                self._say(f"  {each}: {summary(counts)}")
        return old

    def _require_good(self, old: Counts, new: Counts, percent: int) -> None:
        slower = self._options.slower
        recent, since = (counter.counts() for counter in self._totals)
        waiting = (self._waiting(0, recent), self._waiting(1, since))
        failures = failures_of(self._lifetime.counts(), recent, since, waiting)
        if sum(self._missed) >= MOST_MISSED:
            missed = f"{sum(self._missed)} of the last {len(self._missed)}"
            failures.append(f"no frontend has responded to {missed} scrapes")
        # With a small share, a release gets few turns of each conversation, and finds few prefixes.
        has_prefixes = percent == 0 or percent >= SAME_PREFIXES
        latencies = latencies_of(old, new, slower, with_ttft=has_prefixes)
        if not failures and not latencies:
            return
        name = self._file.new
        fix = f"Run `penstock logs` for {name}, correct it, and start the shift again."
        if not failures:
            fix = f"Correct {name}, or raise --slower (now {limit_text(slower)})."
        raise RolloutError(
            f"it is worse than {self._file.old}: {'; '.join([*failures, *latencies])}. "
            f"{self._restored}",
            place=name,
            fix=fix,
        )

    @property
    def _restored(self) -> str:
        return f"All requests go to {self._file.old} again"

    def _look(self) -> None:
        now = self._clock.now()
        scrapes = [frontends.scrape() for frontends in self._frontends]
        self._lifetime.add(scrapes[0])
        if scrapes[0]:  # else the cluster does not respond
            self._missed.append(not scrapes[1])
        for each, step, total, started in zip(
            scrapes, self._steps, self._totals, self._started, strict=True
        ):
            step.add(each)
            total.add(each)
            started.append((now, total.counts().started))
            while len(started) > 1 and started[1][0] <= now - WAITING_S:
                started.popleft()

    def _waiting(self, index: int, counts: Counts) -> Waiting:
        # Some of those that ended had a token, so fewer may wait than seem to.
        ended = counts.errors + counts.ended - counts.completed
        without = max(0, counts.started - max(counts.ended, counts.answered + ended))
        waiting = Waiting(
            started=counts.started - self._started[index][0][1], without_token=without
        )
        if index == 0 and waiting.share >= self._most_waiting.share:
            self._most_waiting = waiting
        return waiting if index else self._most_waiting


def summary(counts: Counts) -> str:
    """One line for the operator."""
    parts = [f"{counts.completed:,} requests", f"{counts.errors} failed"]
    for name, latency in (("TTFT", counts.ttft), ("ITL", counts.itl)):
        if latency is not None:
            parts.append(f"mean {name} {interval(latency)}")
    return ", ".join(parts)
