"""`penstock apply` with real Helm over the emulated API and operator.

Also with concurrent clients, missing permissions, and writes that fail or are interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import helm_python
import pytest

from penstock.cli import arguments
from penstock.cli import main as cli
from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import ClusterError, RolloutError
from penstock.manifests.render import chart_path
from tests.support.emulated_cluster.released import DGD, MISSING, NAME, PROCESS_S, ROOT, Cluster
from tests.support.emulated_cluster.store import ApiError, Object


def test_apply_waits_until_an_installation_is_ready(fresh: Cluster) -> None:
    output = fresh.expect(0, "apply", "--yes")
    assert "prefill: created with 2 replicas" in output
    assert "revision 1 is written" in output
    assert output.rstrip().endswith("revision 1 is ready")
    assert "prefill 2/2 ready" in output
    assert fresh.operator.serving[-1] == {"frontend": 1, "prefill": 2, "decode": 1}


def test_a_quiet_apply_prints_the_result_without_progress(fresh: Cluster) -> None:
    output = fresh.expect(0, "apply", "--yes", "-q")
    assert "revision 1 is written" in output
    assert output.rstrip().endswith("revision 1 is ready")
    assert "2/2 ready" not in output


def test_apply_without_changes_writes_nothing_and_waits(installed: Cluster) -> None:
    output = installed.expect(0, "apply", "--yes")
    assert "no changes" in output
    assert "is written" not in output
    assert "revision 1 is ready" in output


def test_a_missing_image_is_reported_and_the_old_workers_keep_serving(installed: Cluster) -> None:
    since = len(installed.operator.serving)
    installed.edit(engine=MISSING)
    output = installed.expect(RolloutError, "apply", "--yes")
    assert "image cannot be pulled" in output
    assert 'Back-off pulling image "example.com/missing:1.6.1": not found' in output
    assert "run `penstock rollback`, or fix the graph and run `penstock apply`" in output
    assert installed.operator.lowest("decode", since) >= 1


def test_a_crash_is_reported_with_the_end_of_its_log(installed: Cluster) -> None:
    installed.edit(decode={"args": ["--crash"]})
    output = installed.expect(RolloutError, "apply", "--yes", "--skip-check")
    assert "keeps crashing: exit code 1 (Error)" in output
    assert "| ValueError: no such parser" in output


def test_an_unschedulable_pod_is_reported_with_the_missing_resource(fresh: Cluster) -> None:
    """A node may still be added, so the rollout fails only after its timeout."""
    fresh.graph.write_text((ROOT / "dynamo_graphs" / "gpt-oss-20b-h100.yaml").read_text())
    fresh.operator.machine.gpus = 0
    output = fresh.expect(RolloutError, "apply", "--yes", "--timeout-s", "90")
    assert "is not ready after 90 s" in output
    assert "unschedulable: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu" in output


def test_a_pool_that_waits_for_another_one_is_reported(fresh: Cluster) -> None:
    """On `platform: plain`, workers of one pool are ready only with those of the other one."""
    fresh.edit(platform="plain", engine={"kind": "vllm", "config": {}}, prefill={"replicas": 1})
    fresh.edit(hardware={"gpu": "h100", "gpus_per_node": 8}, verify={"must_pass": []})
    fresh.operator.machine.gpus = 3  # two serve, so that one is free
    fresh.expect(0, "apply", "--yes", "--skip-check")
    fresh.edit(prefill={"env": {"A": "1"}})
    output = fresh.expect(RolloutError, "apply", "--yes", "--skip-check", "--timeout-s", "60")
    waits = "decode: waits for prefill: its new workers become ready only when prefill"
    assert f"         {waits} of their generation is scheduled" in output
    assert f"is not ready after 60 s: {waits}" in output
    assert f"  ! {waits}" in fresh.expect(RolloutError, "status", "--cluster")
    fresh.operator.machine.gpus = 4
    fresh.expect(0, "apply", "--yes", "--skip-check")


def test_apply_upgrades_a_release_of_helms_cli(fresh: Cluster) -> None:
    """The SDK substitutes for the CLI: it is another manager, and owns every field."""
    import yaml

    values = yaml.safe_load(fresh.graph.read_text())
    with helm_python.Config(kubeconfig_path=fresh.kubeconfig, namespace="default") as config:
        config.install(chart_path(), NAME, values)
    fresh.edit(decode={"replicas": 2})
    fresh.expect(0, "apply", "--yes")
    assert fresh.replicas()["decode"] == 2


def test_the_second_of_two_quick_edits_wins(installed: Cluster) -> None:
    since = len(installed.operator.serving)
    installed.edit(decode={"args": ["--slow"]})
    first = installed.start("apply", "--yes", "--skip-check")
    _until_written(installed, revision=2)
    installed.edit(decode={"args": ["--second"]})
    installed.expect(0, "apply", "--yes", "--skip-check")
    output, _ = first.communicate(timeout=120)
    assert first.returncode == RolloutError.exit_code, output
    assert "revision 2 was superseded by revision 3 before it was ready" in output
    args = installed.live()["spec"]["components"][2]["podTemplate"]["spec"]["containers"][0]["args"]
    assert "--second" in args
    assert "--slow" not in args
    assert installed.operator.lowest("decode", since) >= 1
    assert installed.operator.lowest("prefill", since) >= 2


def test_a_rollout_continues_after_ctrl_c(installed: Cluster) -> None:
    installed.edit(decode={"args": ["--slow"]})
    watching = installed.start("apply", "--yes", "--skip-check")
    _until_written(installed, revision=2)
    _until_printed(watching, "revision 2 is written")
    _until_printed(watching, "/2 ready")  # apply waits for the rollout
    watching.send_signal(signal.SIGINT)
    output, _ = watching.communicate(timeout=120)
    assert watching.returncode == 130, output
    assert "revision 2 is written and its rollout continues" in output
    installed.operator.machine.steps_to_ready = lambda _: 2
    assert "revision 2 is ready" in installed.expect(0, "apply", "--yes", "--skip-check")


def test_a_rollout_survives_transient_api_errors(installed: Cluster) -> None:
    """Errors of our own requests and of Helm's, after the write; before it they are errors."""
    pods, records = iter([200, 500, 503, 429]), iter([503, 503])
    polled = []

    def gate(path: str) -> None:
        code = 200
        if path.endswith("/pods") and "dryRun" not in installed.api.requests[-1]:
            code = next(pods, 200)
            polled.append(code)
        elif path.endswith("/secrets") and len(polled) > 1:
            code = next(records, 200)
        if code != 200:
            raise ApiError(code, "Unavailable", "the server is currently unable to handle it")

    installed.api.gate = gate
    installed.edit(decode={"replicas": 2})
    assert "retrying" in installed.expect(0, "apply", "--yes")


def test_a_permanently_unavailable_api_is_an_error(installed: Cluster) -> None:
    installed.edit(decode={"replicas": 2})
    installed.apply("--no-wait")
    installed.api.refuse("/pods$", ApiError(503, "Unavailable", "not now"))
    assert "503: not now" in installed.expect(ClusterError, "apply", "--yes")


@pytest.mark.parametrize("code", [400, 403, 409, 422])
def test_a_rejected_write_names_the_object_and_changes_nothing(
    installed: Cluster, code: int
) -> None:
    before = installed.live()["spec"]

    def reject(new: dict[str, object], _: object) -> None:
        if new.get("kind") == "DynamoGraphDeployment" and new.get("spec") != before:
            raise ApiError(code, "Nope", "not like this")

    installed.api.store.admission.append(reject)
    installed.edit(decode={"replicas": 2})
    output = installed.expect(ClusterError, "apply", "--yes")
    assert "DynamoGraphDeployment quick: not like this" in output
    assert installed.live()["spec"] == before


def test_without_a_terminal_and_without_yes_nothing_is_written(fresh: Cluster) -> None:
    output = fresh.expect(2, "apply")
    assert "apply to default/quick needs confirmation: use a terminal, or pass --yes" in output
    assert DGD not in fresh.api.store.objects


def test_errors_of_check_stop_apply(fresh: Cluster) -> None:
    fresh.edit(model={"context_length": 1_000_000})
    assert "--skip-check" in fresh.expect(14, "apply", "--yes")
    assert fresh.api.requests == []


def test_apply_waits_for_plain_deployments(fresh: Cluster) -> None:
    fresh.edit(platform="plain")
    assert "etcd 1/1 ready" in fresh.expect(0, "apply", "--yes")
    fresh.edit(engine=MISSING)
    assert "image cannot be pulled" in fresh.expect(RolloutError, "apply", "--yes")


def _until_printed(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"not printed: {text}")


def _until_written(cluster: Cluster, revision: int) -> None:
    key = ("v1", "secrets", "default", f"sh.helm.release.v1.{NAME}.v{revision}")
    cluster.wait_for_process(
        lambda: (
            (record := cluster.api.store.objects.get(key)) is not None
            and record["metadata"]["labels"].get("status") == "deployed"
        )
    )


def test_apply_waits_without_permission_to_list_events(installed: Cluster) -> None:
    installed.api.refuse("/events$", ApiError(403, "Forbidden", "events is forbidden"))
    installed.edit(decode={"replicas": 2})
    output = installed.expect(0, "apply", "--yes")
    assert output.count("events is forbidden") == 1
    assert installed.run("status", "--cluster")[0] == 0


def test_a_concurrent_change_of_another_client_is_not_overwritten(
    installed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agree(_: object, question: str) -> bool:
        """Another client applies while the confirmation is pending."""
        monkeypatch.setattr(arguments, "confirm", lambda *_: True)
        text = installed.graph.read_text()
        installed.edit(prefill={"replicas": 3})
        assert cli.main([*other_client, "--no-wait"]) == 0
        installed.graph.write_text(text)
        return True

    other_client = ["apply", str(installed.graph), "--kubeconfig", str(installed.kubeconfig)]
    monkeypatch.setattr(arguments, "confirm", agree)
    installed.edit(decode={"replicas": 2})
    output = installed.expect(ClusterError, "apply")
    assert "another client changed it in the meantime: it is now revision 2 (deployed)" in output
    assert installed.replicas() == {"frontend": 1, "prefill": 3, "decode": 2}  # of the other client


def test_failing_old_pods_do_not_fail_the_rollout_that_replaces_them(installed: Cluster) -> None:
    """The old pods lack an image for longer than a permanent problem may last."""
    installed.edit(engine=MISSING)
    assert installed.apply("--no-wait")[0] == 0
    slow = installed.operator.machine
    slow.steps_to_ready = lambda _: 90  # seconds; a permanent problem may last for 60
    slow.is_there = lambda image: True
    installed.edit(engine={"image": "example.com/there:1.6.1"})
    installed.expect(0, "apply", "--yes", "--rollback-on-failure")


def test_rollback_on_failure_works_for_an_already_written_revision(installed: Cluster) -> None:
    good = installed.live()["spec"]
    installed.edit(engine=MISSING)
    assert installed.apply("--no-wait")[0] == 0
    output = installed.expect(RolloutError, "apply", "--yes", "--rollback-on-failure")
    assert "revision 2 failed and was rolled back to revision 1" in output
    assert installed.live()["spec"] == good


def test_an_interrupted_write_is_reported_with_a_fix(installed: Cluster) -> None:
    installed.api.refuse("/secrets$", ApiError(403, "Forbidden", "secrets is forbidden"), "POST")
    installed.edit(decode={"replicas": 2})
    output = installed.expect(ClusterError, "apply", "--yes")
    assert "the write failed partway: some objects may already be updated" in output
    installed.api.gate = lambda _: None
    assert installed.run("rollback", "1", "--yes")[0] == 0
    assert installed.replicas()["decode"] == 1


def is_write(cluster: Cluster, path: str, suffix: str) -> bool:
    """Whether the request that a gate sees is a write that counts."""
    request = cluster.api.requests[-1]
    return path.endswith(suffix) and not request.startswith("GET") and "dryRun" not in request


def test_helm_is_the_only_owner_after_several_writes(installed: Cluster) -> None:
    installed.by_hand("decode", 3)
    installed.edit(decode={"replicas": 2}, prefill={"config": {"engine": {"block_size": 64}}})
    assert installed.apply()[0] == 0
    assert installed.run("rollback", "--yes")[0] == 0
    assert managers(installed) == {"helm", "dynamo-operator"}  # its finalizer


def managers(cluster: Cluster) -> set[str]:
    written = [o for o in cluster.api.store.objects.values() if is_of_release(o)]
    assert len(written) >= 5
    return {e["manager"] for o in written for e in o["metadata"]["managedFields"]}


def is_of_release(manifest: Object) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    return annotations.get("meta.helm.sh/release-name") == NAME


def test_3_the_second_of_two_writers_gets_a_clear_error_and_changes_nothing(
    installed: Cluster, tmp_path: Path
) -> None:
    """Both have seen the same revision; Helm's lock is the record of the next one."""
    both = threading.Barrier(2)

    def gate(path: str) -> None:
        if is_write(installed, path, "/secrets"):
            both.wait(PROCESS_S)

    other = tmp_path / "other" / installed.graph.name
    other.parent.mkdir()
    text = installed.graph.read_text()
    other.write_text(text.replace("replicas: 1", "replicas: 3"))
    installed.graph.write_text(text.replace("replicas: 1", "replicas: 2"))
    assert len({text, other.read_text(), installed.graph.read_text()}) == 3
    installed.api.gate = gate
    first = installed.start("apply", "--yes", "--no-wait")
    installed.graph = other
    second = installed.start("apply", "--yes", "--no-wait")
    outputs = [process.communicate(timeout=PROCESS_S)[0] for process in (first, second)]
    codes = [first.returncode, second.returncode]
    assert sorted(codes) == [0, ClusterError.exit_code], outputs
    winner = codes.index(0)
    assert installed.replicas()["decode"] == (2, 3)[winner]
    message = "another client is writing this release; your change was not applied"
    assert message in outputs[1 - winner]


def test_a_write_is_completed_when_penstock_is_killed(installed: Cluster) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def gate(path: str) -> None:
        if is_write(installed, path, f"/dynamographdeployments/{NAME}"):
            begun.set()
            go_on.wait(PROCESS_S)

    installed.api.gate = gate
    installed.edit(decode={"replicas": 2})
    process = installed.start("apply", "--yes")
    assert begun.wait(PROCESS_S)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PROCESS_S)
    go_on.set()
    installed.wait_for_process(lambda: "2" in revision(installed))
    assert "deployed" in installed.run("history")[1]
    assert installed.replicas()["decode"] == 2
    assert installed.run("diff")[0] == 0


def revision(cluster: Cluster) -> str:
    """The number of the deployed revision."""
    secrets = cluster.api.store.of_kind("Secret")
    labels = [s["metadata"]["labels"] for s in secrets]
    return "".join(x["version"] for x in labels if x.get("status") == "deployed")


def test_a_failed_write_is_a_difference(installed: Cluster) -> None:
    """Helm records the revision as failed; its new ConfigMaps exist, the graph is the old one."""

    installed.api.refuse(
        f"/{NAME}$", ApiError(500, "", "failed calling webhook"), "P", of_dry_runs=False
    )
    installed.edit(decode={"replicas": 2})
    installed.expect(ClusterError, "apply", "--yes")
    installed.api.gate = lambda _: None
    assert installed.replicas()["decode"] == 1
    output = installed.expect(EXIT_CHANGED, "diff")
    assert "compared with revision 2 (failed)" in output
    assert "decode: replicas 2 → 1" in output
    assert installed.apply()[0] == 0
    assert installed.replicas()["decode"] == 2


def test_nothing_changes_before_helms_lock(installed: Cluster) -> None:
    """A field of another manager is taken over; its value changes with the revision only."""

    installed.by_hand("decode", 4)
    spec = installed.live()["spec"]
    installed.edit(decode={"replicas": 2})
    installed.api.refuse(
        "/secrets$", ApiError(403, "", "secrets is forbidden"), "P", of_dry_runs=False
    )
    assert installed.apply()[0] == ClusterError.exit_code
    assert installed.live()["spec"] == spec
    installed.api.gate = lambda _: None
    assert installed.apply()[0] == 0
    assert installed.replicas()["decode"] == 2
