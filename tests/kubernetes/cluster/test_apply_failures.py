"""Rollouts with concurrent clients, missing permissions and failing writes."""

from __future__ import annotations

import pytest

from penstock.cli import arguments
from penstock.cli import main as cli
from penstock.errors import ClusterError, RolloutError
from tests.support.emulated_cluster.released import MISSING, Cluster
from tests.support.emulated_cluster.store import ApiError


def test_apply_waits_without_permission_to_list_events(installed: Cluster) -> None:
    def gate(path: str) -> None:
        if path.endswith("/events"):
            raise ApiError(403, "Forbidden", "events is forbidden")

    installed.api.gate = gate
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
    def gate(path: str) -> None:
        if path.endswith("/secrets") and installed.api.requests[-1].startswith("POST"):
            raise ApiError(403, "Forbidden", "secrets is forbidden")

    installed.api.gate = gate
    installed.edit(decode={"replicas": 2})
    output = installed.expect(ClusterError, "apply", "--yes")
    assert "the write failed partway: some objects may already be updated" in output
    installed.api.gate = lambda _: None
    assert installed.run("rollback", "1", "--yes")[0] == 0
    assert installed.replicas()["decode"] == 1
