"""Multi-node engines on `platform: plain`: LeaderWorkerSets in a diff and in a rollout."""

from __future__ import annotations

from typing import Any

import yaml

from penstock.cluster.diff import Action, Diff, diff
from penstock.cluster.report import as_lines
from penstock.manifests.render import render
from tests.support.emulated_cluster.released import Cluster

Values = dict[str, Any]


def graph(**decode: Any) -> Values:
    pool = {"gpus": 8, "nodes": 2, **decode}
    return {
        "platform": "plain",
        "model": {"id": "a/b"},
        "engine": {"kind": "vllm"},
        "prefill": {"gpus": 1},
        "decode": pool,
    }


def between(before: Values, after: Values) -> Diff:
    return diff(render(before, name="g").objects, render(after, name="g").objects)


def actions(change: Diff) -> dict[str, Action]:
    return {c.name: c.action for c in change.components}


def test_a_change_of_the_worker_template_restarts_the_pool_and_is_reported() -> None:
    change = between(graph(), graph(env={"A": "b"}))
    assert actions(change)["decode"] is Action.RESTARTED
    output = "\n".join(as_lines(change))
    assert "workerTemplate." in output
    assert "need 17 free GPUs" in output


def test_a_leader_worker_set_is_installed_and_scaled(fresh: Cluster) -> None:
    values = graph() | {"model": {"id": "a/b", "cache": {"pvc": "models"}}}
    fresh.graph.write_text(yaml.safe_dump(values))
    output = fresh.expect(0, "apply", "--yes")
    assert "decode: created with 1 replica of 16 GPUs on 2 nodes" in output
    fresh.expect(0, "scale", "decode=2", "--cluster", "--yes")
    (group,) = fresh.api.store.of_kind("LeaderWorkerSet")
    assert group["spec"]["replicas"] == 2
    assert group["status"]["readyReplicas"] == 2
    assert fresh.run("diff")[0] == 0
    assert "decode           2/2" in fresh.run("status", "--cluster")[1]
