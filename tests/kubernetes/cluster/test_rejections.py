"""Every rejection that a real API server gave, injected while a release is changed.

The recorded response replaces the emulated one for the requests of penstock and Helm that it fits.
What must hold: the reason reaches the user with a fix, the command ends at once, nothing is written
if a dry run can know it, and the change can be applied when the cause is gone.
`benchmarks/cluster_before.py` runs the same tests on the code before issue 17.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import ClusterError, RolloutError
from tests.kubernetes.cluster.test_recordings import RECORDINGS
from tests.support.charts import ROOT
from tests.support.emulated_cluster.rejections import Rejection, rejections
from tests.support.emulated_cluster.released import Cluster

Object = dict[str, Any]
Matcher = Callable[[str, str, str], bool]  # of (method, path, query)

CHANGE = {"config": {"engine": {"block_size": 64}}}
SOON_S = 90.0  # a permanent problem ends a rollout after 60 s; it times out after an hour
DGD, KIND, LOGS = "422-dynamographdeployment", "4xx-other-kinds", "logs-and-proxy"
NOT_SENT = "neither penstock nor Helm sends such a request"
ANSWER = "an object that does not exist is an answer and not an error"
OF_DRILL = "only `penstock drill --cluster` sends it: tests/drill"
# Rejections that a change of a release cannot meet.
NEVER: Mapping[tuple[str, str], str] = {
    ("403", "list nodes"): OF_DRILL,
    ("403", "delete a pod"): OF_DRILL,
    ("429", "eviction that a PodDisruptionBudget does not allow"): OF_DRILL,
    ("403", "list pods in another namespace"): NOT_SENT,
    ("403", "create a namespace"): NOT_SENT,
    ("403", "patch the scale of a Deployment"): NOT_SENT,
    ("403", "watch Secrets"): NOT_SENT,
    ("403", "list a kind that does not exist, without rights"): NOT_SENT,
    ("404", "a resource that the group does not have"): NOT_SENT,
    ("404", "an object that is not there (built-in)"): ANSWER,
    ("404", "an object that is not there (custom resource)"): ANSWER,
    ("404", "delete of what is not there"): ANSWER,
    ("404", "scale of what is not there"): NOT_SENT,
    ("404", "PUT of a custom resource that is not there"): NOT_SENT,
    ("409", "delete with another uid as precondition"): NOT_SENT,
    ("410-and-watches", "list exactly at a resourceVersion that is compacted"): NOT_SENT,
    ("410-and-watches", "list at a resourceVersion of the future"): NOT_SENT,
    ("410-and-watches", "list with a continue value that is none"): NOT_SENT,
    ("410-and-watches", "watch with a resourceVersion that is no number"): NOT_SENT,
    (DGD, "DGD: scale subresource, which it does not have"): NOT_SENT,
    (DGD, "DGD: merge patch of status"): NOT_SENT,
    (DGD, "scaling adapter: negative replicas"): NOT_SENT,
    ("429", "the same for a watch"): NOT_SENT,
    (KIND, "Job: another template"): "no Job of the chart is changed in place",
    (KIND, "RoleBinding: another roleRef"): "the name of the chart's Role does not change",
    (KIND, "body that is no JSON"): NOT_SENT,
    (KIND, "kind that does not fit the path"): NOT_SENT,
    (KIND, "media type of no patch"): NOT_SENT,
    (KIND, "strategic merge patch of a custom resource"): NOT_SENT,
    (KIND, "method that the path does not have"): NOT_SENT,
    (KIND, "dryRun with a wrong value"): NOT_SENT,
    (KIND, "fieldValidation with a wrong value"): NOT_SENT,
    (KIND, "apply of what is no YAML"): NOT_SENT,
    (KIND, "field selector that pods do not have"): NOT_SENT,
    (KIND, "label selector that cannot be read"): NOT_SENT,
    ("selfsubjectaccessreview", "may, without attributes"): NOT_SENT,
}
# With a dry run the API server answers as recorded; these it gives only to a write.
ONLY_WRITES = {
    ("409", "create again: already exists"),
    ("409", "update with an old resourceVersion"),
    ("409", "server-side apply against another manager"),
    ("409", "JSON patch whose test fails"),
    ("404", "merge patch of what is not there"),
}
ALL = [*rejections(RECORDINGS / "errors")]
SENT = [r for r in ALL if (r.file, r.what) not in NEVER]
pytestmark = pytest.mark.needs("recordings")


# CI injects these; `make nightly` and the benchmark inject all.
IN_CI = {
    ("401-and-anonymous", "a token that nobody issued"),
    ("403", "apply a DynamoGraphDeployment as dry run"),
    ("404", "discovery of a group that is not there"),
    ("409", "server-side apply against another manager"),
    (DGD, "DGD: an update takes a component away"),
    ("429", "list pods, with no concurrency left for this user (API priority and fairness)"),
    (KIND, "PersistentVolumeClaim: smaller"),
    (
        "500-webhook-unavailable",
        "apply of a DynamoGraphDeployment while its webhooks cannot be reached",
    ),
    ("namespace-terminating", "apply in a namespace that is being deleted"),
    ("quota-pods", "podDirectly"),
    (LOGS, "proxy to a pod that is not scheduled"),
}


def kinds(rejections: list[Rejection]) -> list[Any]:
    return [
        pytest.param(
            r,
            id=f"{r.file}: {r.what}",
            marks=[] if (r.file, r.what) in IN_CI else [pytest.mark.nightly],
        )
        for r in rejections
    ]


OF_PODS = [r for r in SENT if r.plural == "pods" and r.method == "POST"]
OF_LOGS = [r for r in SENT if r.plural in ("pods/log", "pods/proxy")]
OF_WRITES = [r for r in SENT if r.method != "GET" and r not in OF_PODS and r.plural != "things"]
OF_READS = [r for r in SENT if r not in (*OF_PODS, *OF_LOGS, *OF_WRITES)]
# What the pods of the graph need to be refused by the recorded policies, and the reason.
REFUSED_PODS: Mapping[str, tuple[Object, str]] = {
    "limit-range": (
        {"frontend": {"resources": {"memory": "1Gi"}}},
        "maximum memory usage per Container is 512Mi, but limit is 1Gi",
    ),
    "podsecurity-baseline": (
        {"graph": "gpt-oss-120b-h200-disagg"},
        'violates PodSecurity "baseline:latest": non-default capabilities',
    ),
    "podsecurity-restricted": (
        {"cluster": {"security": "image"}},
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
    ),
    "quota-gpus": (
        {
            "frontend": {"resources": {"cpu": "1"}},
            "prefill": {"resources": {"cpu": "1"}},
            "decode": {"resources": {"cpu": "1"}, "gpus": 8},
        },
        "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8",
    ),
    "quota-needs-requests": ({}, "failed quota: cpu: must specify limits.memory for: main"),
    "quota-pods": ({}, "exceeded quota: pods, requested: pods=1, used: pods=1, limited: pods=1"),
    "service-account-missing": (
        {"cluster": {"service_account": "nothing"}},
        'serviceaccount "nothing" not found',
    ),
}


def test_each_rejection_is_injected_or_never_met() -> None:
    names = {(r.file, r.what) for r in ALL}
    assert names >= NEVER.keys() | IN_CI
    assert len(SENT) == len(OF_PODS) + len(OF_LOGS) + len(OF_WRITES) + len(OF_READS)
    assert {r.file for r in OF_PODS} == REFUSED_PODS.keys()
    assert (len(ALL), len(SENT)) == (109, 73)


def install(fresh: Cluster, rejection: Rejection) -> None:
    """On the platform whose release has objects of the rejected kind."""
    sections: Object = {}
    if rejection.plural in ("deployments", "rolebindings"):
        sections["platform"] = "plain"
    if rejection.plural == "persistentvolumeclaims":
        sections["model"] = {"cache": {"pvc": "models", "create": {"size": "1Gi"}}}
    fresh.install(**sections)


def inject(cluster: Cluster, rejection: Rejection, matches: Matcher) -> None:
    def gate(path: str) -> None:
        method, _, url = cluster.api.requests[-1].partition(" ")
        if matches(method, path, url.partition("?")[2]):
            raise rejection.error

    cluster.api.gate = gate


def timed(cluster: Cluster, call: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Fails if the command waits, as for something that may pass."""
    begun = cluster.clock.now()
    code, output = call()
    assert cluster.clock.now() - begun < SOON_S, output
    assert "Traceback" not in output
    return code, output


def names_the_reason(output: str, rejection: Rejection) -> bool:
    if rejection.status == 401:
        return "the API server rejects the credentials" in output
    if rejection.status == 404 and rejection.body == "404 page not found\n":
        return "the cluster has no kind DynamoGraphDeployment (nvidia.com/v1beta1)" in output
    return any(reason.lower() in output.lower() for reason in rejection.reasons)


def is_applied_when_the_cause_is_gone(cluster: Cluster) -> None:
    cluster.api.gate = lambda _: None
    cluster.expect(EXIT_CHANGED, "diff")
    cluster.expect(0, "apply", "--yes")
    assert cluster.run("diff")[0] == 0


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
def test_the_change_without_a_rejection(fresh: Cluster, platform: str) -> None:
    fresh.install(platform=platform)
    fresh.edit(prefill=CHANGE)
    is_applied_when_the_cause_is_gone(fresh)


@pytest.mark.parametrize(
    "rejection", kinds([r for r in OF_WRITES if (r.file, r.what) not in ONLY_WRITES])
)
def test_what_a_dry_run_is_denied_is_not_written(fresh: Cluster, rejection: Rejection) -> None:
    install(fresh, rejection)
    fresh.edit(prefill=CHANGE)
    inject(fresh, rejection, lambda m, path, _: m != "GET" and f"/{rejection.plural}" in path)
    before = fresh.api.store.version
    code, output = timed(fresh, lambda: fresh.run("diff"))
    assert names_the_reason(output, rejection), output
    code, output = timed(fresh, fresh.apply)
    assert code == ClusterError.exit_code, output
    assert names_the_reason(output, rejection), output
    assert fresh.api.store.version == before, output
    is_applied_when_the_cause_is_gone(fresh)


@pytest.mark.parametrize("rejection", kinds(OF_WRITES))
def test_what_only_the_write_is_denied_is_explained(fresh: Cluster, rejection: Rejection) -> None:
    install(fresh, rejection)
    fresh.edit(prefill=CHANGE)

    def matches(method: str, path: str, query: str) -> bool:
        is_write = "dryRun" not in query and "force=true" not in query
        return method in ("PATCH", "POST", "PUT") and is_write and f"/{rejection.plural}" in path

    inject(fresh, rejection, matches)
    code, output = timed(fresh, fresh.apply)
    assert code == ClusterError.exit_code, output
    assert names_the_reason(output, rejection), output
    assert "Fix: " in output
    is_applied_when_the_cause_is_gone(fresh)


@pytest.mark.parametrize("rejection", kinds(OF_READS))
def test_what_cannot_be_read_is_explained(fresh: Cluster, rejection: Rejection) -> None:
    install(fresh, rejection)
    fresh.edit(prefill=CHANGE)

    def matches(method: str, path: str, query: str) -> bool:
        if rejection.status in (401, 429) or "anonymous" in rejection.what:
            return path != "/version" or rejection.status == 401
        return "/apis/nvidia.com" in path if rejection.status == 404 else rejection.plural in path

    inject(fresh, rejection, matches)
    before = fresh.api.store.version
    for verb in (lambda: fresh.run("diff"), fresh.apply):
        code, output = timed(fresh, verb)
        assert code == ClusterError.exit_code, output
        assert "Fix: " in output
        assert names_the_reason(output, rejection), output
    assert fresh.api.store.version == before
    is_applied_when_the_cause_is_gone(fresh)


@pytest.mark.parametrize("rejection", kinds(OF_PODS))
def test_pods_that_a_policy_refuses_are_not_waited_for(
    fresh: Cluster, rejection: Rejection
) -> None:
    """With the recorded labels and objects of the namespace."""
    sections, reason = REFUSED_PODS[rejection.file]
    recorded = json.loads((RECORDINGS / "errors" / f"{rejection.file}.json").read_text())
    store = fresh.api.store
    space = ("v1", "namespaces", "", "default")
    store.objects[space]["metadata"]["labels"] = recorded["namespaceLabels"]
    for created in recorded["objects"]:
        key = ("v1", f"{created['kind'].lower()}s", "default", created["metadata"]["name"])
        store.write(key, created, trusted=True)
    if name := sections.get("graph"):
        fresh.graph.write_text((ROOT / "dynamo_graphs" / f"{name}.yaml").read_text())
    fresh.edit(**{key: value for key, value in sections.items() if key != "graph"})
    code, output = timed(fresh, lambda: fresh.apply("--skip-check"))
    assert code in (ClusterError.exit_code, RolloutError.exit_code), output
    assert reason in output


@pytest.mark.parametrize("rejection", kinds(OF_LOGS))
def test_what_is_only_shown_stops_nothing(fresh: Cluster, rejection: Rejection) -> None:
    """A log or a metric that cannot be read hides no reason of a failure."""
    install(fresh, rejection)
    part = rejection.plural.partition("/")[2]
    inject(fresh, rejection, lambda _, path, __: f"/{part}" in path)
    code, output = timed(fresh, lambda: fresh.run("status", "--cluster"))
    assert code == 0, output
    fresh.edit(prefill={"args": ["--crash"]})
    code, output = timed(fresh, lambda: fresh.apply("--skip-check"))
    assert code == RolloutError.exit_code, output
    assert "prefill" in output
