"""Decides from when to when the number of concurrent conversations is steady.

Each turn waits for the response to the previous turn, so the request rate rises until as many
conversations end as start. An overloaded deployment slows its own arrivals, so the requests that
arrive are no measure of the load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Self

from penstock.workload.request import Request

KEY = "conversations"  # in the result of a replay


@dataclass(frozen=True, kw_only=True)
class Conversations:
    first_ms: float  # start of the first conversation
    last_ms: float  # start of the last one, after which their number falls
    turns: float  # mean number of requests of a conversation
    think_ms: float  # mean time from a response to the next turn
    starts: int

    @staticmethod
    def of(requests: Sequence[Request]) -> Conversations | None:
        """None without later turns, and if all conversations start at the same time."""
        starts = [request.at_ms for request in requests if request.at_ms is not None]
        thinks = [request.think_ms for request in requests if request.at_ms is None]
        if not starts or not thinks or min(starts) == max(starts):
            return None
        return Conversations(
            first_ms=min(starts),
            last_ms=max(starts),
            turns=len(requests) / len(starts),
            think_ms=fmean(thinks),
            starts=len(starts),
        )

    @classmethod
    def in_result(cls, result: Mapping[str, Any]) -> Self | None:
        found = result.get(KEY)
        return cls(**found) if found else None

    def added_to(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**result, KEY: asdict(self)}

    @property
    def rate(self) -> float:
        """Requests/s once as many conversations end as start, if no response delays a turn."""
        return self.turns * (self.starts - 1) / (self.last_ms - self.first_ms) * 1000

    def takes_ms(self, request_ms: float) -> float:
        """The time of a conversation, whose requests take ``request_ms``."""
        return self.turns * request_ms + (self.turns - 1) * self.think_ms
