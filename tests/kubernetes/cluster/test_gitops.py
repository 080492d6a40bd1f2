"""A graph that a GitOps controller installed from the chart, without Helm's records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster.api import Api
from penstock.cluster.ownership import LAST_APPLIED
from penstock.cluster.release import helm_annotations
from penstock.cluster.workloads import INSTANCE
from penstock.errors import ClusterError, UsageError
from penstock.helm import ReleaseTarget
from penstock.manifests.source import open_source, render_graph
from tests.kubernetes.cluster.test_reverts import STEPS, has_no_old_decode
from tests.support.emulated_cluster.released import Cluster
from tests.support.emulated_cluster.site import OnSite, Site

ARGO_CD = "argocd-controller"
CASES = ["plain", "dynamo", pytest.param("real", marks=pytest.mark.cluster)]


def sync(cluster: Cluster | Site, *, server_side: bool = True) -> None:
    """Apply what the chart renders, as Argo CD does.

    ``server_side``: with the option ServerSideApply; without it Argo CD applies as kubectl does.
    """
    namespace = cluster.namespace or "default"
    loaded = open_source(cluster.graph, (), namespace).loaded
    assert loaded is not None
    name = cluster.graph.stem
    objects = render_graph(loaded, namespace, name=name).objects
    target = ReleaseTarget(name=name, namespace=namespace, kubeconfig=cluster.kubeconfig)
    api = Api.connect(target)
    for manifest in objects:
        if server_side:
            api.apply(manifest, ARGO_CD)
            continue
        note = {LAST_APPLIED: json.dumps(manifest)}
        metadata = manifest["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **note}
        annotated = {**manifest, "metadata": {**metadata, "annotations": annotations}}
        path = api._path(manifest).rpartition("/")[0]
        api._call("POST", path, {"fieldManager": ARGO_CD}, annotated, "application/json")


@pytest.fixture(params=CASES)
def site(request: pytest.FixtureRequest, on_site: OnSite) -> Iterator[Site]:
    with on_site(request.param) as site:
        yield site


def wait_until_ready(site: Site) -> str:
    deadline = site.clock.now() + 60
    while (status := site.run("status", "--cluster"))[0] != 0:
        assert site.clock.now() < deadline, status
        site.clock.sleep(site.every_s)
    return status[1]


def pods(site: Site) -> set[str]:
    return {p["metadata"]["uid"] for name in ("prefill", "decode") for p in site.pods(name)}


@pytest.mark.parametrize("server_side", [True, False], ids=["server-side", "client-side"])
def test_it_is_read_and_changed_only_on_request(site: Site, server_side: bool) -> None:
    sync(site, server_side=server_side)
    assert f"applied by {ARGO_CD} without a record of Helm" in wait_until_ready(site)
    status = json.loads(site.run("status", "--cluster", "--json")[1])
    assert (status["revision"], status["ready"]) == (None, True)
    assert f"applied by {ARGO_CD}" in site.expect(0, "history")
    code, output = site.run("diff")
    assert output.splitlines()[1:] == ["  no changes"], output
    assert code == 0

    site.edit(decode={"replicas": 2})
    output = site.expect(EXIT_CHANGED, "diff")
    assert "decode: scaled 1 → 2, without restart" in output
    assert output.count("created") == 1  # the disruption budget of two replicas
    serving = pods(site)
    code, output = site.apply()
    assert code == ClusterError.exit_code
    assert f"was applied by {ARGO_CD} without a record of Helm" in output
    assert "--adopt" in output
    for verb in (("rollback",), ("scale", "--cluster", "decode=2"), ("uninstall",)):
        assert "Argo CD" in site.expect(ClusterError, *verb, "--yes")
    assert site.replicas()["decode"] == 1

    assert site.apply("--adopt", "--rollback-on-failure")[0] == UsageError.exit_code
    assert "revision 1 is ready" in site.expect(0, "apply", "--yes", "--adopt")
    assert site.replicas()["decode"] == 2
    assert serving <= pods(site)
    assert site.run("diff")[0] == 0
    site.edit(decode={"replicas": 1})
    assert "revision 2 is ready" in site.expect(0, "apply", "--yes")
    site.expect(0, "uninstall", "--yes")


def test_an_edit_of_another_client_is_drift(site: Site) -> None:
    sync(site)
    wait_until_ready(site)
    site.patch(
        "apis/policy/v1/poddisruptionbudgets/contract-prefill",
        [{"op": "replace", "path": "/spec/unhealthyPodEvictionPolicy", "value": "IfHealthyBudget"}],
        "kubectl-edit",
    )
    output = site.expect(EXIT_CHANGED, "diff")
    assert "PodDisruptionBudget contract-prefill: spec.unhealthyPod" in output


def test_no_graph_is_found_by_its_name_alone(site: Site) -> None:
    """Objects of the same names that the chart did not make."""
    assert "is not installed with Helm" in site.expect(ClusterError, "history")


def test_what_belongs_to_another_release_is_not_adopted(site: Site) -> None:
    """Helm would refuse it in the middle of its write."""
    sync(site)
    wait_until_ready(site)
    site.edit(decode={"replicas": 2})  # which adds a disruption budget
    site.create(
        "apis/policy/v1/poddisruptionbudgets",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "contract-decode", "labels": {INSTANCE: "other"}},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "other"}}},
        },
    )
    message = "contract-decode: exists already and belongs to other, not to contract"
    assert f"not possible: PodDisruptionBudget {site.namespace}/{message}" in site.run("diff")[1]
    assert message in site.expect(ClusterError, "apply", "--yes", "--adopt")
    budget = site.read("apis/policy/v1/poddisruptionbudgets/contract-prefill")
    assert "meta.helm.sh/release-name" not in (budget["metadata"].get("annotations") or {})


@pytest.mark.parametrize("by", ["adoption", "helm"])
def test_annotations_of_helm_do_not_hide_a_graph(site: Site, by: str) -> None:
    """An adoption failed after it had set them, or Helm's records were deleted."""
    if by == "helm":
        assert site.apply()[0] == 0
        for secret in site.core.list_namespaced_secret(site.namespace).items:
            site.core.delete_namespaced_secret(secret.metadata.name, site.namespace)
    sync(site)
    wait_until_ready(site)
    target = ReleaseTarget(name="contract", namespace=site.namespace, kubeconfig=site.kubeconfig)
    api = Api.connect(target)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    named = {**budget, "metadata": {"name": "contract-prefill"}}
    api.annotate(named, helm_annotations(target))
    assert "without a record of Helm" in site.run("status", "--cluster")[1]
    assert site.run("diff")[0] == 0
    serving = pods(site)
    assert "--adopt" in site.expect(ClusterError, "apply", "--yes")
    site.expect(0, "apply", "--yes", "--adopt")
    assert pods(site) == serving
    assert site.run("diff")[0] == 0


@pytest.fixture
def synced(fresh: Cluster) -> Cluster:
    """Three prefill and two decode workers, whose update has replaced decode but not prefill."""
    fresh.operator.machine.steps_to_ready = lambda args: 10**6 if "--slow" in args else STEPS
    fresh.edit(prefill={"replicas": 3}, decode={"replicas": 2})
    sync(fresh)
    fresh.wait_until(lambda: fresh.run("status", "--cluster")[0] == 0)
    return fresh


@pytest.mark.parametrize("renews", [False, True], ids=["same-content", "renewed-annotation"])
def test_a_revert_in_git_needs_a_renewed_annotation(synced: Cluster, renews: bool) -> None:
    """The procedure of docs/cluster.md."""
    before = synced.graph.read_text()
    synced.edit(prefill={"config": {"engine": {"block_size": 64}}})
    sync(synced)
    synced.wait_until(lambda: has_no_old_decode(synced))
    since = len(synced.operator.serving)
    synced.graph.write_text(before)
    output = synced.expect(EXIT_CHANGED, "diff")
    assert "would leave prefill with 1 of 3 and decode with 0 of 2 workers" in output
    assert f"rollout: {ARGO_CD} would do so, unless the commit also sets an annotation" in output
    if renews:
        for pool in ("prefill", "decode"):
            synced.edit(**{pool: {"annotations": {"example.com/revert": "1"}}})
    sync(synced)
    synced.wait_until(lambda: synced.run("status", "--cluster")[0] == 0)
    lowest = {name: synced.operator.lowest(name, since) for name in ("prefill", "decode")}
    assert lowest == ({"prefill": 3, "decode": 2} if renews else {"prefill": 1, "decode": 0})
