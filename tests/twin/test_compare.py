from __future__ import annotations

from penstock.simulate.window import ServedRequest
from penstock.twin.twin import (
    REQUESTS,
    comparison_line,
    comparison_requests,
    latency_percentiles,
)


def served_requests(ttft_ms: float, itl_ms: float | None) -> ServedRequest:
    return ServedRequest(
        arrived_ms=0,
        ended_ms=1000,
        first_ms=ttft_ms,
        tokens=64,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms,
        prefill_queue_ms=0,
        decode_queue_ms=None,
        input_tokens=4000,
        cached_tokens=0,
    )


def test_the_requests_are_the_same_each_time_and_fit_a_short_context() -> None:
    assert comparison_requests(131072, 1.0) == comparison_requests(131072, 0.5)
    assert len(comparison_requests(131072, 1.0)) == REQUESTS
    short = comparison_requests(512, 1.0)
    assert max(r.input_tokens + r.output_tokens for r in short) <= 512


def test_twice_the_speed_does_not_raise_the_real_request_rate() -> None:
    real, fast = (comparison_requests(131072, speed)[-1].at_ms or 0 for speed in (1.0, 2.0))
    assert round(fast / real, 6) == 2


def test_a_request_of_one_token_has_no_itl() -> None:
    found = latency_percentiles(
        [served_requests(50, None), served_requests(60, 5.0), served_requests(70, 6.0)]
    )
    assert (found.ttft_p50, found.itl_p50) == (60, 5.0)


def test_the_line_has_both_latencies_and_suggests_a_lower_speed() -> None:
    near = comparison_line([served_requests(52, 5.1)], [served_requests(50, 5.0)], 1.0)
    assert near.startswith("twin: 1 requests, live / simulated: TTFT p50 52 / 50 ms")
    assert "ITL p50 5.1 / 5 ms" in near
    assert "--speed" not in near
    far = comparison_line([served_requests(70, 5.1)], [served_requests(50, 5.0)], 0.5)
    assert "in simulated time at 0.5 × speed" in far
    assert far.endswith("; --speed 0.25 halves its weight)")
