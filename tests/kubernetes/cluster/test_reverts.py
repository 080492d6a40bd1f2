"""Reverts during a rolling update: no pool serves with fewer pods than it should.

`rollback` and `--rollback-on-failure` restore the last revision that was ready.

The emulated operator ends an update abruptly if the workers get the content of the generation that
serves, as the recorded one did (item 2 of "Does not" in the facts about a real cluster).
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.cli import arguments
from penstock.cli.diff import EXIT_CHANGED
from penstock.cluster.generations import ROLLOUT
from penstock.errors import ClusterError, GraphError, RolloutError
from tests.support.emulated_cluster.graphs import GENERATION
from tests.support.emulated_cluster.kubelet import is_ready, key_of
from tests.support.emulated_cluster.released import MISSING, NAME, Cluster, edit_secret, record_of
from tests.support.emulated_cluster.store import ApiError

STEPS = 10  # until a worker is ready


@pytest.fixture
def slow(fresh: Cluster) -> Cluster:
    """The installed quickstart with three prefill and two decode workers that load slowly."""
    fresh.install(prefill={"replicas": 3}, decode={"replicas": 2})
    fresh.operator.machine.steps_to_ready = lambda args: 10**6 if "--slow" in args else STEPS
    return fresh


def ready_by_generation(cluster: Cluster, component: str) -> list[int]:
    """Ready pods of each generation, oldest first."""
    counts: dict[str, int] = {}
    for pod in cluster.api.store.of_kind("Pod"):
        labels = pod["metadata"]["labels"]
        if labels["penstock/component"] == component:
            name = labels[GENERATION]
            counts[name] = counts.get(name, 0) + is_ready(pod)
    return list(counts.values())


def has_no_old_decode(cluster: Cluster) -> bool:
    """As in the recordings `revert-late-…`: decode is replaced, prefill is not."""
    return (
        ready_by_generation(cluster, "decode") == [2]
        and len(ready_by_generation(cluster, "prefill")) == 2
    )


def has_a_new_decode(cluster: Cluster) -> bool:
    """As in the recordings `revert-by-…`."""
    counts = ready_by_generation(cluster, "decode")
    return len(counts) == 2 and counts[1] >= 1


def begin_update(cluster: Cluster, until: Callable[[Cluster], bool]) -> str:
    """Change the workers; the text of the file before."""
    text = cluster.graph.read_text()
    cluster.edit(prefill={"config": {"engine": {"block_size": 64}}})
    cluster.expect(0, "apply", "--yes", "--no-wait")
    cluster.wait_until(lambda: until(cluster))
    stop_loading_until_the_next_write(cluster)
    return text


def stop_loading_until_the_next_write(cluster: Cluster) -> None:
    """So that the update cannot end before the test changes it."""
    loading = cluster.operator.machine.steps_to_ready

    def gate(path: str) -> None:
        if cluster.api.requests[-1].startswith("POST") and path.endswith("/secrets"):
            cluster.operator.machine.steps_to_ready = loading

    cluster.operator.machine.steps_to_ready = lambda _: 10**6
    cluster.api.gate = gate


@pytest.mark.parametrize(
    ("verb", "until"),
    [
        ("apply", has_a_new_decode),
        ("rollback", has_no_old_decode),
        pytest.param("apply", has_no_old_decode, marks=pytest.mark.nightly),
        pytest.param("rollback", has_a_new_decode, marks=pytest.mark.nightly),
    ],
)
def test_2_a_revert_keeps_every_pool_complete(
    slow: Cluster, verb: str, until: Callable[[Cluster], bool]
) -> None:
    text = begin_update(slow, until)
    since = len(slow.operator.serving)
    slow.graph.write_text(text)
    output = slow.expect(0, verb, "--yes")
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3
    assert "starts as a new generation instead" in output
    assert slow.run("diff")[0] == 0
    templates = [c["podTemplate"]["metadata"] for c in slow.live()["spec"]["components"]]
    assert [t.get("annotations", {}).get(ROLLOUT) for t in templates] == [None, "3", "3"]


def test_the_diff_states_what_returning_at_once_would_leave(slow: Cluster) -> None:
    text = begin_update(slow, has_no_old_decode)
    slow.graph.write_text(text)
    output = slow.expect(EXIT_CHANGED, "diff")
    assert "rolling update in progress (" in output
    assert "decode: 0 of 2 old and 2 new pods ready" in output
    assert "rollout: a direct revert would leave" in output
    assert "decode with 0 of 2" in output
    report = json.loads(slow.run("diff", "--json")[1])
    assert report["rolling_update"]["action"] == "revert-as-new-generation"


def test_before_the_first_new_worker_runs_a_revert_restarts_nothing(slow: Cluster) -> None:
    uids = {p["metadata"]["uid"] for p in slow.api.store.of_kind("Pod")}
    text = slow.graph.read_text()
    slow.edit(engine={"image": "example.com/missing:1.6.1"})
    assert slow.apply("--no-wait")[0] == 0
    slow.wait_until(lambda: len(ready_by_generation(slow, "prefill")) == 2)
    slow.graph.write_text(text)
    output = slow.run("diff")[1]
    assert "3 × prefill" in output
    assert ") do not restart" in output
    assert "KV cache" not in output
    since = len(slow.operator.serving)
    slow.expect(0, "apply", "--yes")
    assert {p["metadata"]["uid"] for p in slow.api.store.of_kind("Pod")} == uids
    assert slow.operator.lowest("prefill", since) == 3


def test_an_update_that_progresses_after_the_diff_is_noticed_before_the_write(
    slow: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the diff and the confirmed write new workers become ready."""
    text = slow.graph.read_text()
    slow.edit(engine={"image": "example.com/missing:1.6.1"})
    assert slow.apply("--no-wait")[0] == 0
    slow.wait_until(lambda: len(ready_by_generation(slow, "prefill")) == 2)
    slow.graph.write_text(text)
    since = len(slow.operator.serving)

    def confirm(*_: object) -> bool:
        slow.operator.machine.is_there = lambda _: True
        slow.wait_until(lambda: has_no_old_decode(slow))
        return True

    monkeypatch.setattr(arguments, "confirm", confirm)
    output = slow.expect(0, "apply", "--yes")
    confirmed, _, written = output.partition("revision 3 is written")[0].partition(
        "the operator ends the update"
    )
    assert "starts as a new generation instead" in written, confirmed
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3


@pytest.mark.parametrize("until", [has_a_new_decode, has_no_old_decode])
def test_10_a_second_edit_keeps_every_pool_complete(
    slow: Cluster, until: Callable[[Cluster], bool]
) -> None:
    begin_update(slow, until)
    since = len(slow.operator.serving)
    slow.edit(prefill={"config": {"engine": {"block_size": 128}}})
    output = slow.run("diff")[1]
    assert "starts another generation (pods of 3 generations until it is ready)" in output
    slow.expect(0, "apply", "--yes")
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3


def test_a_failed_upgrade_is_rolled_back_without_loss(slow: Cluster) -> None:
    """The new decode workers are ready, the new prefill workers never are."""
    since = len(slow.operator.serving)
    text = slow.graph.read_text()
    slow.edit(prefill={"args": ["--crash"]})
    output = slow.expect(RolloutError, "apply", "--yes", "--rollback-on-failure", "--skip-check")
    assert has_replaced_decode(slow, since)
    assert "was rolled back to revision 1" in output
    slow.graph.write_text(text)
    assert slow.run("diff")[0] == 0
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3


def has_replaced_decode(cluster: Cluster, since: int) -> bool:
    """Whether more than the desired decode workers were ready: new ones besides old ones."""
    return max(ready["decode"] for ready in cluster.operator.serving[since:]) > 2


def test_the_annotation_stays_and_another_revert_is_a_further_generation(slow: Cluster) -> None:
    text = begin_update(slow, has_no_old_decode)
    slow.graph.write_text(text)
    assert slow.apply()[0] == 0
    slow.edit(prefill={"config": {"engine": {"block_size": 64}}})
    assert slow.apply()[0] == 0
    annotations = slow.live()["spec"]["components"][1]["podTemplate"]["metadata"]["annotations"]
    assert annotations[ROLLOUT] == "3"
    uids = {p["metadata"]["uid"] for p in slow.api.store.of_kind("Pod")}
    slow.edit(decode={"replicas": 3})
    slow.expect(0, "apply", "--yes")
    assert uids <= {p["metadata"]["uid"] for p in slow.api.store.of_kind("Pod")}


def test_a_rollback_uses_the_chart_of_the_stored_revision(slow: Cluster) -> None:
    begin_update(slow, has_no_old_decode)
    slow.expect(0, "rollback", "--yes")
    records = [record_of(s) for s in slow.api.store.of_kind("Secret") if "release" in s["data"]]
    first, last = (next(r for r in records if r["version"] == n) for n in (1, 3))
    assert last["chart"]["metadata"] == first["chart"]["metadata"]
    assert {t["name"]: t["data"] for t in last["chart"]["templates"]} == {
        t["name"]: t["data"] for t in first["chart"]["templates"]
    }


def test_an_update_that_the_operator_has_not_seen_is_noticed(
    slow: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator begins the update between the diff and the write of its revert."""
    text = slow.graph.read_text()
    slow.operator.is_away = True
    monkeypatch.setattr(slow.operator, "_admit", lambda *_: None)
    slow.api.store.admission.clear()
    slow.edit(prefill={"config": {"engine": {"block_size": 64}}})
    assert slow.apply("--no-wait")[0] == 0
    slow.graph.write_text(text)
    since = len(slow.operator.serving)

    def confirm(*_: object) -> bool:
        slow.operator.is_away = False
        slow.wait_until(lambda: has_no_old_decode(slow))
        stop_loading_until_the_next_write(slow)
        return True

    monkeypatch.setattr(arguments, "confirm", confirm)
    assert "the operator has not seen the last change yet" in slow.expect(0, "apply", "--yes")
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3


def test_a_revert_to_a_revision_that_helm_no_longer_stores_keeps_every_pool_complete(
    slow: Cluster,
) -> None:
    text = begin_update(slow, has_no_old_decode)
    first = ("v1", "secrets", "default", f"sh.helm.release.v1.{NAME}.v1")
    slow.api.store.remove(first)
    since = len(slow.operator.serving)
    slow.graph.write_text(text)
    slow.expect(0, "apply", "--yes")
    assert slow.operator.lowest("decode", since) >= 2
    assert slow.operator.lowest("prefill", since) >= 3


def test_only_the_generation_that_serves_is_kept_without_restart(slow: Cluster) -> None:
    """Revision 1 is earlier than the one that serves."""
    first = slow.graph.read_text()
    slow.edit(prefill={"config": {"engine": {"block_size": 64}}})
    assert slow.apply()[0] == 0
    slow.edit(engine={"image": "example.com/missing:1.6.1"})
    assert slow.apply("--no-wait")[0] == 0
    slow.wait_until(lambda: len(ready_by_generation(slow, "prefill")) == 2)
    slow.graph.write_text(first)
    output = slow.run("diff")[1]
    assert "do not restart" not in output
    assert "starts as a new generation instead" in output
    assert "KV cache" in output


def test_replicas_that_were_changed_by_hand_restart_nothing(slow: Cluster) -> None:
    begin_update(slow, has_a_new_decode)
    slow.by_hand("decode", 3)
    output = slow.run("diff")[1]
    assert "restarted" not in output
    assert "drift: decode: replicas 2 → 3" in output


def test_the_annotation_is_reserved(fresh: Cluster) -> None:
    fresh.edit(decode={"annotations": {ROLLOUT: "x"}})
    output = fresh.expect(GraphError, "apply", "--yes")
    assert f"decode.annotations.{ROLLOUT}: is set by penstock" in output
    assert not fresh.api.store.of_kind("DynamoGraphDeployment")


def outcomes(cluster: Cluster) -> list[tuple[str | None, int | None]]:
    """By revision: how its rollout ended, and which revision it restores."""
    listed = json.loads(cluster.run("history", "--json")[1])
    return [(row["outcome"], row["reverts_to"]) for row in listed]


def fail(cluster: Cluster, *arguments: str) -> str:
    """Apply an image that does not exist; the file is restored."""
    text = cluster.graph.read_text()
    cluster.edit(engine=MISSING)
    output = cluster.expect(RolloutError, "apply", "--yes", *arguments)
    cluster.graph.write_text(text)
    return output


def test_a_failed_revision_that_was_reverted_is_not_chosen(installed: Cluster) -> None:
    assert "rolled back to revision 1" in fail(installed, "--rollback-on-failure")
    assert outcomes(installed) == [("ready", None), ("not-ready", None), ("ready", 1)]
    listed = installed.run("history")[1].splitlines()
    assert "(was not ready)" in listed[1]
    assert "(reverts to revision 1)" in listed[2]
    good = installed.live()["spec"]
    output = installed.expect(ClusterError, "rollback", "--yes")
    assert "has no earlier revision that was ready; stored revisions: 1, 2 (was not" in output
    assert "penstock rollback GRAPH REVISION" in output
    assert installed.live()["spec"] == good


def test_a_failed_revision_that_was_replaced_is_not_chosen(installed: Cluster) -> None:
    fail(installed)
    installed.edit(decode={"replicas": 2})
    assert installed.apply()[0] == 0
    assert "revision 3 (deployed) → 1" in installed.expect(0, "rollback", "--yes")


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


def test_a_revision_written_without_a_wait_is_ready_if_it_is_at_its_end(installed: Cluster) -> None:
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
    installed.api.refuse(
        "sh.helm.release", ApiError(403, "Forbidden", "secrets is forbidden"), "PATCH"
    )
    installed.edit(decode={"replicas": 2})
    installed.expect(0, "apply", "--yes")
    assert outcomes(installed)[1] == (None, None)


def test_a_revert_has_its_own_time_limit(installed: Cluster) -> None:
    """`--timeout-s` is for the new revision; what serves again may take longer to load."""
    installed.operator.machine.steps_to_ready = lambda args: 10**6 if "--slow" in args else 100
    installed.edit(decode={"args": ["--slow"]})
    output = installed.expect(
        RolloutError, "apply", "--yes", "--rollback-on-failure", "--timeout-s", "30", "--skip-check"
    )
    assert "revision 2 is not ready after 30 s" in output
    assert "revision 3 is ready" in output
