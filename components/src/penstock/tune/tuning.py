"""The steps of `tune`: replays of settings, the best on one part, and its confirmation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.simulate.model import Replayable
from penstock.simulate.study import Study
from penstock.tune.compare import (
    NEEDED,
    QUEUED,
    Ratio,
    Trial,
    best_of,
    exceeded,
    queue_share,
    ranked,
    ratio_of,
)
from penstock.tune.parts import CONFIRMATIONS, Parts
from penstock.tune.settings import (
    DYNAMO_DEFAULT,
    THRESHOLDS,
    RouterSettings,
    grid,
    settings_of,
    with_settings,
)

FINALISTS = 3  # besides the graph's settings and Dynamo's
MIN_SEEDS, SEEDS, MAX_SEEDS = 2, 3, 20  # of the choice; fewer confirm with a useless bound
Say = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The chosen settings on traffic that did not choose them."""

    base: Trial
    chosen: Trial
    others: tuple[Trial, ...]  # Dynamo's default, if the graph has other settings

    @property
    def ratio(self) -> Ratio:
        return ratio_of(self.base, self.chosen)

    @property
    def exceeded(self) -> list[str]:
        return exceeded(self.base, self.chosen)

    @property
    def is_better(self) -> bool:
        low = self.ratio.low
        return low is not None and low > NEEDED and not self.exceeded


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found."""

    deployment: Replayable
    parts: Parts
    base: Trial  # the graph's own settings
    finalists: tuple[Trial, ...]  # with all seeds, best first, the base among them
    chosen: Trial
    confirmation: Confirmation | None  # None: nothing was better than the graph's settings
    considered: int  # combinations that were replayed
    replays: int

    @property
    def recommended(self) -> RouterSettings:
        """The graph's own settings unless others were confirmed."""
        found = self.confirmation
        return self.chosen.settings if found and found.is_better else self.base.settings

    @property
    def is_changed(self) -> bool:
        return self.recommended != self.base.settings

    @property
    def queues(self) -> bool:
        """Whether requests wait for prefill with the graph's settings."""
        return queue_share(self.base.row) >= QUEUED


def tune(deployment: Replayable, parts: Parts, seeds: int, say: Say) -> Tuning:
    """``say`` gets a text, and how many of how many replays at most were run."""
    base_settings = settings_of(deployment)
    search = Search(deployment, say, _most_replays(base_settings, seeds))
    fixed = list(dict.fromkeys([base_settings, DYNAMO_DEFAULT]))
    finalists = search.finalists(parts.choice, fixed)
    trials = search.replay(parts.choice, [*fixed, *finalists], "choice")
    base = trials[0]
    chosen = best_of(base, trials[1:])
    confirmation = None
    if chosen is not base:
        compared = list(dict.fromkeys([base_settings, chosen.settings, *fixed]))
        own, best, *others = search.replay(parts.confirmation, compared, "confirmation")
        confirmation = Confirmation(base=own, chosen=best, others=tuple(others))
    return Tuning(
        deployment=deployment,
        parts=parts,
        base=base,
        finalists=tuple(ranked(base, trials)),
        chosen=chosen,
        confirmation=confirmation,
        considered=len(search.considered),
        replays=search.done,
    )


def _most_replays(base: RouterSettings, seeds: int) -> int:
    fixed = 1 + (base != DYNAMO_DEFAULT)
    first = len(_without_queue([base])) + FINALISTS * (len(THRESHOLDS) - 1)
    return first + (fixed + FINALISTS) * (seeds - 1) + (fixed + 1) * CONFIRMATIONS * seeds


def _without_queue(fixed: Sequence[RouterSettings]) -> list[RouterSettings]:
    """The settings of the first step."""
    known = [one for one in grid() if one.queue_threshold is None]
    return list(dict.fromkeys([*fixed, *known]))


@dataclass
class Search:
    """Replays settings; `Replays` runs each pair of settings and seed once."""

    deployment: Replayable
    say: Say
    most: int
    done: int = 0
    considered: dict[RouterSettings, int] = field(default_factory=dict)  # → seeds

    def finalists(self, study: Study, fixed: Sequence[RouterSettings]) -> list[RouterSettings]:
        """The best by the first seed: every scale and credit, then queues for the best of them."""
        one = replace(study, seeds=1)
        trials = self.replay(one, _without_queue(fixed), "choice")
        base = trials[0]
        best = [trial.settings for trial in ranked(base, trials)[:FINALISTS]]
        queued = [
            replace(settings, queue_threshold=threshold)
            for settings in best
            for threshold in THRESHOLDS
        ]
        known = {trial.settings for trial in trials}
        trials += self.replay(one, [s for s in dict.fromkeys(queued) if s not in known], "choice")
        others = [trial for trial in trials if trial.settings not in fixed]
        return [trial.settings for trial in ranked(base, others)[:FINALISTS]]

    def replay(self, study: Study, some: Sequence[RouterSettings], what: str) -> list[Trial]:
        """In order."""
        deployments = [with_settings(self.deployment, settings) for settings in some]
        seeds = study.seeds or 1
        known = sum(min(self.considered.get(s, 0), seeds) for s in some if what == "choice")
        begun = self.done

        def progress(done: int, total: int) -> None:
            # Those that were replayed before come back at once.
            self.done = begun + max(0, done - known)
            self.say(f"{what}: {len(some)} settings, {done} of {total} replays", *self._of_all())

        rows = study.rows(deployments, progress)
        self.done = begun + len(some) * seeds - known
        if what == "choice":
            self.considered |= {s: max(seeds, self.considered.get(s, 0)) for s in some}
        return [Trial(settings=s, row=row) for s, row in zip(some, rows, strict=True)]

    def _of_all(self) -> tuple[int, int]:
        return self.done, max(self.done, self.most)
