"""LeaderWorkerSets: each check has an object that breaks it and a near miss."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.kubernetes_schemas.edit import REMOVED, edited
from tests.support.kubernetes_schemas.groups import problems

POD = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
ROLLING = "spec/rolloutStrategy/rollingUpdateConfiguration"
SOUND: dict[str, Any] = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "demo-decode"},
    "spec": {
        "replicas": 2,
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "leaderWorkerTemplate": {
            "size": 2,
            "leaderTemplate": POD,
            "workerTemplate": copy.deepcopy(POD),
        },
    },
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"spec/replicas": REMOVED},
        {"spec/leaderWorkerTemplate/leaderTemplate/metadata": {"labels": {"a": "b"}}},
        {ROLLING: {"maxSurge": 1, "maxUnavailable": 1}},
        {"metadata/name": "a" * 49},
    ],
)
def test_a_valid_leader_worker_set_is_accepted(changes: dict[str, Any]) -> None:
    assert problems(edited(SOUND, changes), "1.33") == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"spec/strategy": {}}, "spec.strategy: "),
        ({"spec/leaderWorkerTemplate/size": 0}, "spec.leaderWorkerTemplate.size: "),
        ({f"{ROLLING}/maxSurge": 0}, "spec.rolloutStrategy.rollingUpdateConfiguration: "),
        ({"metadata/name": "a" * 50}, "metadata.name: "),
        ({"metadata/name": "9a"}, "metadata.name: "),
        (
            {"spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image": 5},
            "spec.leaderWorkerTemplate.workerTemplate: ",
        ),
        (
            {"spec/leaderWorkerTemplate/leaderTemplate/spec/container": []},
            "spec.leaderWorkerTemplate.leaderTemplate: ",
        ),
    ],
)
def test_a_broken_leader_worker_set_is_rejected(changes: dict[str, Any], place: str) -> None:
    broken = edited(SOUND, changes)
    (problem,) = problems(broken, "1.33")
    assert problem.startswith(f"LeaderWorkerSet/{broken['metadata']['name']} {place}")
