"""How the traffic is divided among two targets."""

from __future__ import annotations

from random import Random

import pytest

from penstock.bench.aiperf import Endpoint
from penstock.bench.compare import (
    CompareRequest,
    Schedule,
    Slicing,
    schedules,
    sliced_requests,
    slicing_of,
)
from penstock.errors import UsageError
from penstock.workload import Request, find_workload
from penstock.workload.load import LoadedWorkload, parse_workload

SLICING = Slicing(pairs=40, slice_ms=3_000, gap_ms=1_000)
ENDPOINT = Endpoint(url="http://127.0.0.1:1", model="m")


def request_of(loaded: LoadedWorkload, slicing: Slicing = SLICING) -> CompareRequest:
    return CompareRequest(
        endpoints=(ENDPOINT, ENDPOINT), workload=loaded, slicing=slicing, seed=0, timeout_s=1.0
    )


def requests(every_ms: float = 500.0, count: int = 300) -> list[Request]:
    return [
        Request(at_ms=number * every_ms, input_tokens=64, output_tokens=2, blocks=(number,))
        for number in range(count)
    ]


def slots(schedule: Schedule) -> dict[int, int]:
    """The slot of each pair: slots alternate among the targets."""
    return {
        pair: int((schedule.requests[key].at_ms or 0.0) // SLICING.slot_ms)
        for key, pair in schedule.pairs.items()
    }


def test_both_targets_get_the_same_requests_in_neighboring_slots() -> None:
    first, second = schedules(requests(), SLICING, Random(0))
    assert list(first.requests) == list(second.requests)
    assert first.pairs == second.pairs
    slots_a, other = slots(first), slots(second)
    assert set(slots_a) == set(range(SLICING.pairs))
    for pair in slots_a:
        assert {slots_a[pair], other[pair]} == {2 * pair, 2 * pair + 1}


def test_the_order_within_a_pair_is_random() -> None:
    first, _ = schedules(requests(), SLICING, Random(0))
    is_first = [slot % 2 == 0 for slot in slots(first).values()]
    assert 10 < sum(is_first) < 30
    again, _ = schedules(requests(), SLICING, Random(1))
    assert slots(first) != slots(again)


def test_requests_are_sent_only_in_the_slice_of_their_target() -> None:
    """And at the same distance from its beginning as in the traffic."""
    first, second = schedules(requests(), SLICING, Random(0))
    for schedule in (first, second):
        for key, request in schedule.requests.items():
            at_ms = request.at_ms or 0.0
            assert at_ms % SLICING.slot_ms < SLICING.slice_ms
            assert at_ms < schedule.ends_ms[key] <= at_ms + SLICING.slot_ms
            original = int(key[0].removeprefix("r")) * 500.0
            assert at_ms % SLICING.slot_ms == original % SLICING.slice_ms


def test_requests_after_the_last_slice_are_left_out() -> None:
    first, _ = schedules(requests(count=1000), SLICING, Random(0))
    assert len(first.requests) == SLICING.traffic_ms / 500


def test_as_many_pairs_as_fit_into_the_duration() -> None:
    assert slicing_of(duration_ms=144_000, slice_ms=3_000, gap_ms=1_500).pairs == 16


def test_a_duration_for_too_few_pairs_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"10 s are too short for slices of 3 s.*at least 54s"):
        slicing_of(duration_ms=10_000, slice_ms=3_000, gap_ms=1_500)


def test_sampled_traffic_lasts_for_all_slices() -> None:
    for name in ("short-chat", "document"):
        for seed_rate in (0.5, 8.0):
            loaded = find_workload(name).scaled(seed_rate)
            assert (sliced_requests(request_of(loaded))[-1].at_ms or 0) >= SLICING.traffic_ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("input: 64\noutput: 2\narrival: {concurrency: 3}\n", "a fixed concurrency"),
        (
            "input: 64\noutput: 2\narrival: {poisson: 3}\nconversation: {turns: 2}\n",
            "conversations, so it cannot be divided",
        ),
        (
            "input: 64\noutput: 2\narrival: {ramp: {start: 5, end: 10, seconds: 10}}\n",
            r"--workload: 120 s of traffic are needed for each target, and w lasts .*--slice",
        ),
        (
            "input: 64\noutput: 2\narrival: {ramp: {start: 5, end: 10, seconds: 60}}\n",
            r"--duration: 120 s of traffic .* Use a shorter one",
        ),
        (
            "input: 64\noutput: 2\narrival: {poisson: 0.01}\n",
            r"--rate: only \d of 39 slices would have a request. Fix: Use a higher --rate",
        ),
    ],
)
def test_traffic_that_cannot_be_divided_is_an_error(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sliced_requests(request_of(parse_workload(text, "w.yaml")))
