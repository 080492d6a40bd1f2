"""The model of a workload file: `benchmarks/workloads/*.yaml`.

`simulate`, `plan` and `bench` read the same file. Lengths are tokens, rates requests a second.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from penstock.strict_yaml.base import Positive, Spec, Text

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DEFAULT_REQUESTS = 500
MAX_SAMPLED_REQUESTS = 1_000_000  # that are drawn: some GiB of memory, and an hour of replay


def refusal(place: str, message: str, fix: str) -> PydanticCustomError:
    """An error of a model validator in our words; ``place`` is relative to the model."""
    context = {"place": place, "message": message, "fix": fix}
    return PydanticCustomError("penstock", "{message}", context)


def too_many(requests: float) -> tuple[str, str]:
    """Message and fix."""
    message = f"{requests:,.0f} requests, and {MAX_SAMPLED_REQUESTS:,} are the most that are drawn"
    return message, "lower the rate, or shorten it"


class Lengths(Spec):
    mean: Positive = Field(description="Tokens, on average.")
    cv: float = Field(
        default=0.0,
        ge=0,
        le=5,
        description="Standard deviation over mean of a log-normal distribution; 0: all alike.",
    )
    max: Positive | None = Field(default=None, description="Longer ones are cut to this.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        if self.max is not None and self.max < self.mean:
            raise refusal("max", f"{self.max} is less than the mean, {self.mean}", "raise it")
        return self


def _as_mean(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return {"mean": value} if is_number else value


Length = Annotated[Lengths, BeforeValidator(_as_mean)]


class Ramp(Spec):
    start: Rate = Field(description="Requests a second at the beginning.")
    end: Rate = Field(description="Requests a second at the end.")
    seconds: Seconds = Field(description="From beginning to end; Poisson arrivals in between.")


class Bursts(Spec):
    rate: Rate = Field(description="Requests a second between bursts.")
    peak: Rate = Field(description="Requests a second in a burst.")
    every: Seconds = Field(description="Seconds from one burst's beginning to the next one's.")
    seconds: Seconds = Field(description="How long a burst lasts.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        if self.seconds >= self.every:
            message = f"a burst of {self.seconds:g} s does not end before the next, {self.every:g}"
            raise refusal("seconds", message, "shorten it, or raise `every`")
        return self


class Arrival(Spec):
    poisson: Rate | None = Field(default=None, description="Requests a second, at random.")
    constant: Rate | None = Field(default=None, description="Requests a second, evenly.")
    concurrency: Positive | None = Field(
        default=None, description="Users, each of whom asks again as soon as the answer is there."
    )
    ramp: Ramp | None = Field(default=None, description="Poisson, with a rate that changes.")
    bursts: Bursts | None = Field(default=None, description="Poisson, with bursts.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        said = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(said) != 1:
            choices = ", ".join(type(self).model_fields)
            message = f"says {' and '.join(said) or 'nothing'}"
            raise refusal("", message, f"say exactly one of {choices}")
        return self


class SystemPrompts(Spec):
    tokens: Positive = Field(description="Tokens at the beginning of `input` that requests share.")
    count: Positive = Field(default=1, description="Different ones, each as likely.")


class Conversation(Spec):
    turns: Positive = Field(description="Requests of one conversation.")
    think: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="Seconds from an answer to a question."
    )


class Trace(Spec):
    format: Literal["mooncake", "azure"] = Field(
        description="mooncake: JSON Lines with timestamp (ms), input_length, output_length and "
        "hash_ids; azure: CSV with TIMESTAMP, ContextTokens and GeneratedTokens."
    )
    file: Text | None = Field(
        default=None, description="Path, relative to this file; unset: given as --trace."
    )
    block_tokens: Annotated[int, Field(ge=64, multiple_of=64)] = Field(
        default=512, description="Tokens of one of mooncake's hash_ids, a multiple of 64."
    )
    speed: Rate = Field(default=1.0, description="2 lets requests arrive twice as fast.")


class Workload(Spec):
    """Either ``trace``, or ``input``, ``output`` and ``arrival``."""

    requests: Positive | None = Field(
        default=None,
        description=f"How many, all turns counted; unset: {DEFAULT_REQUESTS}, or all of a ramp's "
        "or a trace's.",
    )
    input: Length | None = Field(
        default=None,
        description="Tokens of a prompt; in a conversation those that each turn adds. A number, or "
        "mean, cv and max.",
    )
    output: Length | None = Field(default=None, description="Tokens of an answer; as input.")
    arrival: Arrival | None = Field(default=None, description="When requests come.")
    system_prompts: SystemPrompts | None = Field(
        default=None, description="Beginnings that requests share."
    )
    conversation: Conversation | None = Field(
        default=None, description="Requests come in turns, each with all before it in its prompt."
    )
    trace: Trace | None = Field(default=None, description="Recorded requests.")

    @model_validator(mode="after")
    def _judge(self) -> Self:
        drawn = ("input", "output", "arrival")
        beside = (*drawn, "system_prompts", "conversation")
        if self.trace is not None:
            if said := [name for name in beside if getattr(self, name) is not None]:
                message = "the trace says that already"
                raise refusal(said[0], message, f"remove {', '.join(said)}, or the trace")
        elif missing := [name for name in drawn if getattr(self, name) is None]:
            fix = f"add {', '.join(missing)}, or a trace"
            raise refusal(missing[0], "required, but missing", fix)
        elif self.arrival is not None and self.arrival.ramp and self.requests:
            fix = "remove requests, or shorten the ramp"
            raise refusal("requests", "a ramp's seconds say how many", fix)
        elif self.sampled_requests > MAX_SAMPLED_REQUESTS:
            place = "arrival.ramp" if self.requests is None else "requests"
            raise refusal(place, *too_many(self.sampled_requests))
        self._judge_prefix()
        return self

    @property
    def sampled_requests(self) -> float:
        """How many are drawn, all turns counted; of a ramp on average. 0 of a trace."""
        if self.trace is not None or self.arrival is None:
            return 0
        ramp = self.arrival.ramp
        if ramp is None:
            return self.requests or DEFAULT_REQUESTS
        turns = self.conversation.turns if self.conversation else 1
        return (ramp.start + ramp.end) / 2 * ramp.seconds * turns

    def _judge_prefix(self) -> None:
        if self.system_prompts is None or self.input is None or self.conversation is not None:
            return
        shared, most = self.system_prompts.tokens, self.input.max or self.input.mean
        if shared >= most:
            message = f"{shared} tokens leave no room in an input of {most}"
            raise refusal("system_prompts.tokens", message, "input counts the system prompt too")

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

    def with_requests(self, requests: int) -> Self:
        return self.model_copy(update={"requests": requests})

    def scaled(self, scale: float) -> Self:
        """The same requests, coming ``scale`` times as fast; users are whole and at least one."""
        if self.trace is not None:
            trace = self.trace.model_copy(update={"speed": self.trace.speed * scale})
            return self.model_copy(update={"trace": trace})
        assert self.arrival is not None
        return self.model_copy(update={"arrival": _scaled(self.arrival, scale)})


def _scaled(arrival: Arrival, scale: float) -> Arrival:
    if arrival.concurrency is not None:
        users = max(1, round(arrival.concurrency * scale))
        return arrival.model_copy(update={"concurrency": users})
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
