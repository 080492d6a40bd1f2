"""One roll-out from the write to its end: upgrade or go back, follow, and say how it ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from penstock.cluster import upgrade
from penstock.cluster.api import Api
from penstock.cluster.before import Before
from penstock.cluster.follow import End, Follow, Followed, Patience, look
from penstock.cluster.planned import Planned
from penstock.cluster.release import Release, current, require
from penstock.errors import Problem, RolloutError
from penstock.helm import Target


@dataclass
class Roll:
    """``waits``: whether the roll-out is followed, or only written."""

    api: Api
    target: Target
    say: Callable[[str], None]
    patience: Patience
    waits: bool = True

    def upgrade(self, planned: Planned, *, rolls_back: bool = False) -> int:
        """Raises ClusterError where it cannot be written, RolloutError where it fails."""
        before = planned.before
        was_ready = not rolls_back or self._is_ready(before)
        with unbroken():
            release = upgrade.write(self.api, planned)
        self.say(f"revision {release.revision.number} is written")
        if not self.waits:
            return 0
        followed = self._followed(release)
        if followed.end is End.READY:
            return 0
        failed = followed.end in (End.FAILED, End.TIMED_OUT)
        if not (failed and rolls_back and before.revision):
            raise self._failure(release, followed)
        for problem in self._failure(release, followed).problems:
            self.say(str(problem))
        if not was_ready:
            self.say(f"revision {before.revision.number} was not ready either")
        self.back(before.revision.number)
        raise RolloutError(
            Problem(
                place=f"release {self.target}",
                message=f"revision {release.revision.number} failed; "
                f"revision {before.revision.number} is back",
            )
        )

    def back(self, number: int) -> int:
        """To a revision. Raises ClusterError, RolloutError."""
        with unbroken():
            release = upgrade.roll_back(self.target, self.api, number)
        self.say(f"revision {release.revision.number} is written, as revision {number} was")
        return self._to_the_end(release) if self.waits else 0

    def follow(self) -> int:
        """What is written already. Raises RolloutError."""
        return self._to_the_end(require(self.target)) if self.waits else 0

    def _to_the_end(self, release: Release) -> int:
        followed = self._followed(release)
        if followed.end is not End.READY:
            raise self._failure(release, followed)
        return 0

    def _is_ready(self, before: Before) -> bool:
        release = current(self.target) if before.revision else None
        return release is not None and look(self.api, release, self.target).is_done

    def _followed(self, release: Release) -> Followed:
        number = release.revision.number
        try:
            followed = Follow(self.api, self.target, release, self.say, self.patience).run()
        except KeyboardInterrupt:
            self.say(
                f"revision {number} is written and rolls on without us; `penstock apply` watches "
                "it again, `penstock rollback` goes back"
            )
            raise
        if followed.end is End.READY:
            self.say(f"revision {number} is ready")
        return followed

    def _failure(self, release: Release, followed: Followed) -> RolloutError:
        number = release.revision.number
        if followed.end is End.SUPERSEDED:
            now = require(self.target).revision.number
            problem = Problem(
                place=f"release {self.target}",
                message=f"revision {number} was followed by {now} before it was ready",
            )
            return RolloutError(problem)
        limit = f" after {self.patience.timeout_s:.0f} s" if followed.end is End.TIMED_OUT else ""
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
def unbroken() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of a write, which Helm would leave half done."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
