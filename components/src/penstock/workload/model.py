"""The model of a workload file: `benchmarks/workloads/*.yaml`.

`simulate` and `plan` read the same file. Lengths are tokens, rates are requests/s.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.strict_yaml.base import Positive, Spec, Text
from penstock.text.numbers import limit_text

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DEFAULT_REQUESTS = 500
MAX_SAMPLED_REQUESTS = 1_000_000  # take some GiB of memory, and an hour of replay


def field_error(place: str, message: str, fix: str) -> PydanticCustomError:
    """An error of a model validator with a fix; ``place`` is relative to the model."""
    context = {"place": place, "message": message, "fix": fix}
    return PydanticCustomError("penstock", "{message}", context)


def too_many(requests: float) -> tuple[str, str]:
    """(message, fix)."""
    message = f"{requests:,.0f} requests are more than the limit of {MAX_SAMPLED_REQUESTS:,}"
    return message, "Lower the rate or the duration."


class Lengths(Spec):
    mean: Positive = Field(description="Mean number of tokens.")
    cv: float = Field(
        default=0.0,
        ge=0,
        le=5,
        description="Coefficient of variation (standard deviation divided by mean) of a log-normal "
        "distribution; 0: all have the mean.",
    )
    max: Positive | None = Field(
        default=None, description="Maximum; longer samples are cut to it. Unset: no maximum."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max is not None and self.max < self.mean:
            message = f"{self.max} is less than the mean, {self.mean}"
            raise field_error("max", message, "Raise `max` or lower `mean`.")
        return self


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

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(names) != 1:
            choices = ", ".join(type(self).model_fields)
            message = f"sets {' and '.join(names) or 'nothing'}"
            raise field_error("", message, f"Set exactly one of {choices}.")
        return self


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
        description="Number of requests, all turns included. Unset: all of a ramp or a trace, else "
        f"{DEFAULT_REQUESTS}.",
    )
    input: Length | None = Field(
        default=None,
        description="Input tokens of a request; in a conversation those that each turn adds. A "
        "number, or mean, cv and max.",
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
        elif self.arrival is not None and self.arrival.ramp and self.requests:
            message = "the rate and the duration of a ramp decide the number of requests"
            raise field_error("requests", message, "Remove `requests`, or shorten the ramp.")
        elif self.sampled_requests > MAX_SAMPLED_REQUESTS:
            place = "arrival.ramp" if self.requests is None else "requests"
            raise field_error(place, *too_many(self.sampled_requests))
        self._check_prefix()
        self._check_conversation()
        return self

    @property
    def sampled_requests(self) -> float:
        """Number of sampled requests, all turns included; the expected number for a ramp, 0 for a
        trace."""
        if self.trace is not None or self.arrival is None:
            return 0
        ramp = self.arrival.ramp
        if ramp is None:
            return self.requests or DEFAULT_REQUESTS
        turns = self.conversation.turns if self.conversation else 1
        return (ramp.start + ramp.end) / 2 * ramp.seconds * turns

    def _check_prefix(self) -> None:
        if self.system_prompts is None or self.input is None or self.conversation is not None:
            return
        shared, longest = self.system_prompts.tokens, self.input.max or self.input.mean
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
        """Requests that are sampled at any rate; None for a ramp and a trace."""
        if self.arrival is None or self.arrival.ramp is not None:
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
    name = "poisson" if arrival.poisson is not None else "constant"
    return arrival.model_copy(update={name: getattr(arrival, name) * scale})
