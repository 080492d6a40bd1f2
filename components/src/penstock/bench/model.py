"""One run of a workload against one endpoint, with every request and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from penstock.bench.measurement import Measurement
from penstock.bench.prediction import Prediction
from penstock.bench.records import Records
from penstock.bench.trace_file import Key
from penstock.graph.slo import Slo
from penstock.simulate.calibration import Calibration
from penstock.simulate.window import Conversations, ServedRequest, between, steady_window
from penstock.workload import Request
from penstock.workload.load import LoadedWorkload


@dataclass(frozen=True, kw_only=True)
class RequestLog:
    requests: Mapping[Key, Request]
    """All of the workload."""
    records: Records
    """Of those that were sent."""

    @cached_property
    def served(self) -> tuple[tuple[Request, ServedRequest], ...]:
        """In order of arrival."""
        return tuple((self.requests[key], served) for key, served in self.records.served.items())

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
        ends = [served.ended_ms for served in self.records.served.values()]
        return max([*ends, *self._sent_ms], default=0.0)

    @property
    def _sent_ms(self) -> list[float]:
        arrived = [served.arrived_ms for served in self.records.served.values()]
        return arrived + [failed.sent_ms for failed in self.records.failed]

    def time_of(self, ms: float) -> datetime:
        """``ms``: since the start of the run."""
        return datetime.fromtimestamp((self.records.start_ms + ms) / 1000, UTC)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run of a workload against one endpoint."""

    url: str
    model: str
    workload: LoadedWorkload
    slo: Slo
    attain: float
    """Share of requests that must meet the SLO."""
    seed: int
    speed: float = 1.0
    """Simulation speed of the target; other than 1, all times are simulated."""
    engine_is_substitute: bool | None = None
    """Mockers served instead of an engine; None if that is not known."""
    client: str
    """The load generator and its version."""
    measurement: Measurement
    prediction: Prediction | None = None
    calibration: Calibration | None = None
    interrupted: str = ""
    """What ended the run early; empty if nothing did."""
    log: RequestLog | None = None
    """Its requests; None if only the figures are known."""

    @property
    def meets_slo(self) -> bool | None:
        """None without an SLO."""
        share = self.measurement.goodput
        return None if share is None else share >= self.attain
