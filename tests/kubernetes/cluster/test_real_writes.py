"""Writes and statuses of a real cluster that penstock used to fail at or misread.

Each test is named after an item of "Does not" in ../shared/facts/real-cluster.md.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml

from penstock import helm
from penstock.cluster import helm_writer
from penstock.cluster.progress import Observation, progress_of
from penstock.helm import HelmError, ReleaseTarget
from penstock.manifests.render import chart_path
from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.emulated_cluster.store import Object

OF_DYNAMO = [
    p.stem
    for p in sorted((RECORDINGS / "rollouts").glob("*.jsonl"))
    if not p.stem.startswith("plain-")
]
EXTERNAL = {"replicas": None, "autoscaling": {"owner": "external"}}


def install_plain(site: Cluster, **sections: Any) -> None:
    site.edit(platform="plain", **sections)
    site.expect(0, "apply", "--yes")


@pytest.mark.parametrize("options", [{}, {"cluster": {"monitoring": {"pod_monitors": True}}}])
def test_1_a_plain_release_can_be_changed(fresh: Cluster, options: Object) -> None:
    install_plain(fresh, **options)
    fresh.edit(prefill={"config": {"engine": {"block_size": 64}}})
    fresh.expect(0, "apply", "--yes")
    assert fresh.run("diff")[0] == 0
    fresh.expect(0, "rollback", "--yes")


@pytest.mark.needs("recordings")
@pytest.mark.parametrize("name", OF_DYNAMO)
def test_9_only_the_ready_condition_says_that_a_rollout_is_done(name: str) -> None:
    """After an abrupt revert the phase is `Completed` while pods are missing."""
    graph: dict[str, Any] = {}
    done = []
    for line in (RECORDINGS / "rollouts" / f"{name}.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event.get("kind") != "DynamoGraphDeployment":
            continue
        update = event["object"]
        if event["type"] == "ADDED":
            graph = {"apiVersion": "nvidia.com/v1beta1", "kind": event["kind"], **update}
        graph |= {key: update[key] for key in ("spec", "status") if key in update}
        graph["metadata"] = {**graph["metadata"], **update["metadata"]}
        seen = Observation(live=(graph,), pods=(), events=())
        status = graph.get("status") or {}
        conditions = [c for c in status.get("conditions") or () if c["type"] == "Ready"]
        is_ready = any(
            c["status"] == "True" and c["observedGeneration"] == graph["metadata"]["generation"]
            for c in conditions
        )
        is_done = progress_of([graph], seen).is_done
        assert not is_done or is_ready, event["t"]
        done.append(is_done)
    assert not done[0]
    assert any(done)


def test_11_helm_alone_cannot_hand_replicas_to_an_adapter(installed: Cluster) -> None:
    """The operator's webhook refuses, because Helm leaves the number out."""
    values = yaml.safe_load(installed.graph.read_text())
    values["prefill"] = {**values["prefill"], **EXTERNAL}
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=installed.kubeconfig)
    with pytest.raises(HelmError, match="cannot be modified directly when scaling adapter"):
        helm_writer.write("upgrade", target, chart=chart_path(), values=values)


# The fourth, a port of a NetworkPolicy without a protocol, is not in the chart.
OF_ATOMIC_FIELDS = {"fieldRef", "volumeClaimTemplates", "podMetricsEndpoints"}


def test_12_another_manager_of_atomic_fields_does_not_stop_an_apply(fresh: Cluster) -> None:
    """As recorded: what the manifest says and what the API server made of it conflict."""
    monitored = {"monitoring": {"pod_monitors": True}, "network_policy": {"enabled": True}}
    install_plain(fresh, cluster=monitored)
    manifests = yaml.safe_load_all(helm_manifest(fresh))
    by_name = {(m["kind"], m["metadata"]["name"]): m for m in manifests if m}
    conflicting = set()
    for manifest in by_name.values():
        url = url_of(fresh, manifest)
        taken = server_side_apply(url, manifest, force=False)
        if taken.status_code == 409:
            message = taken.json()["message"]
            conflicting |= {name for name in OF_ATOMIC_FIELDS if name in message}
            assert server_side_apply(url, manifest, force=True).status_code == 200
    assert conflicting == OF_ATOMIC_FIELDS
    fresh.edit(decode={"replicas": 2})
    fresh.expect(0, "apply", "--yes")
    assert fresh.run("diff")[0] == 0


def helm_manifest(cluster: Cluster) -> str:
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=cluster.kubeconfig)
    record = helm.release(target)
    assert record is not None
    return str(record["manifest"])


def url_of(cluster: Cluster, manifest: Object) -> str:
    plural = next(
        key[1]
        for key, o in cluster.api.store.objects.items()
        if o["kind"] == manifest["kind"] and key[3] == manifest["metadata"]["name"]
    )
    version = manifest["apiVersion"]
    root = f"apis/{version}" if "/" in version else f"api/{version}"
    name = manifest["metadata"]["name"]
    return f"{cluster.api.url}/{root}/namespaces/default/{plural}/{name}"


def server_side_apply(url: str, manifest: Object, *, force: bool) -> httpx.Response:
    return httpx.patch(
        f"{url}?fieldManager=kubectl&force={str(force).lower()}",
        json=manifest,
        headers={"Content-Type": "application/apply-patch+yaml"},
        trust_env=False,
    )
