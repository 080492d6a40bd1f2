"""Pods that the namespace's policies refuse: `diff` and `apply` say it before anything is written.

The first tests repeat the recorded refusals; the emulator gives the recorded bodies.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster.diff import diff
from penstock.cluster.workloads import pod_templates
from penstock.errors import CheckError, ClusterError
from penstock.manifests.render import render
from tests.support.charts import ROOT
from tests.support.emulated_cluster.policies import ENFORCE
from tests.support.emulated_cluster.released import NAME, Cluster
from tests.support.emulated_cluster.store import ApiError, Object

FIX = "Fix: Change the graph (cluster.security, resources) or the namespace's policy, quota"
SECURITY = 'violates PodSecurity "restricted:latest": '


def refused(cluster: Cluster, *texts: str) -> None:
    """`diff` and `apply` both give the texts, and nothing is written."""
    version = cluster.api.store.version
    output = cluster.expect(EXIT_CHANGED, "diff")
    for text in (*texts, FIX):
        assert text in output
    output = cluster.expect(ClusterError, "apply", "--yes", "--skip-check")
    for text in (*texts, FIX):
        assert text in output
    assert cluster.api.store.version == version


def create(cluster: Cluster, kind: str, spec: Object) -> None:
    key = ("v1", f"{kind.lower()}s", "default", "few")
    cluster.api.store.write(key, {"apiVersion": "v1", "kind": kind, "metadata": {}, "spec": spec})


def enforce(cluster: Cluster, level: str) -> None:
    key = ("v1", "namespaces", "", "default")
    cluster.api.store.objects[key]["metadata"]["labels"] = {ENFORCE: level}


# What the namespace has, the graph, and the reason of the refusal.
REFUSALS: list[tuple[str, Object, Object, str]] = [
    (
        "ResourceQuota",
        {"hard": {"pods": "0"}},
        {},
        "exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0",
    ),
    (
        "ResourceQuota",
        {"hard": {"requests.nvidia.com/gpu": "1"}},
        {"decode": {"gpus": 2}},
        "exceeded quota: few, requested: requests.nvidia.com/gpu=2, used: "
        "requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1",
    ),
    (
        "ResourceQuota",
        {"hard": {"limits.memory": "64Gi"}},
        {},
        "failed quota: few: must specify limits.memory for: main",
    ),
    (
        "LimitRange",
        {"limits": [{"type": "Container", "max": {"memory": "512Mi"}}]},
        {"frontend": {"resources": {"memory": "1Gi"}}},
        "pods of frontend: maximum memory usage per Container is 512Mi, but limit is 1Gi",
    ),
    (
        "",
        {},
        {"cluster": {"service_account": "nothing"}},
        'error looking up service account default/nothing: serviceaccount "nothing" not found',
    ),
]


@pytest.mark.parametrize(("kind", "spec", "sections", "reason"), REFUSALS)
def test_7_pods_that_the_namespace_refuses(
    fresh: Cluster, kind: str, spec: Object, sections: Object, reason: str
) -> None:
    if kind:
        create(fresh, kind, spec)
    fresh.edit(**sections)
    refused(fresh, reason)


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
def test_7_a_restricted_namespace_refuses_only_pods_with_the_images_security(
    fresh: Cluster, platform: str
) -> None:
    enforce(fresh, "restricted")
    fresh.edit(platform=platform)
    assert "rejected" not in fresh.expect(EXIT_CHANGED, "diff")
    fresh.edit(cluster={"security": "image"})
    pods = "rejected by the API server: pods of frontend and 2 more: " * (platform == "dynamo")
    refused(
        fresh,
        f"{pods}{SECURITY}",
        'must set securityContext.capabilities.drop=["ALL"]',
        "runAsNonRoot != true",
    )


def test_7_rdma_needs_a_namespace_that_is_not_restricted(fresh: Cluster) -> None:
    """Item 7: RDMA pods are root with IPC_LOCK."""
    graph = ROOT / "dynamo_graphs" / "gpt-oss-120b-h200-disagg.yaml"
    fresh.graph.write_text(graph.read_text())
    for level, text in {
        "restricted": f"{SECURITY}",
        "baseline": 'violates PodSecurity "baseline:latest": non-default capabilities (container '
        '"main" must not include "IPC_LOCK" in securityContext.capabilities.add)',
    }.items():
        enforce(fresh, level)
        refused(fresh, "pods of prefill", text)
    enforce(fresh, "privileged")
    assert "rejected" not in fresh.run("diff")[1]


def test_a_namespace_from_a_moment_ago_refuses_nothing(fresh: Cluster) -> None:
    """Seen on a real API server: its account `default` does not exist yet."""
    text = 'error looking up service account default/default: serviceaccount "default" not found'

    fresh.api.refuse("/pods$", ApiError(403, "Forbidden", f'pods "x" is forbidden: {text}'), "POST")
    assert "not found" not in fresh.expect(0, "apply", "--yes")


def test_7_the_releases_own_service_account_is_no_problem(fresh: Cluster) -> None:
    """With platform plain the chart creates it, and it does not exist in a dry run."""
    fresh.edit(platform="plain")
    values = yaml.safe_load(fresh.graph.read_text())
    objects = render(values, name=NAME).objects
    (account,) = (o["metadata"]["name"] for o in objects if o["kind"] == "ServiceAccount")
    used = {t["spec"].get("serviceAccountName") for _, t in pod_templates(objects)}
    assert account in used
    assert "rejected" not in fresh.expect(EXIT_CHANGED, "diff")


def test_7_users_who_may_not_create_pods_can_apply(fresh: Cluster) -> None:
    text = 'pods is forbidden: User "ci" cannot create resource "pods" in API group ""'

    fresh.api.refuse("/pods$", ApiError(403, "Forbidden", text), "POST")
    output = fresh.run("diff")[1]
    assert "pods were not checked: Pod default/" in output
    assert text in output
    fresh.expect(0, "apply", "--yes")


def test_7_pods_that_already_run_are_not_checked(installed: Cluster) -> None:
    """A full quota is no problem for a graph that does not change."""
    create(installed, "ResourceQuota", {"hard": {"pods": "4"}})
    installed.expect(0, "diff")
    installed.edit(decode={"replicas": 2})
    refused(installed, "pods of decode: exceeded quota: few")
    installed.edit(decode={"replicas": 1}, frontend={"replicas": 1, "env": {"A": "1"}})
    refused(installed, "pods of frontend: exceeded quota: few")  # surge: one more pod


# ---- item 14: what the operator's webhook accepts ----


def manifest_of(edit: Any) -> str:
    values = yaml.safe_load((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    objects = json.loads(json.dumps(render(values, name="quick").objects))
    (graph,) = (o for o in objects if o["kind"] == "DynamoGraphDeployment")
    edit(graph)
    return yaml.safe_dump_all(objects)


def component(graph: Object, name: str) -> Object:
    return next(c for c in graph["spec"]["components"] if c["name"] == name)


def two_frontends(graph: Object) -> None:
    second = copy.deepcopy(component(graph, "frontend"))
    graph["spec"]["components"].append({**second, "name": "second"})


def without_type(graph: Object) -> None:
    del component(graph, "decode")["type"]


def long_name(graph: Object) -> None:
    graph["metadata"]["name"] = "q" * 60


@pytest.mark.parametrize(
    ("edit", "rule", "text"),
    [
        (two_frontends, "PS774", "the deployment has 2 frontends: frontend, second"),
        (without_type, "PS773", "the component has no type, but runs a decode"),
        (long_name, "PS751", "has 69 characters; the limit is 63"),
    ],
)
def test_14_check_finds_what_the_webhook_accepts(
    edit: Any, rule: str, text: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(manifest_of(edit))
    assert cli.main(["check", "--strict", str(file)]) == CheckError.exit_code
    output = capsys.readouterr().out
    assert f" {rule} " in output
    assert text in output


def test_14_a_long_name_of_a_release_is_refused(fresh: Cluster) -> None:
    code, output = fresh.run("diff", "--release", "q" * 60)
    assert code not in (0, 2)
    assert "is not a valid release name" in output


def test_14_diff_rejects_a_change_from_decode_to_prefill(installed: Cluster) -> None:
    live = json.loads(json.dumps(installed.live()))
    after = json.loads(json.dumps(live))
    component(after, "decode")["type"] = "prefill"
    (rejected,) = diff([live], [after]).rejected
    assert str(rejected) == "decode: type decode → prefill: cannot be changed in place"
    assert "second release" in rejected.fix


# ---- the recorded refusals ----
