"""Events of a release: which pool they belong to, and which are reported twice."""

from __future__ import annotations

import pytest

from penstock.live.cluster.events import events_of, merged
from penstock.local.events import Event, EventKind


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"count": 3}, "BackOff: x (3 times)"),
        ({"count": 3, "series": {"count": 5}}, "BackOff: x (5 times)"),
        ({"count": 1}, "BackOff: x"),
        ({"count": None, "series": "x"}, "BackOff: x"),
        ({"count": "many"}, "BackOff: x"),
    ],
)
def test_a_count_that_is_not_an_integer_is_not_shown(counts: dict[str, object], text: str) -> None:
    listed = {
        "metadata": {},
        "type": "Warning",
        "reason": "BackOff",
        "message": "x",
        **counts,
        "lastTimestamp": "2026-11-22T20:44:05Z",
        "involvedObject": {"kind": "Pod", "name": "quick-decode-0"},
    }
    (event,) = events_of([(listed, "decode")])
    assert event.text == text


def test_a_pod_may_come_again_with_the_same_name() -> None:
    """As those of a StatefulSet or a LeaderWorkerSet do."""
    kinds = (EventKind.START, EventKind.DRAIN, EventKind.START)
    expected = [
        Event(time_s=100.0 * number, kind=kind, subject="quick-decode-0", text="x")
        for number, kind in enumerate(kinds)
    ]
    again = [
        Event(
            time_s=entry.time_s + 5,
            kind=entry.kind,
            subject=entry.subject,
            text="by the controller",
        )
        for entry in expected
    ]
    assert [event.kind for event in merged([expected, again], 10)] == list(kinds)
