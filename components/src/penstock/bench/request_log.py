"""Every request of a run and its record, for outputs with more than percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from penstock.bench.records import Records
from penstock.bench.trace_file import Key
from penstock.simulate.window import Conversations, ServedRequest, between, steady_window
from penstock.workload import Request


@dataclass(frozen=True, kw_only=True)
class RequestLog:
    requests: Mapping[Key, Request]
    """All of the workload."""
    records: Records
    """Of those that were sent."""

    @cached_property
    def served(self) -> tuple[tuple[Request, ServedRequest], ...]:
        """In order of arrival."""
        return tuple((self.requests[key], one) for key, one in self.records.served.items())

    @cached_property
    def window(self) -> tuple[float, float]:
        """The measured window of `measurement_of`, in ms since the start of the run."""
        served = list(self.records.served.values())
        return steady_window(served, Conversations.of(list(self.requests.values())))

    @cached_property
    def counted(self) -> list[ServedRequest]:
        """The served requests from which the percentiles come."""
        return between(list(self.records.served.values()), *self.window)

    @property
    def first_ms(self) -> float:
        """When the first request was sent, in ms since the start of the run."""
        return min(self._sent_ms, default=0.0)

    @property
    def last_ms(self) -> float:
        """When the last response was complete, or the last request that failed was sent."""
        ends = [one.ended_ms for one in self.records.served.values()]
        return max([*ends, *self._sent_ms], default=0.0)

    @property
    def _sent_ms(self) -> list[float]:
        served = [one.arrived_ms for one in self.records.served.values()]
        return served + [one.sent_ms for one in self.records.failed]

    def time_of(self, ms: float) -> datetime:
        """``ms``: since the start of the run."""
        return datetime.fromtimestamp((self.records.start_ms + ms) / 1000, UTC)
