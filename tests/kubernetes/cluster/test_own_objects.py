"""Whose an object is: by labels and owners, also where the names of two releases begin alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cluster.api import Api
from penstock.cluster.progress import OwnObjects
from penstock.errors import RolloutError
from penstock.helm import ReleaseTarget
from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.emulated_cluster.kubelet import reference_to, warning
from tests.support.emulated_cluster.operator import GRAPH
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.emulated_cluster.store import ApiError, Object, key_of

EVENT = ("v1", "events", "default", "refused")
REFUSED = 'Error creating: pods "x" is forbidden: no PriorityClass with name nope was found'


def own_objects(cluster: Cluster, name: str = NAME) -> OwnObjects:
    target = ReleaseTarget(name=name, namespace="default", kubeconfig=cluster.kubeconfig)
    return OwnObjects(Api.connect(target), target)


def made(cluster: Cluster, kind: str, name: str, **metadata: Any) -> Object:
    """An object in the store."""
    manifest = {
        "apiVersion": "v1" if kind == "PersistentVolumeClaim" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"replicas": 0, "template": {"spec": {}}},
        "status": {"replicas": 0, "readyReplicas": 0},
    }
    return cluster.api.store.write(key_of(manifest), manifest, trusted=True)


def labels(release: str, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "penstock",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
    }


def replica_set(cluster: Cluster, owner: str) -> Object:
    """Of the neighbor `quick-canary`, of the release by its label, or of it by its owners."""
    if owner == "owner":
        (component, *_) = cluster.api.store.of_kind("DynamoComponentDeployment")
        return made(cluster, "ReplicaSet", "1-x", ownerReferences=[reference_to(component)])
    release = f"{NAME}-canary" if owner == "neighbor" else NAME
    return made(cluster, "ReplicaSet", f"{NAME}-canary-decode-85cd", labels=labels(release, "x"))


@pytest.mark.parametrize("owner", ["neighbor", "label", "owner"])
def test_a_broken_neighbor_does_not_fail_a_rollout(installed: Cluster, owner: str) -> None:
    refused = warning(replica_set(installed, owner), "FailedCreate", REFUSED)
    store = installed.api.store

    def refuse(new: Object, _: object) -> None:
        """Once the graph is written: events from before are not attributed to the change."""
        if new.get("kind") == GRAPH and "dryRun" not in installed.api.requests[-1]:
            store.write(EVENT, refused, trusted=True)

    store.admission.append(refuse)
    installed.edit(decode={"args": ["--slow"]} if owner != "neighbor" else {"replicas": 3})
    code, output = installed.apply("--rollback-on-failure", "--skip-check")
    assert EVENT in store.objects
    if owner == "neighbor":
        assert (code, "canary" in output) == (0, False), output
        assert installed.replicas()["decode"] == 3
    else:
        assert code == RolloutError.exit_code, output
        assert "no PriorityClass with name nope" in output


@pytest.mark.needs("recordings")
def test_recorded_events_of_a_release_whose_name_begins_alike(fresh: Cluster) -> None:
    path = RECORDINGS / "emulator-2026-11-28" / "events-of-a-release-whose-name-begins-alike.json"
    (recorded,) = json.loads(path.read_text())
    references = [event["involvedObject"] for event in recorded["answer"]["items"]]
    expected = ["etcd", "decode", "etcd", "frontend"]
    for reference, component in zip(references, expected, strict=True):
        stored = made(
            fresh, reference["kind"], reference["name"], labels=labels("gptp-canary", component)
        )
        reference |= {"uid": stored["metadata"]["uid"]}
    of_neighbor, of_release = own_objects(fresh, "gptp-canary"), own_objects(fresh, "gptp")
    assert [of_neighbor.component(r) for r in references] == expected
    assert [of_release.component(r) for r in references] == [None] * 4


def test_an_object_of_the_same_name_from_before_is_not_the_release_s(installed: Cluster) -> None:
    (pool, *_) = installed.api.store.of_kind("DynamoComponentDeployment")
    owned, reference = own_objects(installed), reference_to(pool)
    assert owned.component(reference) == pool["metadata"]["labels"]["penstock/component"]
    assert owned.component({**reference, "uid": "from before"}) is None
    assert owned.component({**reference, "uid": None}) is None
    assert owned.component({**reference, "kind": "Node", "uid": "n"}) is None


def test_a_kind_that_the_user_may_not_read_is_named(installed: Cluster) -> None:
    """Its warnings are not shown, and `status` says so."""

    (replica_set, *_) = installed.api.store.of_kind("ReplicaSet")
    refused = warning(replica_set, "FailedCreate", REFUSED)
    installed.api.store.write(EVENT, refused, trusted=True)
    (graph,) = installed.api.store.of_kind(GRAPH)
    installed.api.store.write(key_of(graph), {**graph, "status": {}}, trusted=True)
    installed.operator.stop()
    installed.api.refuse(
        "/replicasets/", ApiError(403, "Forbidden", "replicasets.apps is forbidden")
    )
    code, output = installed.run("status", "--cluster")
    assert code != 0
    assert "ReplicaSet default/" in output
    assert "replicasets.apps is forbidden" in output
    assert "PriorityClass" not in output
