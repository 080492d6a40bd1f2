"""The model of a workload file: `benchmarks/workloads/*.yaml`.

`simulate` and `plan` read the same file. Lengths are tokens, rates are requests/s.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.strict_yaml.base import Items, Positive, Spec, Text, as_tuple
from penstock.text.numbers import limit_text, significant

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DEFAULT_REQUESTS = 500
MAX_SAMPLED_REQUESTS = 1_000_000  # take some GiB of memory, and an hour of replay
MAX_CV = 5
MAX_STAGES = 100  # of a ladder: each has a row in the output
P99 = NormalDist().inv_cdf(0.99)


def field_error(place: str, message: str, fix: str) -> PydanticCustomError:
    """An error of a model validator with a fix; ``place`` is relative to the model."""
    context = {"place": place, "message": message, "fix": fix}
    return PydanticCustomError("penstock", "{message}", context)


def too_many(requests: float) -> tuple[str, str]:
    """(message, fix)."""
    message = f"{requests:,.0f} requests are more than the limit of {MAX_SAMPLED_REQUESTS:,}"
    return message, "Lower the rate or the duration."


Share = Annotated[float, Field(ge=0, le=1)]
Quantile = Annotated[tuple[Share, Positive], BeforeValidator(as_tuple)]
FORMS = (("mean",), ("mean", "median"), ("median", "p99"), ("quantiles",))


class Lengths(Spec):
    """A log-normal distribution, or a recorded one."""

    mean: Positive | None = Field(default=None, description="Mean number of tokens.")
    cv: float = Field(
        default=0.0,
        ge=0,
        le=MAX_CV,
        description="Coefficient of variation (standard deviation divided by mean) of a log-normal "
        "distribution; 0: all have the mean.",
    )
    median: Positive | None = Field(
        default=None, description="Median of a log-normal distribution; with mean or p99."
    )
    p99: Positive | None = Field(
        default=None, description="99th percentile of a log-normal distribution; with median."
    )
    quantiles: Items[Quantile] | None = Field(
        default=None,
        description="Recorded distribution: entries [share of the requests, tokens], where this "
        "share has at most so many tokens. Shares rise from 0 to 1. Lengths between two entries "
        "are equally likely.",
    )
    max: Positive | None = Field(
        default=None, description="Maximum; longer samples are cut to it. Unset: no maximum."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = tuple(n for n in ("mean", "median", "p99", "quantiles") if getattr(self, n))
        if names not in FORMS:
            message = f"sets {' and '.join(names) or 'no length'}"
            fix = "Set mean, mean and median, median and p99, or quantiles."
            raise field_error("", message, fix)
        if self.quantiles is not None:
            self._check_quantiles(self.quantiles)
        elif self.max is not None and self.max < self.usual:
            name = names[0]
            message = f"{self.max} is less than the {name}, {getattr(self, name)}"
            raise field_error("max", message, f"Raise `max` or lower `{name}`.")
        if self.median is not None:
            self._check_median(self.median)
        return self

    def _check_median(self, median: int) -> None:
        higher, limit = self.mean or self.p99 or median, sqrt(1 + MAX_CV**2)
        name, most = ("mean", limit) if self.mean else ("p99", exp(P99 * sqrt(2 * log(limit))))
        if not median <= higher <= most * median:
            message = f"{higher} is not within 1 to {significant(most)} times the median, {median}"
            raise field_error(name, message, f"Change `{name}` or `median`.")
        if self.cv:
            message = f"the median and the {name} decide the deviation"
            raise field_error("cv", message, "Remove `cv`.")

    def _check_quantiles(self, quantiles: tuple[tuple[float, int], ...]) -> None:
        shares = [share for share, _ in quantiles]
        if not shares or shares[0] != 0 or shares[-1] != 1:
            message = "the first share is not 0, or the last share is not 1"
            fix = "Begin with [0, MINIMUM], and end with [1, MAXIMUM]."
            raise field_error("quantiles", message, fix)
        for number, (lower, upper) in enumerate(pairwise(quantiles), start=1):
            if upper[0] < lower[0] or upper[1] < lower[1]:
                message = f"{list(upper)} is less than {list(lower)} before it"
                raise field_error(f"quantiles[{number}]", message, "Sort the list.")
        if self.cv or self.max is not None:
            message = "the quantiles decide the deviation and the maximum"
            raise field_error("quantiles", message, "Remove `cv` and `max`.")

    @property
    def usual(self) -> int:
        """The mean or, if it is not set, the median; the longest of quantiles."""
        return self.mean or self.median or (self.quantiles or ((1, 1),))[-1][1]

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm of the log-normal distribution."""
        if self.median and self.p99:
            return log(self.p99 / self.median) / P99
        if self.median and self.mean:
            return sqrt(2 * log(self.mean / self.median))
        return sqrt(log(1 + self.cv**2))


def _as_mean(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return {"mean": value} if is_number else value


Length = Annotated[Lengths, BeforeValidator(_as_mean)]


class Ramp(Spec):
    start: Rate = Field(description="Requests/s at the start.")
    end: Rate = Field(description="Requests/s at the end.")
    seconds: Seconds = Field(description="Duration of the ramp in seconds; arrivals are Poisson.")


class Bursts(Spec):
    rate: Rate = Field(description="Requests/s between bursts.")
    peak: Rate = Field(description="Requests/s in a burst.")
    every: Seconds = Field(
        description="Seconds from the start of one burst to the start of the next."
    )
    seconds: Seconds = Field(description="Duration of a burst in seconds.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.seconds >= self.every:
            later = f"{limit_text(self.every)} s later"
            message = (
                f"a burst of {limit_text(self.seconds)} s does not end before the next, {later}"
            )
            raise field_error("seconds", message, "Lower `seconds` or raise `every`.")
        return self


class Ladder(Spec):
    rates: Items[Rate] = Field(description="Requests/s of each stage; arrivals are Poisson.")
    seconds: Seconds = Field(description="Duration of each stage in seconds.")
    pause: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds without arrivals after each stage.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.rates:
            raise field_error("rates", "the list is empty", "Add the rate of each stage.")
        if len(self.rates) > MAX_STAGES:
            message = f"{len(self.rates):,} stages are more than the limit of {MAX_STAGES}"
            raise field_error("rates", message, "Remove rates, or use a `ramp`.")
        return self

    @property
    def every(self) -> float:
        """Seconds from the start of a stage to the start of the next."""
        return self.seconds + self.pause

    @property
    def total(self) -> float:
        """Seconds until the last stage ends."""
        return self.every * len(self.rates) - self.pause


class Arrival(Spec):
    poisson: Rate | None = Field(default=None, description="Requests/s; Poisson arrivals.")
    constant: Rate | None = Field(default=None, description="Requests/s, evenly spaced.")
    concurrency: Positive | None = Field(
        default=None,
        description="Closed-loop clients; each sends its next request after a response.",
    )
    ramp: Ramp | None = Field(
        default=None, description="Poisson arrivals with a rate that changes linearly."
    )
    bursts: Bursts | None = Field(default=None, description="Poisson arrivals with bursts.")
    ladder: Ladder | None = Field(
        default=None,
        description="Stages with one rate each, in one replay; simulate reports each stage.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = self._names()
        if len(names) != 1:
            choices = ", ".join(type(self).model_fields)
            message = f"sets {' and '.join(names) or 'nothing'}"
            raise field_error("", message, f"Set exactly one of {choices}.")
        return self

    def _names(self) -> list[str]:
        return [name for name in type(self).model_fields if getattr(self, name) is not None]

    @property
    def name(self) -> str:
        """Of the only field that is set."""
        return self._names()[0]

    @property
    def expected(self) -> float | None:
        """Expected number of arrivals, where the arrivals decide it: of a ramp and a ladder."""
        if self.ramp is not None:
            return (self.ramp.start + self.ramp.end) / 2 * self.ramp.seconds
        return sum(self.ladder.rates) * self.ladder.seconds if self.ladder is not None else None


class SystemPrompts(Spec):
    tokens: Positive = Field(description="Tokens at the start of `input` that requests share.")
    count: Positive = Field(
        default=1, description="Number of different system prompts, equally likely."
    )


MAX_THINK_S = 86_400  # a replay samples its state often, so a longer one would fill the memory


class Conversation(Spec):
    turns: Positive = Field(description="Number of requests of one conversation.")
    think: float = Field(
        default=0.0,
        ge=0,
        le=MAX_THINK_S,
        description="Seconds from a response to the next turn, at most a day.",
    )
    cached_output: bool = Field(
        default=False,
        description="Whether the next turn finds the output in a prefix cache: true if the chat "
        "template repeats outputs unchanged, false if it removes the reasoning.",
    )
    start: Literal["random", "first"] = Field(
        default="random",
        description="Turn at which the first conversation of each closed-loop client begins. With "
        "`first`, clients with equal conversations send the same turn at the same time.",
    )


class Trace(Spec):
    format: Literal["mooncake", "azure"] = Field(
        description="mooncake: JSON Lines with timestamp (ms), input_length, output_length and "
        "hash_ids; azure: CSV with TIMESTAMP, ContextTokens and GeneratedTokens."
    )
    file: Text | None = Field(
        default=None, description="Path, relative to this file. Unset: pass it as --trace."
    )
    block_tokens: Annotated[int, Field(ge=64, multiple_of=64)] = Field(
        default=512, description="Tokens per entry of mooncake's hash_ids, a multiple of 64."
    )
    speed: Rate = Field(
        default=1.0, description="Factor of the arrival rate; 2: requests arrive twice as fast."
    )


class Workload(Spec):
    """Either ``trace``, or ``input``, ``output`` and ``arrival``."""

    requests: Positive | None = Field(
        default=None,
        description="Number of requests, all turns included. Unset: all of a ramp, a ladder or a "
        f"trace, else {DEFAULT_REQUESTS}.",
    )
    input: Length | None = Field(
        default=None,
        description="Input tokens of a request; in a conversation those that each turn adds. A "
        "number, mean and cv, mean and median, median and p99, or quantiles.",
    )
    output: Length | None = Field(default=None, description="Output tokens of a request; as input.")
    arrival: Arrival | None = Field(default=None, description="When requests arrive.")
    system_prompts: SystemPrompts | None = Field(
        default=None, description="Prefixes that requests share."
    )
    conversation: Conversation | None = Field(
        default=None, description="Requests in turns; the input of each has all turns before it."
    )
    trace: Trace | None = Field(default=None, description="Recorded requests.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        sampled = ("input", "output", "arrival")
        conflicting = (*sampled, "system_prompts", "conversation")
        if self.trace is not None:
            if extra := [name for name in conflicting if getattr(self, name) is not None]:
                message = "the trace has it already"
                raise field_error(extra[0], message, f"Remove {', '.join(extra)}, or the trace.")
        elif missing := [name for name in sampled if getattr(self, name) is None]:
            fix = f"Add {', '.join(missing)}, or a trace."
            raise field_error(missing[0], "required, but missing", fix)
        elif self.arrival is not None and self.arrival.expected and self.requests:
            message = (
                f"the rates and the duration of {self.arrival.name} decide the number of requests"
            )
            raise field_error("requests", message, "Remove `requests`, or shorten the arrivals.")
        elif self.sampled_requests > MAX_SAMPLED_REQUESTS:
            arrival = f"arrival.{self.arrival.name}" if self.arrival else ""
            place = arrival if self.requests is None else "requests"
            raise field_error(place, *too_many(self.sampled_requests))
        self._check_prefix()
        self._check_conversation()
        return self

    @property
    def sampled_requests(self) -> float:
        """Number of sampled requests, all turns included; the expected number for a ramp and a
        ladder, 0 for a trace."""
        if self.trace is not None or self.arrival is None:
            return 0
        if self.arrival.expected is None:
            return self.requests or DEFAULT_REQUESTS
        return self.arrival.expected * (self.conversation.turns if self.conversation else 1)

    def _check_prefix(self) -> None:
        if self.system_prompts is None or self.input is None or self.conversation is not None:
            return
        shared, longest = self.system_prompts.tokens, self.input.max or self.input.usual
        if shared >= longest:
            message = (
                f"{shared} tokens are not less than the input of {longest}, which includes them"
            )
            raise field_error("system_prompts.tokens", message, "Raise `input`, or lower `tokens`.")

    def _check_conversation(self) -> None:
        """One conversation has no arrival rate."""
        requests = self.fixed_requests
        if self.conversation is None or self.concurrency or requests is None:
            return
        least = 2 * self.conversation.turns
        if requests < least:
            message = f"{requests} requests are less than two conversations of "
            message += f"{self.conversation.turns} turns, so conversations have no rate"
            raise field_error("requests", message, f"Set `requests` to {least} or more.")

    @property
    def fixed_requests(self) -> int | None:
        """Requests that are sampled at any rate; None for a ramp, a ladder and a trace."""
        if self.arrival is None or self.arrival.expected is not None:
            return None
        return self.requests or DEFAULT_REQUESTS

    @property
    def concurrency(self) -> int:
        """Concurrent clients; 0 where the arrivals have a rate, or are recorded."""
        return (self.arrival.concurrency if self.arrival else None) or 0

    @property
    def mean_rate(self) -> float | None:
        """Mean arrival rate in requests/s, all turns of conversations included.

        None for a trace and for concurrency.
        """
        rate = _mean_rate(self.arrival) if self.arrival else None
        turns = self.conversation.turns if self.conversation else 1
        return None if rate is None else rate * turns

    def with_requests(self, requests: int) -> Self:
        return self.model_copy(update={"requests": requests})

    def scaled(self, scale: float) -> Self:
        """The same requests at ``scale`` times the arrival rate or concurrency.

        Concurrency is rounded to an integer of at least 1.
        """
        if self.trace is not None:
            trace = self.trace.model_copy(update={"speed": self.trace.speed * scale})
            return self.model_copy(update={"trace": trace})
        assert self.arrival is not None
        return self.model_copy(update={"arrival": _scaled(self.arrival, scale)})


def _mean_rate(arrival: Arrival) -> float | None:
    if arrival.ramp is not None:
        return (arrival.ramp.start + arrival.ramp.end) / 2
    if (ladder := arrival.ladder) is not None:
        return (arrival.expected or 0.0) / ladder.total
    if (bursts := arrival.bursts) is not None:
        return bursts.rate + (bursts.peak - bursts.rate) * bursts.seconds / bursts.every
    return arrival.poisson or arrival.constant


def _scaled(arrival: Arrival, scale: float) -> Arrival:
    if arrival.concurrency is not None:
        concurrency = max(1, round(arrival.concurrency * scale))
        return arrival.model_copy(update={"concurrency": concurrency})
    if arrival.ramp is not None:
        start, end = arrival.ramp.start * scale, arrival.ramp.end * scale
        ramp = arrival.ramp.model_copy(update={"start": start, "end": end})
        return arrival.model_copy(update={"ramp": ramp})
    if arrival.bursts is not None:
        rate, peak = arrival.bursts.rate * scale, arrival.bursts.peak * scale
        bursts = arrival.bursts.model_copy(update={"rate": rate, "peak": peak})
        return arrival.model_copy(update={"bursts": bursts})
    if arrival.ladder is not None:
        rates = tuple(rate * scale for rate in arrival.ladder.rates)
        ladder = arrival.ladder.model_copy(update={"rates": rates})
        return arrival.model_copy(update={"ladder": ladder})
    name = "poisson" if arrival.poisson is not None else "constant"
    return arrival.model_copy(update={name: getattr(arrival, name) * scale})
