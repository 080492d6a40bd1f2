"""scale, status, rollback, history and uninstall of a release on the emulated cluster."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pty
import select
import signal
import termios
import threading
import time

import helm_python
import pytest

from penstock.errors import ClusterError, GraphError, RolloutError
from penstock.metrics import parse
from penstock.serving.frontend_metrics import summarize
from tests.support.emulated_cluster.released import DGD, NAME, Cluster, record_of
from tests.support.emulated_cluster.store import ApiError, key_of

METRICS = """\
# TYPE dynamo_frontend_model_ready gauge
dynamo_frontend_model_ready{{model="openai/gpt-oss-20b"}} 1
# TYPE dynamo_frontend_requests counter
dynamo_frontend_requests_total{{model="m",status="success"}} {requests}
# TYPE dynamo_frontend_cached_tokens histogram
dynamo_frontend_cached_tokens_bucket{{le="+Inf"}} {requests}
dynamo_frontend_cached_tokens_sum 25
dynamo_frontend_cached_tokens_count {requests}
# TYPE dynamo_frontend_input_sequence_tokens histogram
dynamo_frontend_input_sequence_tokens_bucket{{le="+Inf"}} {requests}
dynamo_frontend_input_sequence_tokens_sum 100
dynamo_frontend_input_sequence_tokens_count {requests}
# TYPE dynamo_frontend_time_to_first_token_seconds histogram
dynamo_frontend_time_to_first_token_seconds_bucket{{le="0.1"}} {fast}
dynamo_frontend_time_to_first_token_seconds_bucket{{le="0.3"}} {requests}
dynamo_frontend_time_to_first_token_seconds_bucket{{le="+Inf"}} {requests}
dynamo_frontend_time_to_first_token_seconds_sum 1
dynamo_frontend_time_to_first_token_seconds_count {requests}
# TYPE dynamo_frontend_inter_token_latency_seconds histogram
dynamo_frontend_inter_token_latency_seconds_bucket{{le="0.01"}} {requests}
dynamo_frontend_inter_token_latency_seconds_bucket{{le="+Inf"}} {requests}
dynamo_frontend_inter_token_latency_seconds_sum 1
dynamo_frontend_inter_token_latency_seconds_count {requests}
"""


def test_scale_edits_the_file_and_applies_only_the_replicas(installed: Cluster) -> None:
    text = installed.graph.read_text() + "\n# a comment at the end\n"
    installed.graph.write_text(text)
    output = installed.expect(0, "scale", "decode=3", "prefill=1", "--cluster", "--yes")
    assert "decode: scaled 1 → 3, without restart" in output
    assert "revision 2 is ready" in output
    assert installed.replicas() == {"frontend": 1, "prefill": 1, "decode": 3}
    assert "# a comment at the end" in installed.graph.read_text()
    assert installed.run("diff")[0] == 0


def test_scale_does_not_apply_other_edits_of_the_file(installed: Cluster) -> None:
    installed.edit(prefill={"config": {"engine": {"block_size": 64}}})
    assert "restarted" not in installed.expect(0, "scale", "decode=2", "--cluster", "--yes")
    assert installed.replicas()["decode"] == 2
    assert "prefill: restarted" in installed.run("diff")[1]


@pytest.mark.parametrize("words", [["decode=x"], ["decoder=2"], ["decode=-1"]])
def test_invalid_scale_arguments_change_neither_file_nor_cluster(
    installed: Cluster, words: list[str]
) -> None:
    text = installed.graph.read_text()
    code, _ = installed.run("scale", *words, "--cluster", "--yes")
    assert code == GraphError.exit_code
    assert installed.graph.read_text() == text
    assert installed.replicas()["decode"] == 1


def test_scale_of_a_missing_release_does_not_edit_the_file(fresh: Cluster) -> None:
    text = fresh.graph.read_text()
    assert "is not installed" in fresh.expect(
        ClusterError, "scale", "decode=2", "--cluster", "--yes"
    )
    assert fresh.graph.read_text() == text


@pytest.mark.parametrize("was_edited", [False, True])
def test_a_refused_scale_leaves_the_file_as_it_was(installed: Cluster, was_edited: bool) -> None:
    """`was_edited`: another edit in the meantime, which is kept."""
    text = installed.graph.read_text()

    def gate(path: str) -> None:
        request = installed.api.requests[-1]
        if path.endswith(f"/{NAME}") and request.startswith("PATCH") and "dryRun" not in request:
            if was_edited:
                installed.graph.write_text(f"{installed.graph.read_text()}# another edit\n")
            raise ApiError(403, "Forbidden", "denied by a policy")

    installed.api.gate = gate
    output = installed.expect(ClusterError, "scale", "decode=3", "--cluster", "--yes")
    assert "denied by a policy" in output
    assert ("the edit is undone" in output) != was_edited
    if was_edited:
        assert installed.graph.read_text().endswith("# another edit\n")
    else:
        assert installed.graph.read_text() == text


def test_status_shows_pools_and_metrics(installed: Cluster) -> None:
    installed.api.served["8000/metrics"] = METRICS.format(requests=10, fast=5)
    output = installed.expect(0, "status", "--cluster")
    assert "default/quick: revision 1 (deployed), generation 1: ready" in output
    assert "prefill          2/2         2        2         0     0" in output
    assert "model openai/gpt-oss-20b: ready" in output
    assert "10 requests: TTFT p50 100 ms, ITL p50 5.0 ms, prefix-cache hit rate 25%" in output


def test_status_of_a_release_that_is_not_ready_exits_with_an_error(installed: Cluster) -> None:
    installed.edit(engine={"image": "example.com/missing:1.6.1"})
    installed.apply("--no-wait")
    installed.api.served["8000/metrics"] = METRICS.format(requests=0, fast=0)
    output = installed.expect(RolloutError, "status", "--cluster", "--json")
    report = json.loads(output)
    assert report["ready"] is False
    assert report["metrics"] == {
        "models": {"openai/gpt-oss-20b": True},
        "requests": 0,
        "ttft_p50_s": None,
        "itl_p50_s": None,
        "prefix_hit_rate": 0.25,
    }


class Watch:
    """`penstock status --cluster --watch` on a terminal of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.controller, self._own = pty.openpty()
        self.before = termios.tcgetattr(self._own)
        self.process = cluster.start("status", "--cluster", "--watch", terminal=self._own)
        self._output = ""

    def until(self, text: str) -> None:
        """Read until ``text`` is printed after what was read before."""
        deadline = time.monotonic() + 60
        while text not in self._output:
            assert time.monotonic() < deadline, self._output
            if select.select([self.controller], [], [], 0.5)[0]:
                self._output += os.read(self.controller, 65536).decode()
        self._output = self._output.partition(text)[2]

    def end(self) -> int:
        """The exit code; the terminal must be as before."""
        code = self.process.wait(timeout=60)
        assert termios.tcgetattr(self._own) == self.before
        os.close(self.controller)
        os.close(self._own)
        return code


def test_a_watched_status_survives_api_errors_and_ends_with_q_or_ctrl_c(installed: Cluster) -> None:
    unavailable = threading.Event()

    def gate(path: str) -> None:
        if unavailable.is_set() and path.endswith("/pods"):
            raise ApiError(503, "Unavailable", "not now")

    installed.api.gate = gate
    watch, second = Watch(installed), Watch(installed)
    watch.until("default/quick: revision 1 (deployed), generation 1: ready")
    unavailable.set()
    watch.until("not updated: ")
    watch.until("503: not now")
    unavailable.clear()
    installed.by_hand("decode", 3)
    watch.until("/3")  # it is updated again
    os.write(watch.controller, b"q")
    assert watch.end() == 0
    second.until("default/quick: revision 1")
    second.process.send_signal(signal.SIGINT)
    assert second.end() == 130


def test_status_without_metrics_still_shows_pools(installed: Cluster) -> None:
    output = installed.expect(0, "status", "--cluster")
    assert "no metrics: Pod default/quick-frontend-" in output
    assert "503: error trying to reach service" in output


def test_metrics_of_a_second_read_cover_the_interval_since_the_first() -> None:
    first = parse(METRICS.format(requests=10, fast=10))
    second = parse(METRICS.format(requests=30, fast=10))
    metrics = summarize(second, first)
    assert metrics.requests == 20
    assert metrics.ttft_s == pytest.approx(0.2)  # all twenty between 0.1 and 0.3 s


def test_a_model_is_ready_only_if_every_frontend_can_serve_it(installed: Cluster) -> None:
    text = METRICS.format(requests=1, fast=1)
    both = [*parse(text), *parse(text.replace('20b"} 1', '20b"} 0'))]
    assert summarize(both).models == {"openai/gpt-oss-20b": False}


def test_history_and_rollback(installed: Cluster) -> None:
    good = installed.live()["spec"]
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    output = installed.expect(0, "rollback", "--yes")
    assert "default/quick: revision 2 (deployed) → 1" in output
    assert "revision 3 is ready" in output
    assert installed.live()["spec"] == good
    output = installed.run("history", "--json")[1]
    assert [(r["revision"], r["status"]) for r in json.loads(output)] == [
        (1, "superseded"),
        (2, "superseded"),
        (3, "deployed"),
    ]
    lines = installed.run("history")[1].splitlines()
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "installed",
        "decode 1 → 2",
        "decode 2 → 1 (reverts to revision 1)",
    ]


def test_history_with_a_revision_of_another_chart(installed: Cluster) -> None:
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    key = ("v1", "secrets", "default", f"sh.helm.release.v1.{NAME}.v1")
    secret = installed.api.store.objects[key]
    record = record_of(secret)
    record["chart"]["metadata"]["name"] = "other"
    packed = base64.b64encode(gzip.compress(json.dumps(record).encode()))
    secret["data"]["release"] = base64.b64encode(packed).decode()
    output = installed.expect(0, "history")
    assert next(line.split("  ")[-1] for line in output.splitlines()) == "of the chart other"
    output = installed.expect(ClusterError, "rollback", "--yes")
    assert "has no earlier revision that was ready" in output
    output = installed.expect(ClusterError, "rollback", "1", "--yes")
    assert "revision 1 was installed from the chart other, not penstock" in output


@pytest.mark.parametrize(
    ("revision", "words"),
    [([], "has no earlier revision that was ready"), (["7"], "has no revision 7")],
)
def test_a_rollback_to_a_missing_revision_is_rejected(
    installed: Cluster, revision: list[str], words: str
) -> None:
    output = installed.expect(ClusterError, "rollback", *revision, "--yes")
    assert words in output
    assert "stored revisions: 1" in output


def test_a_rollback_ends_an_interrupted_upgrade(installed: Cluster) -> None:
    """Helm's record is pending, as after a `kill -9` of `helm upgrade`."""
    installed.edit(decode={"replicas": 2})
    installed.apply()
    _pend(installed, revision=2)
    installed.edit(decode={"replicas": 3})
    output = installed.expect(ClusterError, "apply", "--yes")
    assert "revision 2 is pending-upgrade" in output
    assert "If it was interrupted, run `penstock rollback`." in output
    installed.expect(0, "rollback", "--yes")
    assert installed.apply()[0] == 0
    assert installed.replicas()["decode"] == 3


def test_uninstall_keeps_the_model_cache_without_delete_cache(fresh: Cluster) -> None:
    fresh.edit(model={"cache": {"pvc": "quick-model-cache", "create": {"size": "200Gi"}}})
    fresh.expect(0, "apply", "--yes")
    output = fresh.expect(0, "uninstall", "--yes")
    assert "PersistentVolumeClaim quick-model-cache is kept" in output
    left = {o["kind"] for o in fresh.api.store.objects.values()} - {"Namespace"}
    assert left <= {"PersistentVolumeClaim", "Pod", "Event"}
    fresh.expect(0, "apply", "--yes")
    fresh.expect(0, "uninstall", "--yes", "--delete-cache")
    assert not fresh.api.store.of_kind("PersistentVolumeClaim")
    assert DGD not in fresh.api.store.objects


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("status", ["--cluster", "--set", "decode.replicas=2"]),
        ("status", ["--cluster", "--watch", "--json"]),
        ("status", ["--watch", "--json"]),
        ("scale", ["decode=2", "--cluster", "--set", "decode.replicas=2"]),
        ("rollback", ["0"]),
        ("rollback", ["one"]),
    ],
)
def test_invalid_arguments_are_rejected(fresh: Cluster, verb: str, arguments: list[str]) -> None:
    try:
        code, _ = fresh.run(verb, *arguments)
    except SystemExit as error:  # of argparse
        code = int(error.code or 0)
    assert code == 2
    assert fresh.api.requests == []


@pytest.mark.parametrize("verb", ["status", "rollback", "history", "uninstall"])
def test_a_missing_release_is_an_error(fresh: Cluster, verb: str) -> None:
    output = fresh.expect(ClusterError, verb, *(["--cluster"] if verb == "status" else []))
    assert "release default/quick: is not installed" in output


def test_uninstall_removes_an_interrupted_installation(installed: Cluster) -> None:
    _pend(installed, revision=1)
    installed.edit(decode={"replicas": 2})
    assert "If it was interrupted, run `penstock uninstall`." in installed.expect(
        ClusterError, "apply", "--yes"
    )
    assert installed.run("uninstall", "--yes")[0] == 0
    assert installed.apply()[0] == 0


def test_uninstall_finishes_an_interrupted_uninstallation(fresh: Cluster) -> None:
    fresh.edit(model={"cache": {"pvc": "quick-model-cache", "create": {"size": "200Gi"}}})
    assert fresh.apply()[0] == 0
    with helm_python.Config(kubeconfig_path=fresh.kubeconfig, namespace="default") as config:
        config.uninstall(NAME)
    assert fresh.api.store.of_kind("ConfigMap")
    fresh.expect(0, "uninstall", "--yes", "--delete-cache")
    assert not fresh.api.store.of_kind("ConfigMap")
    assert not fresh.api.store.of_kind("PersistentVolumeClaim")
    assert fresh.run("uninstall", "--yes")[0] == ClusterError.exit_code


def _installed_by_argo_cd(cluster: Cluster) -> None:
    """As recorded: the objects of `helm template`, without Helm's records and annotations."""
    store = cluster.api.store
    for key in [key for key in store.objects if key[1] == "secrets"]:
        store.remove(key)
    for key, manifest in list(store.objects.items()):
        if annotations := manifest["metadata"].get("annotations"):
            kept = {k: v for k, v in annotations.items() if not k.startswith("meta.helm.sh/")}
            metadata = {**manifest["metadata"], "annotations": kept}
            store.write(key, {**manifest, "metadata": metadata}, trusted=True)


def test_uninstall_without_a_record_keeps_the_claims_of_a_graph_without_pods(
    installed: Cluster,
) -> None:
    """Installed by another tool, without ConfigMaps of engines, and not reconciled yet."""
    store = installed.api.store
    _installed_by_argo_cd(installed)
    for key in [key for key in store.objects if key[1] in ("configmaps", "pods")]:
        store.remove(key)
    installed.operator.stop()
    before = set(store.objects)
    assert f"dynamographdeployment/{NAME}" in installed.expect(
        ClusterError, "uninstall", "--yes", "--delete-cache"
    )
    assert set(store.objects) == before


@pytest.mark.parametrize("by", ["argo-cd", "helm"])
def test_uninstall_without_a_record_deletes_nothing_that_serves(
    installed: Cluster, by: str
) -> None:
    """`helm`: its records are lost, and the graph still serves."""
    store = installed.api.store
    _installed_by_argo_cd(installed)
    if by == "helm":
        names = {"meta.helm.sh/release-name": NAME, "meta.helm.sh/release-namespace": "default"}
        for manifest in store.of_kind("ConfigMap"):
            manifest["metadata"].setdefault("annotations", {}).update(names)
            store.write(key_of(manifest), manifest, trusted=True)
    before = set(store.objects)
    output = installed.expect(ClusterError, "uninstall", "--yes")
    assert set(store.objects) == before
    assert "configmap/quick-" in output or by == "helm"
    assert "dynamographdeployment/quick" in output
    assert "Nothing was deleted" in output
    assert "already uninstalled" not in output


def _pend(cluster: Cluster, revision: int) -> None:
    """Write the record of a revision as an interrupted Helm leaves it."""
    key = ("v1", "secrets", "default", f"sh.helm.release.v1.{NAME}.v{revision}")
    secret = cluster.api.store.objects[key]
    record = record_of(secret)
    record["info"]["status"] = "pending-upgrade"
    written = base64.b64encode(gzip.compress(json.dumps(record).encode()))
    data = {"release": base64.b64encode(written).decode()}
    labels = {**secret["metadata"]["labels"], "status": "pending-upgrade"}
    metadata = {**secret["metadata"], "labels": labels}
    cluster.api.store.write(key, {**secret, "data": data, "metadata": metadata})


def test_the_default_namespace_is_the_contexts(fresh: Cluster) -> None:
    """As for kubectl and Helm; otherwise `apply` would install a second release."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
    fresh.api.store.write(("v1", "namespaces", "", "serving"), space)
    text = fresh.kubeconfig.read_text()
    fresh.kubeconfig.write_text(text.replace("namespace: default", "namespace: serving"))
    output = fresh.expect(0, "apply", "--yes", "--no-wait")
    assert "serving/quick, compared with no installed release" in output
    assert {key[2] for key in fresh.api.store.objects if key[1] == "configmaps"} == {"serving"}
    assert fresh.run("history", "--namespace", "default")[0] == ClusterError.exit_code


@pytest.mark.parametrize("verb", [("status", "--cluster"), ("history",)])
def test_a_missing_namespace_is_named(installed: Cluster, verb: tuple[str, ...]) -> None:
    output = installed.expect(ClusterError, *verb, "--namespace", "serving")
    assert "namespace serving: does not exist. Fix: Select another one with --namespace" in output
