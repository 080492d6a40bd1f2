"""How many requests a replay has at which rate, and so for how long its traffic lasts.

`simulate`, `plan` and the benchmarks decide it here and nowhere else. Pure arithmetic.
"""

from __future__ import annotations

from math import ceil

from penstock.workload.model import DEFAULT_REQUESTS, MAX_SAMPLED_REQUESTS, Workload

MAX_REPLAYED_REQUESTS = 20_000  # of one replay, unless the workload itself has more
MAX_SEARCHED_REQUESTS = 2000  # of a replay that selects a scale, unless the workload has more
REQUESTS_PER_CLIENT = 8  # of each concurrent client, at least
MIN_PLANNED_REQUESTS = 100  # of a sampled workload, in a replay of `plan`
MIN_PLANNED_TRACE_REQUESTS = 1000  # of a trace, in a replay of `plan`
MAX_REQUESTS_FOR_MEANS = 5000  # from which the mean lengths are computed
MIN_SECONDS = 40  # of traffic in a replay of `plan`, unless ENOUGH_REQUESTS arrive before
ENOUGH_REQUESTS = 2000
# A replay of `plan` lasts for so many mean request durations: two to fill the engines, and two that
# are counted.
STEADY_STATE_DURATIONS = 4.25
TURN_S = 2.0  # for a response in a conversation, where none was replayed yet
MIN_GROWTH = 1.5  # of a replay that is repeated because it was too short


def at_scale(workload: Workload, scale: float, *, min_requests: int | None = None) -> Workload:
    """The workload with ``scale`` times the arrival rate, which lasts as long as before.

    ``min_requests``: the fewest requests at a scale below 1; None means as many as the workload
    has. A ramp, a ladder and a trace keep their own requests.
    """
    scaled = workload.scaled(scale)
    unscaled = workload.fixed_requests
    if unscaled is None:
        return scaled
    least = unscaled if min_requests is None else min_requests
    requests = min(max(round(unscaled * scale), least), max(MAX_REPLAYED_REQUESTS, unscaled))
    return scaled.with_requests(max(requests, REQUESTS_PER_CLIENT * scaled.concurrency))


def for_search(workload: Workload, scale: float, *, repeat: int = 1) -> Workload:
    """The workload `at_scale` for a search over scales, with no more requests than select one.

    ``repeat``: times as many, for the replay that decides.
    """
    scaled = at_scale(workload, scale)
    unscaled, searched = workload.fixed_requests, scaled.fixed_requests
    if unscaled is None or searched is None:
        return scaled
    most = max(unscaled, MAX_SEARCHED_REQUESTS, REQUESTS_PER_CLIENT * scaled.concurrency)
    requests = max(min(searched, most), _conversation_requests(scaled)) * repeat
    return scaled.with_requests(min(requests, max(MAX_REPLAYED_REQUESTS, most)))


def _conversation_requests(workload: Workload) -> int:
    """The fewest with which the number of concurrent conversations becomes steady; 0 without
    conversations."""
    if workload.conversation is None or workload.mean_rate is None:
        return 0
    return steady_state_requests(workload, rate=workload.mean_rate, request_s=TURN_S)


def exceeds_conversation_limit(workload: Workload) -> bool:
    """Whether a replay would be too short for the number of conversations to become steady."""
    return _conversation_requests(workload) > MAX_REPLAYED_REQUESTS


def exceeds_sample_limit(workload: Workload) -> bool:
    """Whether more requests would be sampled than can be replayed, as in a ramp at a high scale."""
    return workload.sampled_requests > MAX_SAMPLED_REQUESTS


def lengthened(workload: Workload, growth: float) -> Workload | None:
    """The workload with ``growth`` times as many requests, up to the limit of a replay; None if it
    cannot have many more, or needs none. Of a trace, a part can be lengthened."""
    current = workload.requests if workload.trace else workload.fixed_requests
    if current is None or growth <= 1:
        return None
    requests = min(ceil(current * growth), MAX_REPLAYED_REQUESTS)
    is_worthwhile = requests >= current * min(growth, MIN_GROWTH)
    return workload.with_requests(requests) if is_worthwhile else None


def for_means(workload: Workload) -> Workload:
    """The workload with enough requests to compute its mean lengths from."""
    if workload.trace is not None or workload.requests is None:
        return workload
    requests = max(workload.requests, DEFAULT_REQUESTS)
    return workload.with_requests(min(requests, MAX_REQUESTS_FOR_MEANS))


def steady_state_requests(workload: Workload, *, rate: float, request_s: float) -> int:
    """The fewest requests at ``rate`` requests/s that show a steady state.

    ``request_s``: seconds that one request takes; 0 means unknown.
    """
    durations = STEADY_STATE_DURATIONS
    if (conversation := workload.conversation) is not None:
        # Engines fill up with conversations, which last longer than a request.
        request_s = conversation.turns * (conversation.think + request_s)
        durations /= 2
    shortest = rate * MIN_SECONDS
    if request_s:
        shortest = min(shortest, ENOUGH_REQUESTS)
    return round(max(rate * durations * request_s, shortest))


def for_steady_state(
    workload: Workload, *, rate: float, request_s: float, recorded: int | None = None
) -> Workload:
    """The workload with as many requests as show a steady state, and no more.

    ``recorded``: requests of the trace, None without one. A ramp and a ladder keep theirs.
    """
    if workload.trace is None and workload.fixed_requests is None:
        return workload
    if workload.concurrency:
        sampled = workload.fixed_requests or DEFAULT_REQUESTS
        return workload.with_requests(min(sampled, DEFAULT_REQUESTS))
    needed = steady_state_requests(workload, rate=rate, request_s=request_s)
    if recorded is not None:
        return workload.with_requests(min(recorded, max(MIN_PLANNED_TRACE_REQUESTS, needed)))
    return workload.with_requests(max(MIN_PLANNED_REQUESTS, needed))


def planned_requests(workload: Workload, scale: float) -> int:
    """Requests of a replay of `plan` at ``scale``; a trace has the same at every scale."""
    if workload.trace is not None:
        return workload.requests or 0
    sampled = max(workload.sampled_requests, REQUESTS_PER_CLIENT * workload.concurrency)
    return round(sampled * scale)


def exceeds_plan_limit(workload: Workload, scale: float) -> bool:
    """Whether a replay at ``scale`` would have more requests than `plan` replays."""
    return planned_requests(workload, scale) > MAX_REPLAYED_REQUESTS
