"""The frontend of a replay, which Dynamo's replay does not have: its time, and its CPU time.

`benchmarks/frontend_path.py` measured them, and `benchmarks/full_hits.py` scaled the time to
published TTFTs of prompts in a prefix cache (docs/simulate.md#the-frontend).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from penstock.text.numbers import count_of, limit_text, significant
from penstock.workload.request import Request

DEFAULT: Final = "default"  # the tokenizer of Dynamo's default
CORES: Final = 8.0  # CPU cores of a frontend that requests none: those in Dynamo's recipes
MOST_BUSY: Final = 0.7  # share of them, above which requests queue
QUEUED: Final = "requests may queue in the frontends, which is not simulated"
SATURATED: Final = "the frontends cannot serve the requests as fast as they arrive"


@dataclass(frozen=True, kw_only=True)
class FrontendTime:
    """Time from the client to the engine, which is added to the TTFT of a replay."""

    fixed_ms: float = 0.0
    per_1k_ms: float = 0.0  # for 1,000 input tokens

    def ms(self, input_tokens: float) -> float:
        return self.fixed_ms + self.per_1k_ms * input_tokens / 1000

    def added_to(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a replay in which each request's tokens come later by its time."""
        if self == FrontendTime():
            return result
        requests, summary = result["requests"], result["summary"]
        added = [self.ms(tokens) for tokens in requests["input_length"]]
        later = {
            name: [
                None if time is None else time + ms
                for time, ms in zip(requests[name], added, strict=True)
            ]
            for name in ("first_token_ms", "last_token_ms")
        }
        ends = [time for time in later["last_token_ms"] if time is not None]
        duration = max([summary["duration_ms"], *ends])
        return {
            **result,
            "requests": {**requests, **later},
            "summary": {**summary, "duration_ms": duration},
        }

    def later_turns(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """The requests, with turns of conversations that come later by the time of the turn
        before."""
        if self == FrontendTime():
            return tuple(requests)
        before: dict[str, float] = {}
        shifted = []
        for request in requests:
            is_later = request.at_ms is None
            think_ms = request.think_ms + (before[request.session] if is_later else 0.0)
            before[request.session] = self.ms(request.input_tokens)
            shifted.append(replace(request, think_ms=think_ms))
        return tuple(shifted)


@dataclass(frozen=True, kw_only=True)
class FrontendCpu:
    """CPU time of one frontend for a request, in milliseconds."""

    request_ms: float
    per_1k_ms: float  # for 1,000 input tokens
    per_output_ms: float  # for one output token

    def ms(self, input_tokens: float, output_tokens: float) -> float:
        per_input = self.per_1k_ms * input_tokens / 1000
        return self.request_ms + per_input + self.per_output_ms * output_tokens


# By the value of the frontend's --tokenizer. `basetenkenizer` was not measured.
TIMES: Final[Mapping[str, FrontendTime]] = {
    DEFAULT: FrontendTime(fixed_ms=8.3, per_1k_ms=1.05),
    "fastokens": FrontendTime(fixed_ms=8.3, per_1k_ms=0.18),
}
CPU: Final[Mapping[str, FrontendCpu]] = {
    DEFAULT: FrontendCpu(request_ms=3.5, per_1k_ms=2.8, per_output_ms=0.02),
    "fastokens": FrontendCpu(request_ms=2.5, per_1k_ms=0.1, per_output_ms=0.02),
}


@dataclass(frozen=True, kw_only=True)
class Frontends:
    """The frontends of a deployment."""

    replicas: int
    tokenizer: str = DEFAULT
    cores: float | None = None  # CPU cores that one requests; None: not known

    @property
    def time(self) -> FrontendTime:
        return TIMES.get(self.tokenizer, TIMES[DEFAULT])

    def busy_cores(self, request_rate: float, input_tokens: float, output_tokens: float) -> float:
        """``request_rate``: requests/s; the tokens are means."""
        cpu = CPU.get(self.tokenizer, CPU[DEFAULT])
        return request_rate * cpu.ms(input_tokens, output_tokens) / 1000

    def needed(self, busy_cores: float) -> int:
        """Frontends with enough cores, so that requests do not queue in them."""
        return ceil(busy_cores / (MOST_BUSY * (self.cores or CORES)))


@dataclass(frozen=True, kw_only=True)
class FrontendLoad:
    """The CPU cores that requests keep busy in the frontends."""

    frontends: Frontends
    busy_cores: float

    @property
    def needed(self) -> int:
        return self.frontends.needed(self.busy_cores)

    @property
    def is_too_high(self) -> bool:
        return self.needed > self.frontends.replicas

    @property
    def is_saturated(self) -> bool:
        """Whether the frontends cannot serve the requests as fast as they arrive."""
        return self.busy_cores >= self.frontends.replicas * (self.frontends.cores or CORES)

    def __str__(self) -> str:
        """`6.5 CPU cores busy in 2 frontends with 4 each (assumed)`."""
        cores = self.frontends.cores
        count = count_of(self.frontends.replicas, "frontend")
        is_assumed = "" if cores else " (assumed)"
        where = f"{count} with {limit_text(cores or CORES)} each{is_assumed}"
        busy = count_of(significant(self.busy_cores), "CPU core")
        return f"{busy} {'needed' if self.is_saturated else 'busy'} in {where}"

    @property
    def warning(self) -> str:
        """Empty if the frontends have enough cores."""
        if not self.is_too_high:
            return ""
        what = SATURATED if self.is_saturated else QUEUED
        return f"{what}: {self}. Set `frontend.replicas` to {self.needed}"
