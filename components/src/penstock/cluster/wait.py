"""Wait until a rollout is ready, fails, times out or is superseded by another revision.

Polls the API instead of watching it: a broken connection costs one poll.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import Diagnosis
from penstock.cluster.observe import NOTHING, Baseline, OwnObjects, read_progress
from penstock.cluster.progress import Progress
from penstock.cluster.release import Release, require_release
from penstock.errors import ClusterError

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
        if progress.is_done:
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
        return tuple(reasons) or (str(progress),)

    def _log_tail(self, diagnosis: Diagnosis) -> str:
        if not diagnosis.container:
            return ""
        try:
            text = self.owned.api.log_tail(diagnosis.pod, diagnosis.container, LOG_LINES)
        except ClusterError:
            return ""
        lines = [f"\n    | {line}" for line in without_secrets(text).splitlines()[-LOG_LINES:]]
        return "".join((f"; log of {diagnosis.pod}:", *lines)) if lines else ""
