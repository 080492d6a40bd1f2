"""Decides which differences between A and B are findings. Pure arithmetic.

Two equal deployments can also respond differently, for example because of batching, caching or
sampling. So the rate of a difference between A and B is compared with its rate between two
responses of A to the same request (Fisher's exact test, one-sided, with Bonferroni's correction).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb

from penstock.bench.difference import MIN_PAIRS, Both, Difference, differences
from penstock.bench.shadow.compare import Compared, DifferenceClass, compared
from penstock.bench.shadow.response import ShadowResponse
from penstock.bench.shadow.run import Pair
from penstock.simulate.window import ServedRequest

LEVEL = 0.01  # probability of a wrong finding in one run
MOST_EXAMPLES = 5
MOST_BLOCKS = 20  # of consecutive requests, from which intervals of latencies are computed


class Verdict(StrEnum):
    FINDINGS = "findings"
    NO_FINDINGS = "no_findings"
    UNDECIDED = "undecided"


class Status(StrEnum):
    """Of one class of difference."""

    FINDING = "finding"
    NO_FINDING = "no_finding"
    NOT_COMPARABLE = "not_comparable"
    TOO_FEW = "too_few"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One request whose responses differ."""

    id: str
    """`custom_id` of the request, else its line number in the file."""
    detail: str
    """Value of A and value of B; never text of the prompt or of the response."""
    position: int | None
    """First character that differs, from 0; null if the class has no position."""


@dataclass(frozen=True, kw_only=True)
class ClassVerdict:
    """One class of difference."""

    name: DifferenceClass
    """The class."""
    status: Status
    """`not_comparable`: A differs so often from itself that no difference of B would be
    significant. `too_few`: no number of differences in so few requests would be."""
    compared: int
    """Number of requests to whose responses of A and B the class applies."""
    differing: int
    """Number of these requests whose responses differ."""
    repeated: int
    """Number of requests to whose two responses of A the class applies."""
    differing_repeated: int
    """Number of these requests whose two responses of A differ."""
    p_value: float
    """Probability of such a difference, or a larger one, if A and B are equal."""
    found_from: int | None
    """Smallest number of differing requests that would be a finding; null if none would."""
    examples: tuple[Example, ...]
    """The first requests whose responses differ."""


@dataclass(frozen=True, kw_only=True)
class ShadowVerdict:
    verdict: Verdict
    classes: Sequence[ClassVerdict]
    """Those that apply to at least one request, in the order of `DifferenceClass`."""
    latencies: Sequence[Difference]
    """Empty with fewer than 5 streamed requests."""
    pairs: int
    repeated: int
    without_usage: int
    """Number of requests that both served, and whose prompt tokens cannot be compared."""
    both_failed: int
    sampled: int
    """Number of requests with random texts, which are not compared."""
    unreachable: int
    """Number of requests that B did not get, because it no longer responded."""


def verdict_of(pairs: Sequence[Pair], *, as_sent: bool = False) -> ShadowVerdict:
    """``as_sent``: the requests were sent with their own temperature and seed."""

    def differences_of(pair: Pair, second: ShadowResponse) -> dict[DifferenceClass, Compared]:
        is_random = as_sent and pair.request.is_sampled
        return compared(pair.request, pair.first, second, has_random_text=is_random)

    compared_pairs = [(each, differences_of(each, each.second)) for each in pairs]
    repeats = [differences_of(each, each.repeat) for each in pairs if each.repeat is not None]
    applying = [
        kind for kind in DifferenceClass if any(kind in classes for _, classes in compared_pairs)
    ]
    classes = [_class(kind, compared_pairs, repeats, LEVEL / len(applying)) for kind in applying]
    served = [each for each in pairs if not (each.first.error or each.second.error)]
    with_usage = sum(DifferenceClass.PROMPT_TOKENS in each for _, each in compared_pairs)
    return ShadowVerdict(
        verdict=_verdict(classes),
        classes=classes,
        latencies=_latencies(served),
        pairs=len(pairs),
        repeated=len(repeats),
        without_usage=len(served) - with_usage,
        both_failed=sum(bool(each.first.error and each.second.error) for each in pairs),
        sampled=sum(as_sent and each.request.is_sampled for each in pairs),
        unreachable=sum(each.second.is_unreachable for each in pairs),
    )


def _verdict(classes: Sequence[ClassVerdict]) -> Verdict:
    statuses = {verdict.name: verdict.status for verdict in classes}
    if Status.FINDING in statuses.values():
        return Verdict.FINDINGS
    # Classes that apply to few requests, such as tool calls, do not make the others undecided.
    # Without texts that can be compared, it is one that applies to all served requests.
    without_text = statuses.get(DifferenceClass.REASONING, Status.TOO_FEW)
    central = statuses.get(DifferenceClass.TEXT, without_text)
    return Verdict.UNDECIDED if central is Status.TOO_FEW else Verdict.NO_FINDINGS


def _class(
    kind: DifferenceClass,
    compared_pairs: Sequence[tuple[Pair, dict[DifferenceClass, Compared]]],
    repeats: Sequence[dict[DifferenceClass, Compared]],
    level: float,
) -> ClassVerdict:
    applying = [(pair, classes[kind]) for pair, classes in compared_pairs if kind in classes]
    differing = [(pair, each) for pair, each in applying if each.differs]
    of_repeats = [classes[kind] for classes in repeats if kind in classes]
    hits, own_hits = len(differing), sum(each.differs for each in of_repeats)
    p_value = fisher(hits, len(applying), own_hits, len(of_repeats))
    if kind is DifferenceClass.LENGTH:
        p_value = min(1.0, 2 * min(p_value, _length_p_value([pair for pair, _ in differing])))
    found_from = smallest_hits(len(applying), len(of_repeats), own_hits, level)
    if kind is DifferenceClass.PROMPT_TOKENS and not own_hits:
        found_from = 1
    is_found = p_value <= level or (
        not own_hits and any(_is_certain(kind, pair) for pair, _ in differing)
    )
    status = Status.FINDING if is_found else Status.NO_FINDING
    if not is_found and found_from is None:
        status = Status.NOT_COMPARABLE if own_hits else Status.TOO_FEW
    return ClassVerdict(
        name=kind,
        status=status,
        compared=len(applying),
        differing=hits,
        repeated=len(of_repeats),
        differing_repeated=own_hits,
        p_value=p_value,
        found_from=found_from,
        examples=tuple(
            Example(id=pair.request.id, detail=each.detail, position=each.position)
            for pair, each in differing[:MOST_EXAMPLES]
        ),
    )


def _is_certain(kind: DifferenceClass, pair: Pair) -> bool:
    """Whether one such difference is a finding: the prompt's tokens, the validation of a request
    and an endpoint that does not run do not depend on chance."""
    if kind is DifferenceClass.ERROR:
        return (pair.first.is_rejected or pair.second.is_rejected) or pair.second.is_unreachable
    return kind is DifferenceClass.PROMPT_TOKENS


def _length_p_value(differing: Sequence[Pair]) -> float:
    """Of B's responses being equally often longer and shorter than A's."""
    longer = sum(each.second.length > each.first.length for each in differing)
    return sign_test(longer, len(differing) - longer)


def _latencies(served: Sequence[Pair]) -> Sequence[Difference]:
    timed = [
        (_served(pair.first), _served(pair.second))
        for pair in served
        if pair.first.ttft_ms is not None and pair.second.ttft_ms is not None
    ]
    if len(timed) < MIN_PAIRS:
        return []
    # `differences` gives intervals of percentiles only if a block has more requests than there
    # are blocks.
    count = max(MIN_PAIRS, min(MOST_BLOCKS, int((len(timed) - 1) ** 0.5)))
    return differences(list(_blocks(timed, count)), LEVEL)


def _blocks(values: Sequence[Both], count: int) -> Iterator[Sequence[Both]]:
    for number in range(count):
        yield values[number * len(values) // count : (number + 1) * len(values) // count]


def _served(response: ShadowResponse) -> ServedRequest:
    ttft_ms = response.ttft_ms or 0.0
    return ServedRequest(
        arrived_ms=0.0,
        ended_ms=response.e2e_ms,
        first_ms=ttft_ms,
        tokens=response.completion_tokens or 0,
        ttft_ms=ttft_ms,
        itl_ms=response.itl_ms,
        prefill_queue_ms=0.0,
        decode_queue_ms=None,
        input_tokens=response.prompt_tokens or 0,
        cached_tokens=0,
    )


def fisher(high: int, of_high: int, low: int, of_low: int) -> float:
    """One-sided p-value of Fisher's exact test that the rate ``high`` / ``of_high`` is above
    ``low`` / ``of_low``; 1 without observations."""
    hits, total = high + low, of_high + of_low
    if not of_high or not of_low:
        return 1.0
    # Each term from the one before: `comb` for each is slow with many requests.
    ways = term = comb(of_high, high) * comb(of_low, low)
    for count in range(high, min(hits, of_high)):
        term = term * (of_high - count) * (hits - count)
        term //= (count + 1) * (of_low - hits + count + 1)
        ways += term
    return ways / comb(total, hits)


def sign_test(longer: int, shorter: int) -> float:
    """Two-sided p-value of the sign test; 1 without differences."""
    count = longer + shorter
    tail = term = comb(count, min(longer, shorter))
    for k in range(min(longer, shorter), 0, -1):
        term = term * k // (count - k + 1)
        tail += term
    return min(1.0, 2 * tail / (1 << count))


def smallest_hits(of_high: int, of_low: int, low: int, level: float) -> int | None:
    """Smallest number of hits of ``of_high`` that is significant; None if none is.

    ``low``: hits of ``of_low``. The p-value falls with the number of hits.
    """
    begin, end = 0, of_high + 1
    while begin < end:
        middle = (begin + end) // 2
        if fisher(middle, of_high, low, of_low) <= level:
            end = middle
        else:
            begin = middle + 1
    return begin if begin <= of_high else None
