"""The comparison of a shift, with requests of known releases: how often is it wrong?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.metrics import Metrics, Sample
from penstock.serving.frontend_metrics import ITL, REQUESTS, STARTED, TTFT
from penstock.shift.comparison import Waiting, failures_of, latencies_of
from penstock.shift.counts import CANCELLED, Counter, Counts

BOUNDS = (0.0, 0.0022, 0.0047, 0.01, 0.022, 0.047, 0.1, 0.22, 0.47, 1.0, 2.2, float("inf"))
SLOWER = 1.2
LOOKS = 30  # of one step, 10 requests apart


class Release:
    """A frontend with requests that fail, or are slow, at random. Latencies in seconds."""

    def __init__(
        self,
        generator: np.random.Generator,
        *,
        fails: float = 0.0,
        ttft_s: float = 0.04,
        itl_s: float = 0.006,
    ) -> None:
        self._generator, self._fails = generator, fails
        self._latencies = {TTFT: (ttft_s, [0.0]), ITL: (itl_s, [0.0])}
        self.requests = self.errors = 0
        self.counter = Counter()
        self.counter.add({"a": self.metrics()})

    def serve(self, requests: int) -> Counts:
        self.requests += requests
        self.errors += int(self._generator.binomial(requests, self._fails))
        for mean, drawn in self._latencies.values():
            # Ten times as many as requests are needed for ITLs; a long tail as under load.
            drawn.extend(mean * self._generator.lognormal(-0.5, 1.0, requests))
        self.counter.add({"a": self.metrics()})
        return self.counter.counts()

    def metrics(self) -> Metrics:
        served = self.requests - self.errors
        samples = [
            Sample(STARTED, {}, self.requests),
            Sample(REQUESTS, {"status": "success", "error_type": ""}, served),
            Sample(REQUESTS, {"status": "error", "error_type": "internal"}, self.errors),
        ]
        for name, (_, drawn) in self._latencies.items():
            values = np.array(drawn)
            samples += [
                Sample(f"{name}_bucket", {"le": str(b)}, float((values <= b).sum())) for b in BOUNDS
            ]
            samples.append(Sample(f"{name}_sum", {}, float(values.sum())))
        return Metrics(tuple(samples))


def blamed(seed: int, *, requests: int = 10 * LOOKS, slower: float = SLOWER, **bad: float) -> bool:
    """Whether the new release is ever found worse in a step of as many requests."""
    generator = np.random.default_rng(seed)
    old, new = Release(generator, fails=0.002), Release(generator, **{"fails": 0.002, **bad})
    lifetime = replace(old.serve(600), completed=20_000, errors=40)
    beside = Release(generator, fails=0.002)
    for _ in range(requests // 10):
        concurrent, now = beside.serve(10), new.serve(10)
        recent, waiting = old.serve(10), (NONE_WAITS, NONE_WAITS)
        if failures_of(lifetime, recent, now, waiting):
            return True
        if latencies_of(concurrent, now, slower, with_ttft=True):
            return True
    return False


def share_blamed(runs: int = 100, **bad: float) -> float:
    return sum(blamed(seed, **bad) for seed in range(runs)) / runs


def test_a_release_that_is_as_good_is_rarely_blamed() -> None:
    assert share_blamed() <= 0.05


@pytest.mark.parametrize(
    "bad", [{"fails": 0.05}, {"ttft_s": 0.1}, {"itl_s": 0.012}, {"itl_s": 0.01, "requests": 1200}]
)
def test_a_worse_release_is_found(bad: dict[str, float]) -> None:
    assert share_blamed(50, **bad) >= 0.98  # type: ignore[arg-type]


def test_a_permitted_difference_is_no_reason() -> None:
    assert share_blamed(50, itl_s=0.012, slower=2.0) <= 0.05


def counts(completed: int = 100, errors: int = 0) -> Counts:
    return Counts(
        started=completed,
        completed=completed,
        errors=errors,
        ended=completed,
        answered=completed,
        ttft=None,
        itl=None,
    )


NONE_WAITS = Waiting(started=100, without_token=0)


@pytest.mark.parametrize(
    ("lifetime", "recent", "new", "is_worse"),
    [
        (counts(10_000), counts(1000), counts(200, 2), True),
        (counts(10_000), counts(1000), counts(200, 1), False),
        (counts(10_000), counts(100), counts(200, 2), False),  # too few to compare with
        # What affects both releases now is not the fault of the new one.
        (counts(10_000, 1), counts(1000, 10), counts(200, 3), False),
        # An outage of yesterday does not excuse the new one.
        (counts(10_000, 900), counts(1000), counts(200, 9), True),
        (counts(0), counts(0), counts(100, 50), False),
    ],
)
def test_errors_are_compared_with_those_of_the_old_release(
    lifetime: Counts, recent: Counts, new: Counts, is_worse: bool
) -> None:
    found = failures_of(lifetime, recent, new, (NONE_WAITS, NONE_WAITS))
    assert bool(found) == is_worse
    assert not found or f"{new.errors} of its 200 requests failed, but" in found[0]


@pytest.mark.parametrize(
    ("old", "new", "hangs"),
    [
        ((100, 0), (50, 5), True),
        ((100, 0), (50, 4), False),
        ((100, 0), (1000, 49), False),
        ((100, 0), (1000, 51), True),
        ((100, 30), (100, 50), False),  # both are overloaded
        ((0, 0), (0, 0), False),
    ],
)
def test_requests_without_a_token_hang(
    old: tuple[int, int], new: tuple[int, int], hangs: bool
) -> None:
    waiting = [Waiting(started=started, without_token=without) for started, without in (old, new)]
    found = failures_of(counts(), counts(), counts(), (waiting[0], waiting[1]))
    message = f"{new[1]} requests have no token yet, and {new[0]:,} have started in 30 s"
    assert found == ([message] if hangs else [])


def test_ttft_is_compared_only_with_the_same_prefixes() -> None:
    old, new = (Release(np.random.default_rng(1), ttft_s=s).serve(300) for s in (0.04, 0.4))
    assert "the mean TTFT is" in latencies_of(old, new, SLOWER, with_ttft=True)[0]
    assert latencies_of(old, new, SLOWER, with_ttft=False) == []


def scrape(requests: float, cancelled: float = 0, le: tuple[float, float] = (0, 0)) -> Metrics:
    low, high = le
    return Metrics(
        (
            Sample(REQUESTS, {"status": "success", "error_type": ""}, requests),
            Sample(REQUESTS, {"status": "error", "error_type": CANCELLED}, cancelled),
            Sample("dynamo_frontend_active_requests", {}, -requests),  # a gauge that decreases
            Sample(f"{TTFT}_bucket", {"le": "0.1"}, low),
            Sample(f"{TTFT}_bucket", {"le": "0.3"}, high),
            Sample(f"{TTFT}_bucket", {"le": "+Inf"}, high),
            Sample(f"{TTFT}_sum", {}, low * 0.05 + (high - low) * 0.2),
        )
    )


def test_a_restarted_and_a_new_frontend_are_counted() -> None:
    counter = Counter()
    counter.add({"a": scrape(100)})
    counter.add({"a": scrape(110, cancelled=3), "b": scrape(5)})  # b may be old
    counter.add({"b": scrape(6)})  # a does not respond
    counter.add({"a": scrape(2), "b": scrape(6)})
    assert counter.counts().completed == 10 + 1 + 2
    assert counter.counts().ended == 10 + 1 + 2 + 3
    counter.restart()
    counter.add({"a": scrape(3), "b": scrape(6)})
    assert counter.counts().completed == 1
    lifetime = Counter(lifetime=True)
    lifetime.add({"a": scrape(100)})
    assert lifetime.counts().completed == 100


def test_a_latency_has_its_mean_and_standard_error() -> None:
    counter = Counter(lifetime=True)
    counter.add({"a": scrape(100, le=(50, 100))})
    latency = counter.counts().ttft
    assert latency is not None
    assert (latency.count, latency.mean_s) == (100, pytest.approx(0.125))
    # Half are even between 0 and 0.1, half between 0.1 and 0.3.
    drawn = np.concatenate([np.linspace(0, 0.1, 10_001), np.linspace(0.1, 0.3, 10_001)])
    assert latency.error_s == pytest.approx(drawn.std() / 10, rel=0.01)
