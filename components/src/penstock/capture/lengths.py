"""Lengths for logs without token counts, sampled from the distribution that the user states."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    requests = captured.in_order()
    for name, lengths in (("input", option.input), ("output", option.output)):
        _require_lengths(name, lengths, requests)
    randoms = Random(f"input {option.seed}"), Random(f"output {option.seed}")
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
            input_tokens=record.input_tokens or _length(option.input, random_in),
            output_tokens=record.output_tokens
            if record.output_tokens is not None
            else _length(option.output, random_out),
        ),
    )


def _require_lengths(name: str, lengths: Lengths | None, requests: Sequence[TimedRequest]) -> None:
    counts = [getattr(request.record, f"{name}_tokens") for request in requests]
    # A record has an input of at least one token, and may have an output of none.
    missing = sum(not count if name == "input" else count is None for count in counts)
    if lengths is None and missing:
        message = f"{missing:,} of {len(requests):,} requests have no number of {name} tokens"
        fix = f"State their mean and coefficient of variation, such as --{name}-tokens 1000:0.5"
        raise InputError(Problem(message=message, fix=fix))


def _length(lengths: Lengths | None, random: Random) -> int:
    assert lengths is not None  # `_require_lengths`
    return sample_length(lengths, random)
