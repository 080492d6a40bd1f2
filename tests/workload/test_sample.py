"""Requests drawn from a workload."""

import itertools
from statistics import mean, stdev

import pytest

from penstock.workload import BLOCK_TOKENS, Request, Workload, sample
from penstock.workload.load import parse_workload


def workload(text: str) -> Workload:
    return parse_workload(text, "w.yaml").workload


STEADY = "requests: 4000\ninput: {mean: 1000, cv: 0.5}\noutput: {mean: 200, cv: 0.5}\n"


def test_a_seed_gives_the_same_requests_and_another_others() -> None:
    drawn = workload(STEADY + "arrival: {poisson: 5}\n")
    assert sample(drawn, 7) == sample(drawn, 7)
    assert sample(drawn, 7) != sample(drawn, 8)


def test_lengths_and_gaps_have_the_configured_mean_and_deviation() -> None:
    requests = sample(workload(STEADY + "arrival: {poisson: 5}\n"), 1)
    inputs = [r.input_tokens for r in requests]
    assert mean(inputs) == pytest.approx(1000, rel=0.03)
    assert stdev(inputs) == pytest.approx(500, rel=0.1)
    times = [r.at_ms or 0.0 for r in requests]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert mean(gaps) == pytest.approx(200, rel=0.05)
    assert stdev(gaps) == pytest.approx(200, rel=0.1)  # as exponential ones


def test_constant_arrivals_are_evenly_spaced_and_concurrency_arrives_at_once() -> None:
    even = sample(workload(STEADY + "arrival: {constant: 4}\n"), 1)
    assert [r.at_ms for r in even[:3]] == [0.0, 250.0, 500.0]
    users = sample(workload(STEADY + "arrival: {concurrency: 4}\n"), 1)
    assert {r.at_ms for r in users} == {0.0}


def test_a_ramp_ends_with_its_seconds_and_rises() -> None:
    text = "input: 10\noutput: 10\narrival: {ramp: {start: 1, end: 9, seconds: 400}}\n"
    times = [r.at_ms or 0.0 for r in sample(workload(text), 3)]
    assert max(times) <= 400_000
    assert len(times) == pytest.approx(2000, rel=0.1)
    early = sum(t < 200_000 for t in times)
    assert early / len(times) == pytest.approx(0.3, abs=0.03)  # (1 + 5) : (5 + 9)


def test_bursts_have_their_peak_rate() -> None:
    bursts = "arrival: {bursts: {rate: 1, peak: 20, every: 60, seconds: 6}}\n"
    times = [r.at_ms or 0.0 for r in sample(workload(STEADY + bursts), 3)]
    within = sum(t % 60_000 < 6_000 for t in times)
    assert within / len(times) == pytest.approx(120 / (120 + 54), abs=0.03)


def test_the_input_of_a_turn_has_all_turns_before_it() -> None:
    text = STEADY + "arrival: {poisson: 5}\nconversation: {turns: 4, think: 2}\n"
    requests = sample(workload(text), 1)
    assert len(requests) == 4000
    first, second, third, fourth = requests[:4]
    assert [r.at_ms is None for r in requests[:5]] == [False, True, True, True, False]
    assert {r.session for r in requests[:4]} == {"0"}
    assert second.think_ms == 2000
    for before, after in ((first, second), (second, third), (third, fourth)):
        assert after.input_tokens > before.input_tokens + before.output_tokens
        shared = before.input_tokens // BLOCK_TOKENS
        assert after.blocks[:shared] == before.blocks[:shared]
        assert not set(after.blocks[shared:]) & set(before.blocks)


def test_inputs_share_as_many_prefixes_as_configured() -> None:
    text = STEADY + "arrival: {poisson: 5}\nsystem_prompts: {tokens: 640, count: 3}\n"
    requests = sample(workload(text), 1)
    assert len({r.blocks[:10] for r in requests}) == 3
    assert all(r.input_tokens > 640 for r in requests)
    rest = [block for r in requests for block in r.blocks[10:]]
    assert len(rest) == len(set(rest))


@pytest.mark.parametrize("seed", range(5))
def test_blocks_cover_the_input(seed: int) -> None:
    text = STEADY + (
        "arrival: {poisson: 5}\nsystem_prompts: {tokens: 700}\nconversation: {turns: 3}\n"
    )

    def covers(request: Request) -> bool:
        needed = -(-request.input_tokens // BLOCK_TOKENS)
        return len(request.blocks) == needed and request.output_tokens >= 1

    assert all(covers(request) for request in sample(workload(text), seed))


@pytest.mark.parametrize(
    ("lengths", "median_tokens", "mean_tokens", "p99_tokens"),
    [
        ("{median: 400, mean: 860}", 400, 860, 7138),
        ("{median: 400, p99: 6000}", 400, 788, 6000),
        ("{quantiles: [[0, 10], [0.5, 400], [0.9, 1000], [1, 2000]]}", 400, 532, 1900),
        ("{quantiles: [[0, 128], [0.3, 128], [0.3, 1024], [1, 1024]]}", 1024, 755, 1024),
    ],
)
def test_lengths_have_the_configured_quantiles_and_mean(
    lengths: str, median_tokens: int, mean_tokens: int, p99_tokens: int
) -> None:
    text = f"requests: 40000\ninput: {lengths}\noutput: 1\narrival: {{poisson: 5}}\n"
    tokens = sorted(request.input_tokens for request in sample(workload(text), 1))
    assert tokens[20000] == pytest.approx(median_tokens, rel=0.03)
    assert mean(tokens) == pytest.approx(mean_tokens, rel=0.03)
    assert tokens[39600] == pytest.approx(p99_tokens, rel=0.06)


LADDER = "input: 10\noutput: 10\narrival: {ladder: {rates: [5, 20, 10], seconds: 100, pause: 50}}\n"


def test_a_ladder_has_its_rates_and_no_arrival_in_its_pauses() -> None:
    ladder = workload(LADDER)
    times = [(request.at_ms or 0.0) / 1000 for request in sample(ladder, 1)]
    counts = [sum(begin <= at < begin + 100 for at in times) for begin in (0, 150, 300)]
    assert counts == [pytest.approx(100 * rate, rel=0.1) for rate in (5, 20, 10)]
    assert sum(counts) == len(times)
    assert {0, 150, 300} <= set(times)
    assert ladder.mean_rate == 3500 / 400
    assert ladder.sampled_requests == 3500
    assert ladder.fixed_requests is None
    assert ladder.scaled(2).mean_rate == 7000 / 400


def test_closed_loop_clients_begin_at_random_turns_of_their_conversations() -> None:
    text = "requests: 400\ninput: 100\noutput: 50\narrival: {concurrency: 20}\n"
    text += "conversation: {turns: 5, start: random}\n"
    requests = sample(workload(text), 1)
    first = [request for request in requests if request.at_ms is not None]
    assert len(requests) == 400
    assert {r.input_tokens for r in first[:20]} == {100, 250, 400, 550, 700}
    assert {r.input_tokens for r in first[20:]} == {100}
    assert all(r.think_ms == 0 for r in first)
    lockstep = sample(workload(text.replace("random", "first")), 1)
    assert {r.input_tokens for r in lockstep if r.at_ms is not None} == {100}
    open_loop = workload(text.replace("concurrency: 20", "poisson: 1"))
    assert {r.input_tokens for r in sample(open_loop, 1) if r.at_ms is not None} == {100}
