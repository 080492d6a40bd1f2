"""Reading the counters of a frontend."""

from __future__ import annotations

from math import inf

import pytest

from penstock.bench.methods.frontend_counters import Counters, is_frontend, quantile, read_scrape
from tests.bench.methods.frontends import MODEL, Frontend


def test_the_counters_of_one_model_are_read() -> None:
    frontend = Frontend()
    frontend.finish(ttft_s=0.03, duration_s=2.0, tokens=100)
    frontend.fail("internal")
    scrape = read_scrape(frontend.text, MODEL.lower())  # a frontend may write it in lower case
    counters = scrape.counters
    assert (scrape.process, scrape.uptime_s) == ("a1", 1000.0)
    assert counters.ttft == {0.0: 0, 0.022: 0, 0.047: 1, 0.1: 1, inf: 1}
    assert (counters.durations, counters.duration_s) == (2, pytest.approx(2.1))
    assert (counters.lengths, counters.tokens) == (1, 100)
    assert (counters.ok, counters.errors, counters.client_errors) == (1, 1, 0)


def test_a_model_without_requests_has_no_counts() -> None:
    assert read_scrape(Frontend().text, "another").counters == Counters()


@pytest.mark.parametrize("kind", ["validation", "not_found", "not_implemented", "cancelled"])
def test_errors_of_clients_do_not_lower_the_uptime(kind: str) -> None:
    counters = Counters(outcomes={("success", ""): 9, ("error", kind): 5})
    assert (counters.uptime, counters.client_errors) == (1.0, 5)


@pytest.mark.parametrize("kind", ["internal", "overload", "a new one"])
def test_other_errors_lower_the_uptime(kind: str) -> None:
    assert Counters(outcomes={("success", ""): 9, ("error", kind): 1}).uptime == 0.9


def test_there_is_no_uptime_without_requests() -> None:
    assert Counters().uptime is None
    assert Counters(outcomes={("error", "validation"): 1}).uptime is None


def test_a_counter_that_fell_was_reset() -> None:
    assert (Counters(tokens=1) - Counters(tokens=2)).is_below_zero
    assert (Counters() - Counters(outcomes={("success", ""): 1})).is_below_zero
    assert not (Counters(tokens=2, duration_s=0.1) - Counters(tokens=1)).is_below_zero


def test_only_metrics_of_a_frontend_are_recognized() -> None:
    assert is_frontend(Frontend().text)
    assert not is_frontend("vllm:num_requests_running 1\n")
    assert not is_frontend("<html>")


BUCKETS = {0.0: 0.0, 0.1: 10.0, 0.2: 10.0, 0.4: 90.0, inf: 100.0}


@pytest.mark.parametrize(
    ("buckets", "share", "estimate"),
    [
        (BUCKETS, 0.05, (0.05, 0.0, 0.1)),
        (BUCKETS, 0.1, (0.1, 0.0, 0.1)),
        (BUCKETS, 0.5, (0.3, 0.2, 0.4)),  # half of the 80 requests in the bucket are lower
        (BUCKETS, 0.9, (0.4, 0.2, 0.4)),
        (BUCKETS, 0.99, (None, 0.4, inf)),
        ({1.0: 0.0, 2.0: 4.0, inf: 4.0}, 0.5, (1.5, 1.0, 2.0)),
        ({}, 0.5, None),
        ({0.1: 0.0, inf: 0.0}, 0.5, None),
    ],
)
def test_a_percentile_is_interpolated_in_its_bucket(
    buckets: dict[float, float], share: float, estimate: tuple[float | None, float, float] | None
) -> None:
    percentile = quantile(buckets, share)
    values = percentile and (percentile.value, percentile.low, percentile.high)
    assert values == (pytest.approx(estimate) if estimate else None)
