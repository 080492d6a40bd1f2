"""Who writes to the cluster, and what is left when a write is interrupted or has a rival."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from penstock.cli.diff import EXIT_CHANGED
from penstock.errors import ClusterError
from tests.support.emulated_cluster.released import NAME, PROCESS_S, Cluster
from tests.support.emulated_cluster.store import ApiError, Object


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

    def gate(path: str) -> None:
        if is_write(installed, path, f"/dynamographdeployments/{NAME}"):
            raise ApiError(500, "InternalError", "failed calling webhook: connection refused")

    installed.api.gate = gate
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

    def gate(path: str) -> None:
        if is_write(installed, path, "/secrets"):
            raise ApiError(403, "Forbidden", "secrets is forbidden")

    installed.by_hand("decode", 4)
    spec = installed.live()["spec"]
    installed.edit(decode={"replicas": 2})
    installed.api.gate = gate
    assert installed.apply()[0] == ClusterError.exit_code
    assert installed.live()["spec"] == spec
    installed.api.gate = lambda _: None
    assert installed.apply()[0] == 0
    assert installed.replicas()["decode"] == 2
