"""Which revision `rollback` and `--rollback-on-failure` restore: the last one that was ready."""

from __future__ import annotations

import json

import pytest

from penstock.errors import ClusterError, RolloutError
from tests.support.emulated_cluster.kubelet import key_of
from tests.support.emulated_cluster.released import MISSING, NAME, Cluster, edit_secret
from tests.support.emulated_cluster.store import ApiError


def outcomes(cluster: Cluster) -> list[tuple[str | None, int | None]]:
    """By revision: how its rollout ended, and which revision it restores."""
    listed = json.loads(cluster.run("history", "--json")[1])
    return [(row["outcome"], row["reverts_to"]) for row in listed]


def fail(cluster: Cluster, *arguments: str) -> str:
    """Apply an image that does not exist; the file is restored."""
    text = cluster.graph.read_text()
    cluster.edit(engine=MISSING)
    code, output = cluster.apply(*arguments)
    assert code == RolloutError.exit_code, output
    cluster.graph.write_text(text)
    return output


def test_a_failed_revision_that_was_reverted_is_not_chosen(installed: Cluster) -> None:
    assert "rolled back to revision 1" in fail(installed, "--rollback-on-failure")
    assert outcomes(installed) == [("ready", None), ("not-ready", None), ("ready", 1)]
    listed = installed.run("history")[1].splitlines()
    assert "(was not ready)" in listed[1]
    assert "(reverts to revision 1)" in listed[2]
    good = installed.live()["spec"]
    code, output = installed.run("rollback", "--yes")
    assert code == ClusterError.exit_code
    assert "has no earlier revision that was ready; stored revisions: 1, 2 (was not" in output
    assert "penstock rollback GRAPH REVISION" in output
    assert installed.live()["spec"] == good


def test_a_failed_revision_that_was_replaced_is_not_chosen(installed: Cluster) -> None:
    fail(installed)
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    code, output = installed.run("rollback", "--yes")
    assert (code, "revision 3 (deployed) → 1" in output) == (0, True), output


def test_a_second_failure_is_rolled_back_to_what_was_ready(installed: Cluster) -> None:
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    good = installed.live()["spec"]
    fail(installed)
    installed.edit(prefill={"replicas": 1})
    output = fail(installed, "--rollback-on-failure")
    assert "revision 4 failed and was rolled back to revision 2" in output
    assert installed.live()["spec"] == good


def test_nothing_is_rolled_back_if_nothing_was_ready(fresh: Cluster) -> None:
    fail(fresh)
    fresh.edit(decode={"replicas": 2})
    output = fail(fresh, "--rollback-on-failure")
    assert "has no earlier revision that was ready" in output
    assert "image cannot be pulled" in output
    assert len(outcomes(fresh)) == 2


def test_a_revision_written_without_a_wait_is_ready_if_it_is_at_its_end(
    installed: Cluster,
) -> None:
    installed.edit(decode={"replicas": 2})
    assert installed.apply("--no-wait")[0] == 0
    installed.clock.sleep(30)
    assert outcomes(installed)[1] == (None, None)
    installed.edit(decode={"replicas": 3})
    assert installed.apply()[0] == 0
    assert outcomes(installed)[1] == ("ready", None)
    assert "→ 2" in installed.run("rollback", "--yes")[1]


def test_a_revision_that_is_not_ready_at_a_moment_may_have_been(installed: Cluster) -> None:
    """A pod restarts while the next revision is written: the one before it stays unknown."""
    edit_secret(installed, 1, lambda labels: labels.pop("penstock/outcome"))
    (pod, *_) = installed.api.store.of_kind("Pod")
    status = {**pod["status"], "conditions": [{"type": "Ready", "status": "False"}]}
    installed.api.store.write(key_of(pod), {**pod, "status": status}, trusted=True)
    assert "rolled back to revision 1" in fail(installed, "--rollback-on-failure")
    assert outcomes(installed)[0] != ("not-ready", None)


@pytest.mark.parametrize(("replicas", "chosen"), [(3, 2), (1, None)])
def test_revisions_of_the_helm_cli(installed: Cluster, replicas: int, chosen: int | None) -> None:
    """Their outcome is unknown: the last one that no later one reverted."""
    for count in (2, replicas):
        installed.edit(decode={"replicas": count})
        assert installed.apply()[0] == 0
    for number in (1, 2, 3):
        edit_secret(installed, number, lambda labels: labels.pop("penstock/outcome"))
    code, output = installed.run("rollback", "--yes")
    if chosen is None:
        assert (code, "no earlier revision that was ready" in output) == (
            ClusterError.exit_code,
            True,
        ), output
    else:
        assert (code, f"revision 3 (deployed) → {chosen}" in output) == (0, True), output


def test_a_user_who_may_not_patch_secrets_can_apply(installed: Cluster) -> None:
    def gate(path: str) -> None:
        if installed.api.requests[-1].startswith("PATCH") and f"sh.helm.release.v1.{NAME}" in path:
            raise ApiError(403, "Forbidden", "secrets is forbidden")

    installed.api.gate = gate
    installed.edit(decode={"replicas": 2})
    code, output = installed.apply()
    assert code == 0, output
    assert outcomes(installed)[1] == (None, None)


def test_a_revert_has_its_own_time_limit(installed: Cluster) -> None:
    """`--timeout-s` is for the new revision; what serves again may take longer to load."""
    installed.operator.machine.steps_to_ready = lambda args: 10**6 if "--slow" in args else 100
    installed.edit(decode={"args": ["--slow"]})
    code, output = installed.apply("--rollback-on-failure", "--timeout-s", "30", "--skip-check")
    assert code == RolloutError.exit_code, output
    assert "revision 2 is not ready after 30 s" in output
    assert "revision 3 is ready" in output
