"""The steps of `tune`: replays of settings, the best on one part, and its confirmation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
    QUEUES,
    RouterSettings,
    grid,
    settings_of,
    with_settings,
)

BEST = 3  # are tried with a queue
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
    trials: tuple[Trial, ...]  # of the choice part, best first, the base among them
    chosen: Trial
    confirmation: Confirmation | None  # None: nothing was better than the graph's settings
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
    search = Search(deployment, say, most_replays(base_settings, seeds))
    fixed = list(dict.fromkeys([base_settings, DYNAMO_DEFAULT]))
    trials = search.chosen_from(parts.choice, fixed)
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
        trials=tuple(ranked(base, trials)),
        chosen=chosen,
        confirmation=confirmation,
        replays=search.done,
    )


def most_replays(base: RouterSettings, seeds: int) -> int:
    """Of `tune` for a graph with ``base``."""
    fixed = 1 + (base != DYNAMO_DEFAULT)
    choice = len(_without_queue([base])) + BEST * (len(QUEUES) - 1)
    return (choice + (fixed + 1) * CONFIRMATIONS) * seeds


def _without_queue(fixed: Sequence[RouterSettings]) -> list[RouterSettings]:
    """The settings of the first step."""
    known = [one for one in grid() if one.queue_threshold is None]
    return list(dict.fromkeys([*fixed, *known]))


@dataclass
class Search:
    """Replays settings, and counts the replays."""

    deployment: Replayable
    say: Say
    most: int  # replays in total
    done: int = 0

    def chosen_from(self, study: Study, fixed: Sequence[RouterSettings]) -> list[Trial]:
        """Trials of every scale and credit, then of queues for the best of them.

        Those of ``fixed`` come first. All have all seeds: when a single seed chose the finalists,
        one of four benchmark cases lost 28 % against the complete grid.
        """
        trials = self.replay(study, _without_queue(fixed), "choice")
        known = {trial.settings for trial in trials}
        queued = [
            replace(trial.settings, queue_threshold=threshold, queue_policy=policy)
            for trial in ranked(trials[0], trials)[:BEST]
            for threshold, policy in QUEUES
        ]
        new = [settings for settings in dict.fromkeys(queued) if settings not in known]
        return trials + self.replay(study, new, "choice")

    def replay(self, study: Study, some: Sequence[RouterSettings], what: str) -> list[Trial]:
        """In order."""
        deployments = [with_settings(self.deployment, settings) for settings in some]
        begun = self.done

        def progress(done: int, total: int) -> None:
            self.done = begun + done
            text = f"{what}: {len(some)} settings, {done} of {total} replays"
            self.say(text, self.done, max(self.done, self.most))

        rows = study.rows(deployments, progress)
        return [Trial(settings=s, row=row) for s, row in zip(some, rows, strict=True)]
