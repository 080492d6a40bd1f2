"""Responses of a real API server and operator that penstock used to misread.

Each test is named after an item of "Does not" in ../shared/facts/real-cluster.md.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml

from penstock import helm
from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster.api import Api
from penstock.cluster.diagnose import diagnose
from penstock.cluster.progress import Observation, OwnObjects, baseline, observe, progress_of
from penstock.cluster.release import require_release
from penstock.errors import ClusterError, RolloutError
from penstock.helm import ReleaseTarget
from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.emulated_cluster.kubelet import warning
from tests.support.emulated_cluster.operator import COMPONENT
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.emulated_cluster.store import ApiError, Object

EVENT = ("v1", "events", "default", "event")
REFUSALS = (
    "quota-pods",
    "quota-gpus",
    "quota-needs-requests",
    "limit-range",
    "podsecurity-restricted",
    "podsecurity-baseline",
    "service-account-missing",
)


def recorded_events(name: str) -> list[Object]:
    return list(json.loads((RECORDINGS / "errors" / f"{name}.json").read_text())["events"])


def warnings(events: list[Object]) -> list[Object]:
    return [event for event in events if event["type"] == "Warning"]


def test_5_a_config_map_outside_the_record_is_no_drift(installed: Cluster) -> None:
    """The write of the graph fails: its pods keep the ConfigMaps of the revision before."""

    error = ApiError(500, "InternalError", "the server is restarting")
    installed.api.refuse(f"/{NAME}$", error, "PATCH", of_dry_runs=False)
    installed.edit(prefill={"config": {"engine": {"block_size": 64}}})
    assert installed.apply()[0] == ClusterError.exit_code
    installed.api.gate = lambda _: None
    output = installed.expect(EXIT_CHANGED, "diff")
    assert "drift: prefill: config.engine.block_size 64 → unset since the release" in output
    assert "backend" not in output  # the file of the revision before is read


def test_5_a_deleted_config_map_restarts_nothing(installed: Cluster) -> None:
    store = installed.api.store
    (key,) = [k for k in store.objects if k[1] == "configmaps" and "prefill" in k[3]]
    store.remove(key)
    pods = {p["metadata"]["name"] for p in store.of_kind("Pod")}
    output = installed.expect(EXIT_CHANGED, "diff")
    assert f"drift: ConfigMap {key[3]}: deleted since the release" in output
    assert "restart" not in output
    assert installed.apply()[0] == 0
    assert key in store.objects
    assert pods == {p["metadata"]["name"] for p in store.of_kind("Pod")}
    assert installed.run("diff")[0] == 0


def test_6_update_conflicts_of_the_operator_are_no_problem() -> None:
    text = 'Operation cannot be fulfilled on deployments.apps "x": the object has been modified; '
    conflict = event("ReconcileError", f"{text}please apply your changes to the latest version")
    trouble = event("ReconcileError", "(combined from similar events): no such claim")
    (diagnosis,) = diagnose([], [conflict, trouble])
    assert diagnosis.message == "no such claim"


def event(reason: str, message: str) -> Object:
    about = {"kind": "DynamoComponentDeployment", "name": f"{NAME}-decode"}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}


def test_6_warnings_from_before_the_change_are_not_shown(installed: Cluster) -> None:
    old = warning(installed.live(), "Old", "from yesterday")
    installed.api.store.write(EVENT, {**old, "count": 1})
    installed.edit(decode={"replicas": 2})
    assert "from yesterday" not in installed.expect(0, "apply", "--yes")


@pytest.mark.parametrize("repeated", [{"series": {"count": 2}}, {"count": 2}])
def test_6_a_further_occurrence_of_an_old_warning_is_new(
    installed: Cluster, repeated: Object
) -> None:
    old = warning(installed.live(), "Failed", "again")
    installed.api.store.write(EVENT, old)
    target = ReleaseTarget(name=NAME, namespace="default", kubeconfig=installed.kubeconfig)
    api, release = Api.connect(target), require_release(target)
    before, owned = baseline(api, target), OwnObjects(api, target)
    assert observe(owned, release, before).events == ()
    installed.api.store.write(EVENT, old | repeated)
    (event,) = observe(owned, release, before).events
    assert event["message"] == "again"


@pytest.mark.needs("recordings")
@pytest.mark.parametrize("name", REFUSALS)
def test_7_a_refused_pod_is_one_final_problem(name: str) -> None:
    diagnoses = diagnose([], warnings(recorded_events(name)))
    assert [(d.problem, d.is_permanent) for d in diagnoses] == [("pods cannot be created", True)]
    assert "Error creating" not in diagnoses[0].message
    assert '"app-' not in diagnoses[0].message  # the name of a pod that never existed


@pytest.mark.needs("recordings")
def test_7_a_refused_pod_ends_the_wait(installed: Cluster) -> None:
    recorded = warnings(recorded_events("podsecurity-restricted"))[0]
    owner = next(
        replica_set
        for replica_set in installed.api.store.of_kind("ReplicaSet")
        if replica_set["metadata"]["labels"][COMPONENT] == "decode"
    )

    def refuse(new: Object, _: object) -> None:
        """Once the graph is written, its new pods are refused."""
        is_dry_run = "dryRun" in installed.api.requests[-1]
        if (
            not is_dry_run
            and "--slow" in json.dumps(new)
            and new.get("kind") == "DynamoGraphDeployment"
        ):
            refused = warning(owner, recorded["reason"], recorded["message"])
            installed.api.store.write(EVENT, refused, trusted=True)

    installed.api.store.admission.append(refuse)
    installed.edit(decode={"args": ["--slow"]})
    output = installed.expect(RolloutError, "apply", "--yes", "--skip-check")
    assert 'pods cannot be created: violates PodSecurity "restricted:latest"' in output


def test_8_a_webhook_that_does_not_respond_is_explained(installed: Cluster) -> None:
    text = (
        "Internal error occurred: failed calling webhook "
        '"mdynamographdeployment.kb.io": connection refused'
    )

    installed.api.refuse("nvidia.com", ApiError(500, "InternalError", text), "PATCH")
    installed.edit(decode={"replicas": 2})
    output = installed.expect(ClusterError, "apply", "--yes")
    assert "failed calling webhook" in output
    assert "Check that the pods behind this webhook run, such as the Dynamo operator's." in output


def test_8_an_uninstall_without_the_operator_names_the_finalizer(installed: Cluster) -> None:
    installed.operator.stop()
    for _ in range(2):  # Helm's record is gone at the second time
        output = installed.expect(ClusterError, "uninstall", "--yes")
        assert f"DynamoGraphDeployment default/{NAME}: its deletion was requested" in output
        assert "finalizers: nvidia.com/finalizer" in output
        assert f"{NAME} is uninstalled" not in output


OF_DYNAMO = [
    p.stem
    for p in sorted((RECORDINGS / "rollouts").glob("*.jsonl"))
    if not p.stem.startswith("plain-")
]


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
