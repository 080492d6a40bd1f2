"""What a replay costs, and so how many a plan can run. Pure arithmetic, so that it is the same on
every machine."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.traffic import Traffic
from penstock.workload.duration import planned_requests
from penstock.workload.load import LoadedWorkload

# Seconds of one core of a shared machine: measured with the plans of benchmarks/plan_cases.py.
PER_REQUEST_S, PER_TOKEN_S = 0.9e-3, 1.2e-6  # of output
HIGH_S = 1.5
LONGEST_S = 5.0
LEAST_REQUESTS = 2000  # of a part of the workload
MOST, FEWEST = 80, 20  # replays
SEARCH_S = 80.0  # of all replays of a search, on one core


@dataclass(frozen=True, kw_only=True)
class Cost:
    replay_s: float

    @staticmethod
    def of(workload: LoadedWorkload, traffic: Traffic) -> Cost:
        """``workload``: as a search replays it."""
        requests = planned_requests(workload.workload, 1.0)
        return Cost(replay_s=requests * (PER_REQUEST_S + PER_TOKEN_S * traffic.output))

    @property
    def is_high(self) -> bool:
        """Whether one longer replay is better than several short ones."""
        return self.replay_s > HIGH_S

    def affordable(self, workload: LoadedWorkload) -> LoadedWorkload:
        """A part of a trace or of conversations with which a search can compare graphs.

        The number of conversations grows at first, so a part has a lower load than the complete
        workload, which confirms a graph. Other requests are needed until they fill the engines.
        """
        own = workload.workload
        requests = own.requests if own.trace else own.fixed_requests
        has_parts = own.trace is not None or own.conversation is not None
        if requests is None or not has_parts or self.replay_s <= LONGEST_S:
            return workload
        part = max(LEAST_REQUESTS, round(requests * LONGEST_S / self.replay_s))
        return workload.with_workload(own.with_requests(min(requests, part)))

    @property
    def replays(self) -> int:
        """Of a search, unless the user says how many."""
        return max(FEWEST, min(MOST, round(SEARCH_S / min(LONGEST_S, self.replay_s))))
