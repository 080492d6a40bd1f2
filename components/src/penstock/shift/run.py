"""Run a shift: measure the old release, mirror its requests, and move growing shares of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import ClusterError, RolloutError
from penstock.metrics import Metrics
from penstock.shift.comparison import Evidence, failures_of, latencies_of
from penstock.shift.counts import Counter, Counts
from penstock.shift.weights import GatewayFile
from penstock.text.numbers import limit_text, significant

LIMIT_S = 1800.0  # of a step
LOOK_S = 2.0  # between two scrapes
UNAVAILABLE_S = 60.0  # of the API server, for a write
SILENT_S = 10.0  # without a response of any frontend
NOT_REACHED_S = 60.0  # without a request


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


class Shift:
    """Moves the requests of a gateway. ``publish`` applies the written file to the gateway."""

    def __init__(
        self,
        file: GatewayFile,
        old: Frontends,
        new: Frontends,
        options: Options,
        publish: Callable[[], None],
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._file, self._options, self._publish = file, options, publish
        self._clock, self._say = clock, say
        self._frontends = (old, new)
        self._steps = (Counter(), Counter())  # since the step began
        self._totals = (Counter(), Counter())  # since the shift began
        self._lifetime = Counter(lifetime=True)  # of the old release
        self._before: Counts | None = None
        self._responded = clock.now()

    def run(self) -> None:
        """Return when the new release serves all requests.

        RolloutError if it is worse, or if the requests are too few: the file and the gateway are
        then as before, as after any other exception.
        """
        file, options = self._file, self._options
        try:
            self._apply()
            self._step(f"{file.old} serves", is_baseline=True)
            self._before = self._steps[0].counts()
            if options.copies and not file.percent:
                self._write(0, copies=options.copies)
                self._step(f"copies of {options.copies}% of the requests to {file.new}")
            for percent in options.steps:
                if percent > file.percent or percent == 100:
                    self._write(percent)
                    self._step(f"{percent}% of the requests to {file.new}")
        except BaseException:
            file.restore()
            self._apply()
            raise

    def _write(self, percent: int, *, copies: int = 0) -> None:
        self._file.set_percent(percent, copies=copies)
        self._apply()

    def _apply(self) -> None:
        """Publish the file, also if the cluster does not respond for a short time."""
        deadline = self._clock.now() + UNAVAILABLE_S
        while True:
            try:
                self._publish()
                return
            except ClusterError as error:
                if self._clock.now() >= deadline:
                    raise
                self._say(f"{error}; retrying for up to {UNAVAILABLE_S:.0f} s")
                self._clock.sleep(LOOK_S)

    def _step(self, what: str, *, is_baseline: bool = False) -> None:
        options, began = self._options, self._clock.now()
        self._responded = began
        self._look()
        for counter in self._steps:
            counter.restart()
        self._say(f"{what} …")
        while True:
            self._clock.sleep(LOOK_S)
            self._look()
            seconds = self._clock.now() - began
            old, new = (counter.counts() for counter in self._steps)
            measured = old if is_baseline else new
            if not is_baseline:
                self._require_good(old, new, seconds)
            if seconds >= options.step_s and measured.completed >= options.step_requests:
                break
            if not measured.started and seconds >= NOT_REACHED_S:
                raise RolloutError(
                    f"no request reached it within {NOT_REACHED_S:.0f} s. {self._restored}",
                    place=self._file.old if is_baseline else self._file.new,
                    fix=f"Send requests to the gateway, and check that it uses {self._file.path}.",
                )
            if seconds >= options.limit_s:
                raise RolloutError(
                    f"completed only {measured.completed} requests in {seconds / 60:.0f} minutes, "
                    f"which is too few to compare. {self._restored}",
                    place=self._file.old if is_baseline else self._file.new,
                    fix="Start the shift when more requests arrive, or lower --step-requests (now "
                    f"{options.step_requests}).",
                )
        shown = [(self._file.old, old), (self._file.new, new)][: 1 if is_baseline else 2]
        for name, counts in shown:
            self._say(f"  {name}: {summary(counts)}")

    def _require_good(self, old: Counts, new: Counts, seconds: float) -> None:
        assert self._before is not None
        evidence = Evidence(
            old=(self._before, old),
            new=new,
            old_errors=(self._lifetime.counts(), self._totals[0].counts()),
            new_errors=self._totals[1].counts(),
            seconds=seconds,
        )
        slower = self._options.slower
        failures, latencies = failures_of(evidence), latencies_of(evidence, slower)
        silent_s = self._clock.now() - self._responded
        if silent_s >= SILENT_S:
            failures.append(f"no frontend has responded for {silent_s:.0f} s")
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
        for frontends, step, total in zip(self._frontends, self._steps, self._totals, strict=True):
            scrapes = frontends.scrape()
            step.add(scrapes)
            total.add(scrapes)
            if frontends is self._frontends[0]:
                self._lifetime.add(scrapes)
            elif scrapes:
                self._responded = self._clock.now()


def summary(counts: Counts) -> str:
    """One line for the operator."""
    parts = [f"{counts.completed:,} requests", f"{counts.errors} failed"]
    for name, latency in (("TTFT", counts.ttft), ("ITL", counts.itl)):
        if latency is not None:
            parts.append(f"mean {name} {significant(latency.mean_s * 1e3)} ms")
    return ", ".join(parts)
