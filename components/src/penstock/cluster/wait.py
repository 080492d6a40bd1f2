"""Watch a roll-out until it is done, has failed, or is another's.

Lists are asked for again and again: a connection that breaks costs one look, and nothing is missed
that lasts longer than one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cluster.api import Api, ForbiddenError, UnavailableError
from penstock.cluster.compare import without_secrets
from penstock.cluster.diagnose import Diagnosis
from penstock.cluster.progress import Observed, Progress, rollout
from penstock.cluster.release import Release, require
from penstock.cluster.workloads import POD_GRAPH, Object
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget

LINES = 5  # of a log
ASKED_EVERY = 5  # looks: whether the revision is still the newest


class RolloutState(StrEnum):
    READY = "ready"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds: between looks, for the whole, for a trouble that time will not mend, and for an API
    server that is away."""

    poll_s: float = 2.0
    timeout_s: float = 3600.0
    final_s: float = 60.0
    away_s: float = 120.0


@dataclass(frozen=True, kw_only=True)
class RolloutResult:
    """``reasons``: why it did not become ready, each with its log's last lines where there are."""

    end: RolloutState
    reasons: tuple[str, ...] = ()


def see(
    api: Api, release: Release, target: ReleaseTarget, old: frozenset[str] = frozenset()
) -> Observed:
    """What the cluster holds of the release; ``old``: uids of pods that were there before."""
    unseen: list[str] = []
    return Observed(
        release=target.name,
        live=tuple(found for o in release.objects if (found := api.get(o)) is not None),
        pods=_listed(api, "Pod", unseen, labels=f"{POD_GRAPH}={target.name}"),
        events=_listed(api, "Event", unseen, fields="type=Warning"),
        old=old,
        unseen=tuple(unseen),
    )


def look(
    api: Api, release: Release, target: ReleaseTarget, old: frozenset[str] = frozenset()
) -> Progress:
    """The release's roll-out as it is now; ``old`` as of `see`."""
    return rollout(release.objects, see(api, release, target, old))


def pods_there(api: Api, target: ReleaseTarget) -> frozenset[str]:
    """The uids of its pods."""
    pods = _listed(api, "Pod", [], labels=f"{POD_GRAPH}={target.name}")
    return frozenset(str(p["metadata"].get("uid", "")) for p in pods)


def _listed(api: Api, kind: str, unseen: list[str], **selectors: str) -> tuple[Object, ...]:
    """None where the user may not list them: counts come from the objects' own status."""
    try:
        return tuple(api.list(kind, **selectors))
    except ForbiddenError as error:
        unseen.append(str(error))
        return ()


@dataclass
class RolloutWaiter:
    """One roll-out. ``say`` gets a line whenever something changed."""

    api: Api
    target: ReleaseTarget
    release: Release
    say: Callable[[str], None]
    patience: Timeouts = field(default_factory=Timeouts)
    old: frozenset[str] = frozenset()  # pods that were there before the write, by uid
    _said: set[str] = field(default_factory=set)
    _last: str = ""
    _since: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self) -> RolloutResult:
        """Raises ClusterError where the API refuses, or is away for too long."""
        begun = answered = time.monotonic()
        for number in itertools.count():
            now = time.monotonic()
            try:
                seen = look(self.api, self.release, self.target, self.old)
                end = self._end(seen, now, now - begun)
                if (end or number % ASKED_EVERY == 0) and self._is_superseded():
                    return RolloutResult(end=RolloutState.SUPERSEDED)
                answered = now
            except UnavailableError as error:
                if now - answered > self.patience.away_s:
                    raise
                self._tell(f"{error.problems[0].message}: trying again")
                time.sleep(self.patience.poll_s)
                continue
            self._show(seen, now - begun)
            if end:
                return RolloutResult(
                    end=end, reasons=() if end is RolloutState.READY else self._reasons(seen)
                )
            time.sleep(self.patience.poll_s)
        raise AssertionError  # the numbers do not end

    def _end(self, seen: Progress, now: float, elapsed_s: float) -> RolloutState | None:
        if seen.is_done:
            return RolloutState.READY
        if self._lasts(seen.troubles, now):
            return RolloutState.FAILED
        return RolloutState.TIMED_OUT if elapsed_s > self.patience.timeout_s else None

    def _is_superseded(self) -> bool:
        return require(self.target).revision.number != self.release.revision.number

    def _lasts(self, troubles: tuple[Diagnosis, ...], now: float) -> bool:
        """Whether one that time will not mend has been there for long enough."""
        final = {(t.component, t.what) for t in troubles if t.is_final}
        self._since = {key: self._since.get(key, now) for key in final}
        return any(now - since >= self.patience.final_s for since in self._since.values())

    def _show(self, seen: Progress, elapsed_s: float) -> None:
        if str(seen) != self._last:
            self._last = str(seen)
            self.say(f"{elapsed_s:5.0f} s  {seen}")
        for text in (*seen.unseen, *(trouble.said for trouble in seen.troubles)):
            self._tell(text)

    def _tell(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            self.say(f"         {text}")

    def _reasons(self, seen: Progress) -> tuple[str, ...]:
        reasons = [f"{t}{self._last_words(t)}" for t in seen.troubles]
        return tuple(reasons) or (str(seen),)

    def _last_words(self, trouble: Diagnosis) -> str:
        if not trouble.container:
            return ""
        try:
            text = self.api.last_words(trouble.pod, trouble.container, LINES)
        except ClusterError:
            return ""
        lines = [f"\n    | {line}" for line in without_secrets(text).splitlines()[-LINES:]]
        return "".join((f"; {trouble.pod} said", *lines)) if lines else ""
