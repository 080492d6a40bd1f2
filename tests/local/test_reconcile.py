"""`reconcile` in tables: the desired state, the observed state, the actions.

Replicas are written `prefill.1s:b`: program (default: decode), index, state (r: ready, the default;
s: starting, d: draining, c: crashed, with the time of its restart) and key of the configuration
(default: a). An action is `+` (start), `-` (drain) or `x` (forget) and a replica.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock.local.reconcile import (
    Action,
    ActionKind,
    DesiredProgram,
    ObservedReplica,
    ReplicaState,
    backoff_s,
    reconcile,
)

STATES = {
    "r": ReplicaState.READY,
    "s": ReplicaState.STARTING,
    "d": ReplicaState.DRAINING,
    "c": ReplicaState.CRASHED,
}
KINDS = {ActionKind.START: "+", ActionKind.DRAIN: "-", ActionKind.FORGET: "x"}
REPLICA = re.compile(
    r"(?:(?P<program>\w+)\.)?(?P<index>\d+)(?P<state>[rsdc])?(?P<at>[\d.]+)?(?::(?P<key>\w))?"
)


def observed(text: str) -> list[ObservedReplica]:
    matches = [REPLICA.fullmatch(word) for word in text.split()]
    return [
        ObservedReplica(
            program=match["program"] or "decode",
            index=int(match["index"]),
            key=match["key"] or "a",
            state=STATES[match["state"] or "r"],
            retry_at=float(match["at"] or 0),
        )
        for match in matches
        if match is not None
    ]


def desired(count: int, key: str = "a", program: str = "decode", **more: Any) -> DesiredProgram:
    return DesiredProgram(program=program, replicas=count, key=key, **more)


def text_of(actions: list[Action]) -> str:
    words = []
    for action in actions:
        program = "" if action.program == "decode" else f"{action.program}."
        key = "" if action.key == "a" else f":{action.key}"
        words.append(f"{KINDS[action.kind]}{program}{action.index}{key}")
    return " ".join(words)


TWO, ONE = [desired(2)], [desired(1)]
EDITED = [desired(2, "b")]
POOLS = [
    desired(1, "b", "prefill", group="workers"),
    desired(1, "b", group="workers", after=("prefill",)),
]
GROUP = [POOLS[0], desired(1, "b", group="workers")]
FIXED_PORT = [desired(2, "b", "frontend", surge=False)]


@pytest.mark.parametrize(
    ("programs", "replicas", "now", "actions"),
    [
        pytest.param(TWO, "", 0, "+0 +1", id="nothing runs"),
        pytest.param(TWO, "0 1s", 0, "", id="equal states need no action"),
        pytest.param([desired(4)], "0 1", 0, "+2 +3", id="scaling up starts the missing ones"),
        pytest.param(ONE, "2 0 1", 0, "-1 -2", id="scaling down drains the highest indices"),
        pytest.param(ONE, "0c9 1", 0, "x0", id="scaling down keeps those that serve, not crashed"),
        pytest.param(ONE, "0s 1", 0, "-0", id="scaling down keeps those that serve, not starting"),
        pytest.param([desired(0)], "0", 0, "-0", id="scaling to zero"),
        pytest.param(TWO, "0 1d", 0, "+2", id="a draining replica keeps its index"),
        pytest.param([desired(0)], "old.0", 0, "-old.0", id="a removed program is drained"),
        pytest.param(ONE, "old.0", 0, "+0", id="a removed program serves until others are ready"),
        pytest.param(ONE, "old.0 0", 0, "-old.0", id="a removed program drains when they are"),
        pytest.param(TWO, "0 1c5", 4.9, "", id="a crashed replica waits for its retry time"),
        pytest.param(TWO, "0 1c5", 5, "+1", id="a crashed replica restarts with its index"),
        pytest.param(ONE, "0 1c5", 0, "x1", id="a crashed replica that is not desired"),
        pytest.param(EDITED, "0 1", 0, "+2:b +3:b", id="new replicas start before old ones stop"),
        pytest.param(EDITED, "0 1 2:b 3s:b", 0, "", id="old replicas wait for all new ones"),
        pytest.param(EDITED, "0 1 2:b 3:b", 0, "-0 -1", id="old replicas drain"),
        pytest.param(TWO, "0 1 2s:b", 0, "-2:b", id="an edit that is reverted midway"),
        pytest.param([desired(1, "b")], "0c99 1s:b", 0, "x0", id="crashed, of the old key"),
        pytest.param(GROUP, "prefill.0 0 prefill.1:b 1s:b", 0, "", id="a group waits"),
        pytest.param(
            GROUP, "prefill.0 0 prefill.1:b 1:b", 0, "-prefill.0 -0", id="a group drains together"
        ),
        pytest.param(POOLS, "prefill.0 0", 0, "+prefill.1:b", id="new decode after new prefill"),
        pytest.param(POOLS, "prefill.0 0 prefill.1:b", 0, "+1:b", id="new decode when it is ready"),
        pytest.param(POOLS, "", 0, "+prefill.0:b +0:b", id="no order without an old generation"),
        pytest.param(FIXED_PORT, "frontend.0 frontend.1", 0, "-frontend.0", id="one at a time"),
        pytest.param(FIXED_PORT, "frontend.0d frontend.1", 0, "", id="while it drains"),
        pytest.param(FIXED_PORT, "frontend.1", 0, "+frontend.0:b", id="its port is free"),
        pytest.param(FIXED_PORT, "frontend.0s:b frontend.1", 0, "", id="while the new one starts"),
        pytest.param(FIXED_PORT, "frontend.0:b frontend.1", 0, "-frontend.1", id="then the next"),
    ],
)  # fmt: skip
def test_actions(programs: list[DesiredProgram], replicas: str, now: float, actions: str) -> None:
    assert text_of(reconcile(programs, observed(replicas), now)) == actions


def test_a_group_keeps_its_old_pools_until_frontends_route_to_the_new_ones() -> None:
    ready = observed("prefill.0 0 prefill.1:b 1:b")
    assert reconcile(GROUP, ready, 0, groups_serve=False) == []


@pytest.mark.parametrize(
    ("crashes", "has_served", "seconds"),
    [
        *((1, False, 1), (2, False, 2), (3, False, 4), (6, False, 30), (5000, False, 30)),
        *((1, True, 0), (3, True, 0), (4, True, 1), (5, True, 2), (5000, True, 30)),
    ],
)
def test_backoff_doubles_up_to_half_a_minute(
    crashes: int, has_served: bool, seconds: float
) -> None:
    """A process that served starts again at once, unless it repeats."""
    assert backoff_s(crashes, has_served=has_served) == seconds
    assert backoff_s(crashes, has_served=has_served, most_s=2) == min(seconds, 2)


def test_repeated_reconciliation_reaches_the_desired_state_from_any_mixture() -> None:
    replicas = observed("0c 3 1:z 7s:z")
    for moment in range(10):
        for action in reconcile([desired(3)], replicas, float(moment)):
            replicas = [r for r in replicas if (r.index, r.key) != (action.index, action.key)]
            replicas += observed(str(action.index)) * (action.kind is ActionKind.START)
    assert len(replicas) == 3
    assert all(r.key == "a" and r.state is ReplicaState.READY for r in replicas)
