"""The line of a pool while a rollout runs."""

from __future__ import annotations

import pytest

from penstock.cluster.progress import PoolStatus


@pytest.mark.parametrize(
    ("replicas", "updated", "ready", "line"),
    [
        (2, 2, 2, "decode 2/2 ready"),
        (2, 2, 1, "decode 1/2 ready"),
        (3, 2, 2, "decode 2/2 ready (1 old)"),
        (1, 1, 1, "decode 1/2 ready (1 of 2 updated)"),
        (3, 1, 2, "decode 2/2 ready (2 old, 1 of 2 updated)"),
    ],
)
def test_a_pool_names_its_old_and_its_missing_replicas(
    replicas: int, updated: int, ready: int, line: str
) -> None:
    pool = PoolStatus(
        name="decode",
        desired=2,
        replicas=replicas,
        updated=updated,
        ready=ready,
        restarts=0,
        gpus=1,
    )
    assert str(pool) == line
