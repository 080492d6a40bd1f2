"""One roll-out from the write to its end: upgrade or go back, follow, and say how it ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from penstock.cluster import upgrade
from penstock.cluster.api import Api
from penstock.cluster.change import Change
from penstock.cluster.release import Release, require
from penstock.cluster.wait import (
    RolloutResult,
    RolloutState,
    RolloutWaiter,
    Timeouts,
    look,
    pods_there,
)
from penstock.errors import ClusterError, Problem, RolloutError
from penstock.helm import ReleaseTarget


@dataclass
class Rollout:
    """``waits``: whether the roll-out is followed, or only written."""

    api: Api
    target: ReleaseTarget
    say: Callable[[str], None]
    patience: Timeouts
    waits: bool = True

    def upgrade(self, planned: Change, *, rolls_back: bool = False) -> int:
        """Raises ClusterError where it cannot be written, RolloutError where it fails."""
        before = planned.before.revision
        was_ready = not (before and rolls_back) or self._is_ready()
        old = pods_there(self.api, self.target)
        release = self._written(lambda: upgrade.write(self.api, planned))
        back_to = before.number if before and rolls_back else None
        return self._to_the_end(release, back_to, old, was_ready=was_ready, is_new=True)

    def back(self, number: int) -> int:
        """To a revision. Raises ClusterError, RolloutError."""
        old = pods_there(self.api, self.target)
        release = self._written(lambda: upgrade.roll_back(self.target, self.api, number))
        return self._to_the_end(release, None, old, is_new=True)

    def follow(self, *, rolls_back: bool = False) -> int:
        """What is written already. Raises RolloutError."""
        release = require(self.target)
        upgrade.settle(self.target, self.api, release)
        can = rolls_back and release.revision.number > 1
        number = upgrade.revision_before(self.target) if can else None
        return self._to_the_end(release, number, frozenset())

    def _written(self, write: Callable[[], Release]) -> Release:
        try:
            with unbroken(self.say):
                release = write()
        except KeyboardInterrupt:
            self._leave(require(self.target))
            raise
        return release

    def _to_the_end(
        self,
        release: Release,
        back_to: int | None,
        old: frozenset[str],
        *,
        was_ready: bool = True,
        is_new: bool = False,
    ) -> int:
        """``back_to``: the revision to return to where it fails; ``was_ready``: that one was;
        ``is_new``: it was written just now."""
        followed = self._followed(release, old, is_new=is_new)
        if followed is None:
            return 0
        if followed.end is RolloutState.READY:
            return 0
        failure = self._failure(release, followed)
        if followed.end is RolloutState.SUPERSEDED or back_to is None:
            raise failure
        for problem in failure.problems:
            self.say(str(problem))
        if not was_ready:
            self.say(f"revision {back_to} was not ready either")
        self.back(back_to)
        raise RolloutError(
            Problem(
                place=f"release {self.target}",
                message=f"revision {release.revision.number} failed; revision {back_to} is back",
            )
        )

    def _leave(self, release: Release) -> None:
        self.say(
            f"revision {release.revision.number} is written and rolls on without us; `penstock "
            "apply` watches it again, `penstock rollback` goes back"
        )

    def _is_ready(self) -> bool:
        return look(self.api, require(self.target), self.target).is_done

    def _followed(
        self, release: Release, old: frozenset[str], *, is_new: bool
    ) -> RolloutResult | None:
        """None where nobody waits."""
        try:
            if is_new:  # whoever reads this may press Ctrl-C at once
                self.say(f"revision {release.revision.number} is written")
            if not self.waits:
                return None
            following = RolloutWaiter(self.api, self.target, release, self.say, self.patience, old)
            followed = following.run()
        except (KeyboardInterrupt, ClusterError):
            self._leave(release)
            raise
        if followed.end is RolloutState.READY:
            self.say(f"revision {release.revision.number} is ready")
        return followed

    def _failure(self, release: Release, followed: RolloutResult) -> RolloutError:
        number = release.revision.number
        if followed.end is RolloutState.SUPERSEDED:
            now = require(self.target).revision.number
            problem = Problem(
                place=f"release {self.target}",
                message=f"revision {number} was followed by {now} before it was ready",
            )
            return RolloutError(problem)
        limit = (
            f" after {self.patience.timeout_s:.0f} s"
            if followed.end is RolloutState.TIMED_OUT
            else ""
        )
        ended = "is not ready" if limit else "failed"
        return RolloutError(
            *(
                Problem(
                    place=f"release {self.target}",
                    message=f"revision {number} {ended}{limit}: {reason}",
                )
                for reason in followed.reasons
            ),
            Problem(message="go back with `penstock rollback`, or apply a graph that works"),
        )


@contextmanager
def unbroken(say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal wait for the end of a write, which Helm would leave
    half done; KeyboardInterrupt comes after it."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if not noted:
            say("the write is finished first")
        noted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
