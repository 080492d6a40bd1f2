"""A rollout from write to end: upgrade or roll back, wait, and report the result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType

from penstock.cluster import upgrade
from penstock.cluster.api import Api
from penstock.cluster.change import Change
from penstock.cluster.observe import NOTHING, Baseline, OwnObjects, baseline, read_progress
from penstock.cluster.release import (
    READY,
    Release,
    Revision,
    record_outcome,
    require_release,
)
from penstock.cluster.wait import RolloutResult, RolloutState, RolloutWaiter, Timeouts
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
        release = self._write(lambda: upgrade.install_or_upgrade(self.api, change, self.print_line))
        rolls_back = previous is not None and rollback_on_failure
        return self._finish(release, before, rolls_back=rolls_back, is_new=True)

    def roll_back(self, number: int) -> int:
        """Roll back to a revision. Raises ClusterError, RolloutError."""
        before = baseline(self.api, self.target)
        release = self._write(lambda: upgrade.roll_back(self.target, self.api, number))
        return self._finish(release, before, is_new=True)

    def resume(self, *, rollback_on_failure: bool = False) -> int:
        """Wait for the revision that is already written. Raises ClusterError, RolloutError."""
        release = require_release(self.target)
        upgrade.release_replicas(self.api, release)
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
        self,
        release: Release,
        before: Baseline,
        *,
        rolls_back: bool = False,
        is_new: bool = False,
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
            fallback = upgrade.rollback_revision(self.target)
        except ClusterError as error:
            raise RolloutError(*failure.problems, *error.problems) from None
        for problem in failure.problems:
            self.print_line(str(problem))
        # A short limit for the new revision is none for the one that must serve again.
        timeout_s = max(self.timeouts.timeout_s, Timeouts.timeout_s)
        timeouts = replace(self.timeouts, timeout_s=timeout_s)
        replace(self, timeouts=timeouts).roll_back(fallback)
        raise RolloutError(
            Problem(
                place=f"release {self.target}",
                message=f"revision {release.revision.number} failed and was rolled back to "
                f"revision {fallback}",
            )
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
            return RolloutError(Problem(place=place, message=message))
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
