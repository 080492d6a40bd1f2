"""A rollout from write to end: upgrade or roll back, wait, and report the result.

Polls the API instead of watching it: a broken connection costs one poll.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import FrameType

from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.change import (
    Change,
    install_or_upgrade,
    release_replicas,
    roll_back,
    rollback_revision,
)
from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import Diagnosis
from penstock.cluster.progress import (
    NOTHING,
    Baseline,
    OwnObjects,
    Progress,
    baseline,
    read_progress,
)
from penstock.cluster.release import READY, Release, Revision, record_outcome, require_release
from penstock.errors import ClusterError, Problem, RolloutError
from penstock.helm import ReleaseTarget


@dataclass
class Rollout:
    """The rollouts of one release that a verb starts."""

    api: Api
    target: ReleaseTarget
    print_line: Callable[[str], None]
    timeouts: Timeouts
    # Whether to wait for the rollout or return after the write.
    waits: bool = True
    # Prints the changes during the wait; None: as `print_line`.
    print_progress: Callable[[str], None] | None = None
    # Surrounds the wait, to show the time elapsed.
    while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    def upgrade(self, change: Change, *, rollback_on_failure: bool = False) -> int:
        """Raises ClusterError if the write fails, RolloutError if the rollout does."""
        previous = change.before.revision
        if previous is not None and previous.outcome != READY:
            self._record_if_ready(previous)
        before = baseline(self.api, self.target)
        release = self._write(lambda: install_or_upgrade(self.api, change, self.print_line))
        rolls_back = previous is not None and rollback_on_failure
        return self._finish(release, before, rolls_back=rolls_back, is_new=True)

    def roll_back(self, number: int) -> int:
        """Roll back to a revision. Raises ClusterError, RolloutError."""
        before = baseline(self.api, self.target)
        release = self._write(lambda: roll_back(self.target, self.api, number))
        return self._finish(release, before, is_new=True)

    def resume(self, *, rollback_on_failure: bool = False) -> int:
        """Wait for the revision that is already written. Raises ClusterError, RolloutError."""
        release = require_release(self.target)
        release_replicas(self.api, release)
        rolls_back = rollback_on_failure and release.revision.number > 1
        return self._finish(release, NOTHING, rolls_back=rolls_back)

    def _write(self, write: Callable[[], Release]) -> Release:
        try:
            with defer_signals(self.print_line):
                release = write()
        except KeyboardInterrupt:
            self._print_detached(require_release(self.target))
            raise
        return release

    def _finish(
        self, release: Release, before: Baseline, *, rolls_back: bool = False, is_new: bool = False
    ) -> int:
        """Wait; with ``rolls_back``, a failed rollout is reverted to the last revision that was
        ready. ``is_new``: whether this process wrote the release.
        """
        result = self._wait(release, before, is_new=is_new)
        if result is None or result.state is RolloutState.READY:
            return 0
        failure = self._failure(release, result)
        if result.state is RolloutState.SUPERSEDED or not rolls_back:
            raise failure
        try:
            fallback = rollback_revision(self.target)
        except ClusterError as error:
            raise RolloutError(*failure.problems, *error.problems) from None
        for problem in failure.problems:
            self.print_line(str(problem))
        # A short limit for the new revision is none for the one that must serve again.
        timeout_s = max(self.timeouts.timeout_s, Timeouts.timeout_s)
        timeouts = replace(self.timeouts, timeout_s=timeout_s)
        replace(self, timeouts=timeouts).roll_back(fallback)
        raise RolloutError(
            f"revision {release.revision.number} failed and was rolled back to revision {fallback}",
            place=f"release {self.target}",
        )

    def _print_detached(self, release: Release) -> None:
        self.print_line(
            f"revision {release.revision.number} is written and its rollout continues; run "
            "`penstock apply` to wait for it, or `penstock rollback` to undo it"
        )

    def _record_if_ready(self, revision: Revision) -> None:
        """Note that a revision is ready although penstock did not wait for it. One that is not at
        this moment may have been before."""
        release = require_release(self.target)
        owned = OwnObjects(self.api, self.target)
        if release.revision == revision and read_progress(owned, release).is_done:
            record_outcome(self.api, self.target, revision.number, is_ready=True)

    def _wait(self, release: Release, before: Baseline, *, is_new: bool) -> RolloutResult | None:
        """None with --no-wait."""
        try:
            if is_new:  # inside the try: the reader of this line may press Ctrl-C at once
                self.print_line(f"revision {release.revision.number} is written")
            if not self.waits:
                return None
            say = self.print_progress or self.print_line
            owned = OwnObjects(self.api, self.target)
            waiter = RolloutWaiter(owned, release, say, self.timeouts, before)
            with self.while_waiting():
                result = waiter.run()
        except (KeyboardInterrupt, ClusterError):
            self._print_detached(release)
            raise
        number, is_ready = release.revision.number, result.state is RolloutState.READY
        if result.state is not RolloutState.SUPERSEDED:
            record_outcome(self.api, self.target, number, is_ready=is_ready)
        if is_ready:
            self.print_line(f"revision {number} is ready")
        return result

    def _failure(self, release: Release, result: RolloutResult) -> RolloutError:
        place = f"release {self.target}"
        number = release.revision.number
        if result.state is RolloutState.SUPERSEDED:
            newest = require_release(self.target).revision.number
            message = f"revision {number} was superseded by revision {newest} before it was ready"
            return RolloutError(message, place=place)
        if result.state is RolloutState.TIMED_OUT:
            state = f"is not ready after {self.timeouts.timeout_s:.0f} s"
        else:
            state = "failed"
        return RolloutError(
            *(
                Problem(place=place, message=f"revision {number} {state}: {reason}")
                for reason in result.reasons
            ),
            Problem(message="run `penstock rollback`, or fix the graph and run `penstock apply`"),
        )


@contextmanager
def defer_signals(print_line: Callable[[str], None]) -> Iterator[None]:
    """Hold SIGINT, SIGTERM and SIGHUP until the block ends, then raise KeyboardInterrupt: Helm
    would leave an interrupted write incomplete."""
    received: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        if not received:
            print_line("stopping after the write completes")
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.signal(number, record) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


LOG_LINES = 5
REVISION_CHECK_INTERVAL = 5  # polls between two checks for a newer revision


class RolloutState(StrEnum):
    """How a rollout ended."""

    READY = "ready"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SUPERSEDED = "superseded"


class Clock:
    """Monotonic time and waiting, in seconds; a test passes one that does not wait."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """All in seconds, of ``clock``."""

    clock: Clock = field(default_factory=Clock)

    # Time between two polls.
    poll_s: float = 2.0
    # Limit of the rollout.
    timeout_s: float = 3600.0
    # How long a permanent problem must last before the rollout fails.
    permanent_problem_s: float = 60.0
    # How long the API server may be unavailable.
    unavailable_s: float = 120.0
    # How long a frontend may not respond to the API server's proxy before the rollout counts as
    # ready without its answer: its readiness, which the kubelet probes, would be lost by then.
    unreached_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class RolloutResult:
    """How a rollout ended, and why."""

    state: RolloutState
    # Each ends with the last lines of the container's log if there is one. Empty if ready.
    reasons: tuple[str, ...] = ()


@dataclass
class RolloutWaiter:
    """Waits for one rollout."""

    owned: OwnObjects
    release: Release
    # Called with one line for each change.
    print_line: Callable[[str], None]
    timeouts: Timeouts = field(default_factory=Timeouts)
    before: Baseline = NOTHING
    _printed: set[str] = field(default_factory=set)
    _last_progress: str = ""
    # When each permanent problem was first seen, by component and problem.
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    # Since when a frontend does not respond; None while all do.
    _unreached_since: float | None = None

    def run(self) -> RolloutResult:
        """Raises ClusterError if the API server rejects a request or is unavailable too long."""
        clock = self.timeouts.clock
        started = last_response = clock.now()
        for poll in itertools.count():
            now = clock.now()
            try:
                progress = read_progress(self.owned, self.release, self.before)
                state = self._state(progress, now, now - started)
                if (state or poll % REVISION_CHECK_INTERVAL == 0) and self._is_superseded():
                    return RolloutResult(state=RolloutState.SUPERSEDED)
                last_response = now
            except UnavailableError as error:
                if now - last_response > self.timeouts.unavailable_s:
                    raise
                self._print_once(f"{error.problems[0].message}; retrying")
                clock.sleep(self.timeouts.poll_s)
                continue
            self._print_progress(progress, now - started)
            if state:
                is_ready = state is RolloutState.READY
                return RolloutResult(
                    state=state, reasons=() if is_ready else self._reasons(progress)
                )
            clock.sleep(self.timeouts.poll_s)
        raise AssertionError("itertools.count() does not end")

    def _state(self, progress: Progress, now: float, elapsed_s: float) -> RolloutState | None:
        """None while the rollout is in progress."""
        may_respond = self._may_respond(progress, now)  # each time: an answer ends a pause
        if progress.is_done and not may_respond:
            return RolloutState.READY
        if self._has_permanent_problem(progress.diagnoses, now):
            return RolloutState.FAILED
        return RolloutState.TIMED_OUT if elapsed_s > self.timeouts.timeout_s else None

    def _is_superseded(self) -> bool:
        newest = require_release(self.owned.target).revision.number
        return newest != self.release.revision.number

    def _has_permanent_problem(self, diagnoses: tuple[Diagnosis, ...], now: float) -> bool:
        """Whether a permanent problem has lasted for ``permanent_problem_s``."""
        permanent = {(d.component, d.problem) for d in diagnoses if d.is_permanent}
        self._since = {key: self._since.get(key, now) for key in permanent}
        limit_s = self.timeouts.permanent_problem_s
        return any(now - since >= limit_s for since in self._since.values())

    def _may_respond(self, progress: Progress, now: float) -> bool:
        """Whether a frontend that has not responded is to be asked again."""
        if not (progress.admission and progress.admission.is_unreached):
            self._unreached_since = None
            return False
        self._unreached_since = now if self._unreached_since is None else self._unreached_since
        return now - self._unreached_since < self.timeouts.unreached_s

    def _print_progress(self, progress: Progress, elapsed_s: float) -> None:
        if str(progress) != self._last_progress:
            self._last_progress = str(progress)
            self.print_line(f"{elapsed_s:5.0f} s  {progress}")
        for text in (*progress.forbidden, *(d.summary for d in progress.diagnoses)):
            self._print_once(text)

    def _print_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self.print_line(f"         {text}")

    def _reasons(self, progress: Progress) -> tuple[str, ...]:
        reasons = [f"{d}{self._log_tail(d)}" for d in progress.diagnoses]
        if not reasons or progress.admission is not None:
            reasons.append(str(progress))
        return tuple(reasons)

    def _log_tail(self, diagnosis: Diagnosis) -> str:
        if not diagnosis.container:
            return ""
        try:
            text = self.owned.api.log_tail(diagnosis.pod, diagnosis.container, LOG_LINES)
        except ClusterError:
            return ""
        lines = [f"\n    | {line}" for line in without_secrets(text).splitlines()[-LOG_LINES:]]
        return "".join((f"; log of {diagnosis.pod}:", *lines)) if lines else ""
