"""Edits on the cluster: `diff` shows every one, and `apply` undoes it.

`KUBECONFIG=… uv run pytest tests/kubernetes/cluster/test_edits.py -m cluster` does the same on a
real cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster.ownership import added_paths
from tests.support.emulated_cluster.site import OPTIONS, OnSite, Site

MONITOR = "apis/monitoring.coreos.com/v1/podmonitors/contract-decode"
NETWORK = "apis/networking.k8s.io/v1/networkpolicies/contract"
SERVICE, DECODE = "api/v1/services/contract-frontend", "apis/apps/v1/deployments/contract-decode"
ETCD, PEERS = "apis/apps/v1/statefulsets/contract-etcd", "api/v1/services/contract-etcd-peers"
CLIENT = "api/v1/services/contract-etcd"
BUDGET = "apis/policy/v1/poddisruptionbudgets/contract-prefill"
GRAPH = "apis/nvidia.com/v1beta1/dynamographdeployments/contract"
POD = "/spec/template/spec/containers/0"
# (object, JSON patch, what `diff` prints of it)
Edit = tuple[str, list[dict[str, Any]], str]


def change(path: str, place: str, value: Any, text: str, op: str = "replace") -> Edit:
    return path, [{"op": op, "path": place, "value": value}], text


EVERYWHERE: list[Edit] = [
    change(
        BUDGET,
        "/spec/unhealthyPodEvictionPolicy",
        "IfHealthyBudget",
        "spec.unhealthyPodEvictionPolicy AlwaysAllow → IfHealthyBudget",
    )
]
MONITORED: list[Edit] = [
    change(MONITOR, "/spec/podMetricsEndpoints", [], "spec.podMetricsEndpoints")
]
GUARDED: list[Edit] = [
    change(NETWORK, "/spec/ingress", [{}], "NetworkPolicy contract: spec.ingress")
]
ON_PLAIN: list[Edit] = [
    change(SERVICE, "/spec/selector", {"app": "gone"}, "spec.selector"),
    change(SERVICE, "/spec/type", "LoadBalancer", "spec.type unset → LoadBalancer"),
    change(PEERS, "/spec/ports/0/port", 9999, "Service contract-etcd-peers: spec.ports"),
    # An apply alone would add the old port to it, with the same name.
    change(CLIENT, "/spec/ports/0/port", 9999, "Service contract-etcd: spec.ports"),
    change(ETCD, "/spec/replicas", 0, "spec.replicas 1 → 0"),
    change(
        DECODE,
        "/spec/strategy/rollingUpdate/maxUnavailable",
        "100%",
        "spec.strategy.rollingUpdate.maxUnavailable",
    ),
    change(DECODE, "/spec/minReadySeconds", 77, "spec.minReadySeconds", "add"),
    change(DECODE, f"{POD}/args/-", "--extra", "decode: args.--extra unset → true", "add"),
    change(
        DECODE,
        f"{POD}/env/-",
        {"name": "FOO", "value": "bar"},
        "decode: env.FOO unset → bar since the release, by kubectl-edit",
        "add",
    ),
    change(
        DECODE,
        "/spec/template/spec/tolerations",
        [{"operator": "Exists"}],
        "decode: pod.tolerations",
        "add",
    ),
]
COMPONENT = "/spec/components/2/podTemplate/spec/containers/0"
ON_OPERATOR: list[Edit] = [
    change(GRAPH, f"{COMPONENT}/args/-", "--extra", "decode: args.--extra unset → true", "add"),
    change(
        GRAPH,
        f"{COMPONENT}/env/-",
        {"name": "FOO", "value": "bar"},
        "decode: env.FOO unset → bar since the release, by kubectl-edit",
        "add",
    ),
    change(GRAPH, "/spec/components/1/sharedMemorySize", "3Gi", "prefill: sharedMemorySize", "add"),
]
CASES = [
    pytest.param("plain", id="plain"),
    pytest.param("dynamo", id="dynamo"),
    pytest.param("real", id="real", marks=pytest.mark.cluster),
]


@pytest.fixture(params=CASES)
def site(request: pytest.FixtureRequest, on_site: OnSite) -> Iterator[Site]:
    """The installed quickstart, with monitors and a network policy where the cluster has them."""
    is_real = request.param == "real"
    cluster = {
        key: value
        for key, value in OPTIONS["cluster"].items()
        if key != "monitoring" or not is_real
    }
    options = {"cluster": cluster}
    with on_site(request.param, options) as site:
        site.expect(0, "apply", "--yes")
        yield site


def edits_of(site: Site) -> list[Edit]:
    has_monitors = "pod_monitors" in site.graph.read_text()
    edits = [*EVERYWHERE, *GUARDED, *(MONITORED if has_monitors else [])]
    return [*edits, *(ON_PLAIN if site.is_plain else ON_OPERATOR)]


def content(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a client sets of an object."""
    rest = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return {**rest, "labels": manifest["metadata"].get("labels")}


def test_every_edit_is_seen_and_undone(site: Site) -> None:
    edits = edits_of(site)
    before = {path: content(site.read(path)) for path, _, _ in edits}
    for path, operations, text in edits:
        site.patch(path, operations, "kubectl-edit")
        output = site.expect(EXIT_CHANGED, "diff")
        assert text in output
        assert "rejected" not in output
    site.expect(0, "apply", "--yes")
    assert {path: content(site.read(path)) for path in before} == before
    assert site.run("diff")[0] == 0


def test_what_controllers_and_other_tools_write_is_no_drift(site: Site) -> None:
    annotation = {"op": "add", "path": "/metadata/annotations/example.com~1seen", "value": "yes"}
    path = DECODE if site.is_plain else GRAPH
    site.patch(path, [annotation], "some-tool")
    if site.is_plain:
        restart = {"kubectl.kubernetes.io/restartedAt": "2026-11-29T00:00:00Z"}
        place = "/spec/template/metadata/annotations"
        known = site.read(path)["spec"]["template"]["metadata"].get("annotations") or {}
        operation = {"op": "add", "path": place, "value": {**known, **restart}}
        site.patch(path, [operation], "kubectl-rollout")
    site.expect(0, "diff")


def entry(manager: str, time: str, *names: str) -> dict[str, Any]:
    fields = {"f:spec": {f"f:{name}": {} for name in names}}
    return {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": fields}


def owned(manager: str, operation: str, version: str = "v1", **fields: Any) -> dict[str, Any]:
    entry = {"manager": manager, "operation": operation, "apiVersion": version}
    return {**entry, "fieldsV1": {f"f:{name}": inner for name, inner in fields.items()}}


OF_HELM = owned("helm", "Apply", spec={"f:ports": {}})


@pytest.mark.parametrize(
    ("entries", "count"),
    [
        ([OF_HELM, owned("kubectl-edit", "Update", spec={"f:type": {}})], 1),
        ([OF_HELM, owned("kubectl-rollout", "Update", spec={"f:paused": {}})], 1),
        # Whatever may be a controller: the pull secrets that OpenShift gives a ServiceAccount.
        ([OF_HELM, owned("openshift.io/pull-secrets", "Apply", imagePullSecrets={})], 0),
        ([OF_HELM, owned("kueue", "Update", spec={"f:suspend": {}})], 0),
        # A claim keeps its volume, and an object that Helm did not apply all of its fields.
        ([OF_HELM, owned("kubectl-patch", "Update", spec={"f:volumeName": {}})], 0),
        ([owned("kubectl-create", "Update", spec={"f:type": {}})], 0),
        # The paths of another version are those of another schema.
        ([OF_HELM, owned("kubectl-edit", "Update", "v1alpha1", spec={"f:services": {}})], 0),
    ],
)
def test_only_additions_by_kubectl_are_undone(entries: list[dict[str, Any]], count: int) -> None:
    manifest = {"apiVersion": "v1", "metadata": {"managedFields": entries}}
    assert len(added_paths(manifest, "helm")) == count
