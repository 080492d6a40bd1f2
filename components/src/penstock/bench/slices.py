"""Divides traffic into slices that two targets get in turn, in random order.

A pair of slices has the same requests, first for one target and then for the other. So a change of
the network or of the machine affects both, and the difference of a pair does not depend on the
lengths of its requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from penstock.bench.difference import MIN_PAIRS
from penstock.bench.trace_file import Key, keyed
from penstock.errors import Problem, UsageError
from penstock.text.numbers import significant
from penstock.workload import Request


@dataclass(frozen=True, kw_only=True)
class Slicing:
    """How two targets share the time of a run."""

    pairs: int
    """Number of pairs of slices, including the first, which warms up both targets and is not
    counted."""
    slice_ms: float
    """Duration of one slice in ms."""
    gap_ms: float
    """Pause after each slice in ms, for its last responses."""

    @property
    def traffic_ms(self) -> float:
        """Duration of the traffic that each target gets."""
        return self.pairs * self.slice_ms

    @property
    def slot_ms(self) -> float:
        return self.slice_ms + self.gap_ms


def slicing_of(*, duration_ms: float, slice_ms: float, gap_ms: float) -> Slicing:
    """As many pairs as fit into ``duration_ms``; UsageError if they are too few."""
    pair_ms = 2 * (slice_ms + gap_ms)
    pairs = int(duration_ms // pair_ms)
    if pairs <= MIN_PAIRS:  # the first one is not counted
        needed_s = (MIN_PAIRS + 1) * pair_ms / 1000
        length, slice_text = significant(duration_ms / 1000, 4), significant(slice_ms / 1000, 4)
        message = f"{length} s are too short for slices of {slice_text} s"
        fix = f"Use at least {math.ceil(needed_s)}s, or shorter slices."
        raise UsageError(Problem(place="--duration", message=message, fix=fix))
    return Slicing(pairs=pairs, slice_ms=slice_ms, gap_ms=gap_ms)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What one target gets."""

    requests: dict[Key, Request]
    """With the time of the run at which each is sent."""
    pairs: dict[Key, int]
    ends_ms: dict[Key, float]
    """When the other target's turn may begin."""


def schedules(
    requests: Sequence[Request], slicing: Slicing, random: Random
) -> tuple[Schedule, Schedule]:
    """Of both targets, with the same keys.

    ``requests``: in order of arrival, without conversations; those after the last slice are left
    out.
    """
    used = [request for request in requests if (request.at_ms or 0.0) < slicing.traffic_ms]
    second_first = [random.random() < 0.5 for _ in range(slicing.pairs)]
    return (
        _schedule(used, slicing, [int(swapped) for swapped in second_first]),
        _schedule(used, slicing, [1 - int(swapped) for swapped in second_first]),
    )


def _schedule(requests: Sequence[Request], slicing: Slicing, turns: Sequence[int]) -> Schedule:
    """``turns``: for each pair, 0 if this target is the first, else 1."""
    moved, pairs, ends = {}, {}, {}
    for key, request in keyed(requests).items():
        at_ms = request.at_ms or 0.0
        pair = int(at_ms // slicing.slice_ms)
        begin = (2 * pair + turns[pair]) * slicing.slot_ms
        moved[key] = replace(request, at_ms=begin + at_ms - pair * slicing.slice_ms)
        pairs[key] = pair
        ends[key] = begin + slicing.slot_ms
    return Schedule(requests=moved, pairs=pairs, ends_ms=ends)
