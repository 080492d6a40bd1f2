"""Rates from counters: the difference between two scrapes of the same process. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.live.scrape import Scrape
from penstock.metrics import Metrics, Sample

Key = int | str
WINDOW_S = 5.0  # rates of one second jump between 0 and 2 at one request per second


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Two scrapes of one process: the last, and the newest that is at least `WINDOW_S` older."""

    now: Scrape
    before: Scrape | None
    """The first scrape if none is that old; None if there is only one."""

    @property
    def seconds(self) -> float | None:
        seconds = self.now.at_s - self.before.at_s if self.before else 0.0
        return seconds if seconds > 0 else None

    def increase(self, names: Iterable[str], **labels: str) -> float | None:
        """Of counters, summed over the series; None if the process exports none of them, or was
        scraped only once. A counter that has become smaller was reset, and has started at 0."""
        names = tuple(names)
        if self.before is None or self.now.metrics.total(names, **labels) is None:
            return None
        earlier = {_key(s): s.value for s in _find(self.before.metrics, names, labels)}
        total = 0.0
        for sample in _find(self.now.metrics, names, labels):
            since = sample.value - earlier.get(_key(sample), 0.0)
            total += since if since >= 0 else sample.value
        return total

    def rate(self, names: Iterable[str], **labels: str) -> float | None:
        """Increase per second."""
        increase = self.increase(names, **labels)
        return increase / self.seconds if increase is not None and self.seconds else None


def _find(metrics: Metrics, names: Iterable[str], labels: Mapping[str, str]) -> Iterator[Sample]:
    for name in names:
        yield from metrics.find(name, **labels)


def _key(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())


class Scrapes:
    """The last scrapes of each process, by its key: a process that restarts has another one."""

    def __init__(self) -> None:
        self._kept: dict[Key, deque[Scrape]] = {}
        self._responds: dict[Key, bool] = {}

    def add(self, found: Mapping[Any, Scrape | None], keys: Iterable[Key]) -> None:
        """``keys``: of the processes that run; others are forgotten."""
        for key, scrape in found.items():
            self._responds[key] = scrape is not None
            if scrape is None:
                continue
            kept = self._kept.setdefault(key, deque())
            kept.append(scrape)
            while len(kept) > 2 and kept[1].at_s <= scrape.at_s - WINDOW_S:
                kept.popleft()
        running = set(keys)
        for key in self._responds.keys() - running:
            del self._responds[key]
            self._kept.pop(key, None)

    def responds(self, key: Key) -> bool | None:
        """Whether the last scrape succeeded; None before the first."""
        return self._responds.get(key)

    def interval(self, key: Key) -> Interval | None:
        """None if the process has not responded to the last scrape."""
        kept = self._kept.get(key)
        if not kept or not self._responds[key]:
            return None
        return Interval(now=kept[-1], before=kept[0] if len(kept) > 1 else None)
