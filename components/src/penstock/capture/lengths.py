"""Lengths for logs without token counts, sampled from the distribution that the user states."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

from penstock.capture.capture import Captured, TimedRequest
from penstock.errors import InputError, Problem
from penstock.workload.model import Lengths
from penstock.workload.sample import sample_length

_FORM = re.compile(r"(?P<mean>[1-9]\d{0,8})(?::(?P<cv>\d(?:\.\d+)?))?")


@dataclass(frozen=True, kw_only=True)
class LengthOption:
    input: Lengths | None
    output: Lengths | None
    seed: int = 0


def parse_lengths(text: str) -> Lengths:
    """`MEAN` or `MEAN:CV`, in tokens. ValueError for another form."""
    match = _FORM.fullmatch(text)
    cv = float(match["cv"] or 0) if match else 0.0
    if match is None or cv > 5:
        raise ValueError(text)
    return Lengths(mean=int(match["mean"]), cv=cv)


def with_lengths(captured: Captured, option: LengthOption) -> list[TimedRequest]:
    """The requests in order of arrival, with lengths where the log has none.

    Lengths in the log are kept. InputError if the log and ``option`` have none.
    """
    randoms = Random(f"input {option.seed}"), Random(f"output {option.seed}")
    requests = captured.in_order()
    return [_complete(request, option, *randoms) for request in requests]


def _complete(
    request: TimedRequest, option: LengthOption, random_in: Random, random_out: Random
) -> TimedRequest:
    record = request.record
    if record.input_tokens and record.output_tokens is not None:
        return request
    return replace(
        request,
        record=replace(
            record,
            input_tokens=record.input_tokens or _length(option.input, random_in, "input"),
            output_tokens=record.output_tokens
            if record.output_tokens is not None
            else _length(option.output, random_out, "output"),
        ),
    )


def _length(lengths: Lengths | None, random: Random, name: str) -> int:
    if lengths is None:
        message = f"the log has requests without the number of {name} tokens"
        fix = f"State their mean and coefficient of variation, such as --{name}-tokens 1000:0.5"
        raise InputError(Problem(message=message, fix=fix))
    return sample_length(lengths, random)
