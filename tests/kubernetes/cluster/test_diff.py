"""The changes of an upgrade, computed from manifests alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cluster.compare import ABSENT, differences, format_value, overwritten
from penstock.cluster.diff import Diff, diff, drift
from penstock.cluster.report import as_dict, as_lines
from penstock.manifests.render import render
from tests.support.charts import Values, graph_values


def graph(**sections: Any) -> Values:
    pools = {"prefill": {"replicas": 4, "gpus": 1}, "decode": {"replicas": 2, "gpus": 4}}
    for name, section in pools.items():
        pools[name] = {**section, **sections.pop(name, {})}
    return graph_values("trtllm", **pools, **sections)


def between(before: Values | None, after: Values) -> Diff:
    old = render(before, name="g").objects if before is not None else ()
    return diff(old, render(after, name="g").objects)


def actions(found: Diff) -> dict[str, str]:
    return {c.name: c.action.value for c in found.components}


def lines(found: Diff, **known: Any) -> str:
    return "\n".join(as_lines(found, **known))


def test_the_same_graph_has_no_changes() -> None:
    found = between(graph(), graph())
    assert found.is_empty
    assert as_lines(found) == ["no changes"]


def test_an_installation_creates_all_components() -> None:
    found = between(None, graph())
    assert set(actions(found).values()) == {"created"}
    assert found.gpus == (0, 12)
    assert "decode: created with 2 replicas of 4 GPUs" in lines(found)


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
def test_replicas_alone_restart_nothing(platform: str) -> None:
    found = between(graph(platform=platform), graph(platform=platform, prefill={"replicas": 6}))
    assert actions(found) == {"frontend": "unchanged", "prefill": "scaled", "decode": "unchanged"}
    assert found.gpus == (12, 14)
    output = lines(found)
    assert "prefill: scaled 4 → 6, without restart" in output
    assert "GPUs: 12 → 14" in output
    assert "rollout" not in output


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
def test_a_change_of_one_pool_restarts_all_workers_and_reports_the_value(platform: str) -> None:
    changed = graph(platform=platform, decode={"config": {"max_batch_size": 64}})
    found = between(graph(platform=platform), changed)
    assert actions(found) == {
        "frontend": "unchanged",
        "prefill": "restarted",
        "decode": "restarted",
    }
    (change,) = next(c for c in found.components if c.name == "decode").changes
    assert str(change) == "config.max_batch_size unset → 64"
    output = lines(found)
    assert "prefill: restarted (replicas 4), because all workers restart with decode" in output
    assert "the KV cache of 4 × prefill and 2 × decode is lost" in output
    assert found.surge_gpus == 1 + 4


def test_a_change_of_the_frontend_restarts_no_workers() -> None:
    found = between(graph(), graph(router={"temperature": 0.5}))
    assert actions(found) == {
        "frontend": "restarted",
        "prefill": "unchanged",
        "decode": "unchanged",
    }
    assert found.restarted == ()
    assert "args.--router-policy-config unset → /etc/penstock/router.yaml" in lines(found)


def test_too_few_free_gpus_are_reported() -> None:
    found = between(graph(), graph(decode={"config": {"max_batch_size": 64}}))
    assert "not enough free GPUs" in lines(found, available_gpus=16)
    assert "not enough free GPUs" not in lines(found, available_gpus=17)
    assert "need 5 free GPUs" in lines(found)


def test_more_gpus_than_the_nodes_have_are_reported() -> None:
    found = between(graph(), graph(decode={"replicas": 4}))
    assert "4 too few: the graph's nodes have 16" in lines(found, available_gpus=16)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(1, "SERVING STOPS until it is replaced"), (3, "decode serves with 2 of 3")],
)
def test_a_graph_on_grove_loses_replicas_before_new_ones_start(
    replicas: int, expected: str
) -> None:
    """One multi-node pool moves the whole graph onto Grove, which has no surge."""
    wide = {"nodes": 2, "gpus": 8, "replicas": replicas}
    before = graph(decode=wide)
    after = graph(decode={**wide, "config": {"max_batch_size": 64}})
    found = between(before, after)
    assert [c.name for c in found.reduced] == ["prefill", "decode"]
    assert found.surge_gpus == 0
    assert expected in lines(found)


def test_changes_that_the_operator_rejects_are_reported() -> None:
    before = graph(decode={"nodes": 2, "gpus": 8})
    found = between(before, graph(decode={"nodes": 3, "gpus": 8}))
    assert [r.what for r in found.rejected] == ["decode: multinode.nodeCount 2 → 3"]
    onto_grove = [r.what for r in between(graph(), before).rejected]
    assert 'decode: multinode unset → {"nodeCount": 2}' in onto_grove
    assert any("nvidia.com/enable-grove" in text for text in onto_grove)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"cluster": {"topology": {"name": "t", "pack_domain": "rack"}}}, "topologyConstraint"),
        ({"engine": {"kind": "vllm"}}, "spec.backendFramework trtllm → vllm"),
    ],
)
def test_immutable_fields_of_a_graph_are_reported(sections: Values, expected: str) -> None:
    assert any(expected in str(text) for text in between(graph(), graph(**sections)).rejected)


def test_immutable_fields_of_volumes_are_reported() -> None:
    def claim(mode: str) -> Values:
        create = {"size": "1Ti", "access_mode": mode}
        return graph(model={"id": "a/b", "cache": {"pvc": "c", "create": create}})

    found = between(claim("ReadWriteMany"), claim("ReadWriteOnce"))
    assert any("PersistentVolumeClaim c: spec.accessModes" in str(r) for r in found.rejected)


def test_changed_labels_of_a_pod_monitor_are_a_change() -> None:
    def monitored(label: str) -> Values:
        return graph(cluster={"monitoring": {"pod_monitors": True, "labels": {"release": label}}})

    assert not between(monitored("a"), monitored("b")).is_empty


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (["--cuda-graph-bs", "1", "2", "4"], ["--cuda-graph-bs", "1", "8", "4"], "1 2 4 → 1 8 4"),
        (["--x", "1", "--x", "2"], ["--x", "1", "--x", "3"], "1 2 → 1 3"),
        (["--on"], ["--off"], "args.--on true → unset"),
    ],
)
def test_every_value_of_a_flag_is_compared(
    before: list[str], after: list[str], expected: str
) -> None:
    found = between(graph(decode={"args": before}), graph(decode={"args": after}))
    assert expected in lines(found)


def test_one_and_true_are_different_values() -> None:
    one = graph(decode={"config": {"max_batch_size": 1}})
    found = between(one, graph(decode={"config": {"max_batch_size": True}}))
    assert "config.max_batch_size 1 → true" in lines(found)


TOKEN = "hf_planted0123456789"


@pytest.mark.parametrize(
    "sections",
    [
        {"env": {"HF_TOKEN": TOKEN}},
        {"engine": {"kind": "trtllm", "env": {"AWS_SECRET_ACCESS_KEY": "planted"}}},
        {"frontend": {"args": ["--hf-token", "planted"]}},
        {"decode": {"config": {"anything": TOKEN}}},
        {"decode": {"config": {"api_key": "planted"}}},
    ],
)
def test_no_secret_is_printed(sections: Values) -> None:
    found = between(graph(), graph(**sections))
    assert not found.is_empty
    for output in (lines(found), str(as_dict(found, ()))):
        assert "planted" not in output
    assert "unset → (hidden)" in lines(found)


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("env.TIKTOKEN_ENCODINGS_BASE", "/models/encodings", "/models/encodings"),
        ("env.TOKENIZERS_PARALLELISM", "false", "false"),
        ("args.--max-num-batched-tokens", "8192", "8192"),
        ("env.API_TOKENS", "planted", "(hidden)"),
        ("env.HF_TOKEN", "12345", "(hidden)"),
    ],
)
def test_only_credentials_are_hidden(path: str, value: str, shown: str) -> None:
    (change,) = differences({path: value}, {})
    assert change.printable == (shown, "unset")


def test_scaling_up_and_surge_need_gpus_at_the_same_time() -> None:
    found = between(graph(), graph(decode={"replicas": 4, "config": {"max_batch_size": 64}}))
    assert found.required_free_gpus == 8 + 5
    assert "not enough free GPUs" in lines(found, available_gpus=24)


def test_pools_with_zero_replicas_cost_nothing() -> None:
    none = {"replicas": 0}
    changed = {"replicas": 0, "config": {"max_batch_size": 64}}
    found = between(graph(prefill=none, decode=none), graph(prefill=none, decode=changed))
    assert found.required_free_gpus == 0
    assert "KV cache" not in lines(found)


def test_scaling_a_pool_to_zero_reports_an_outage() -> None:
    assert "SERVING STOPS" in lines(between(graph(), graph(decode={"replicas": 0})))


def test_a_kept_volume_claim_is_not_reported_as_removed() -> None:
    cache = {"pvc": "c", "create": {"size": "1Ti"}}
    before = graph(model={"id": "a/b", "cache": cache})
    assert "PersistentVolumeClaim" not in lines(
        between(before, graph(model={"id": "a/b", "cache": {"pvc": "c"}}))
    )


def test_the_size_of_a_known_kv_cache_is_reported_in_tokens() -> None:
    found = between(graph(), graph(decode={"config": {"max_batch_size": 64}}))
    assert "up to 1,400 tokens" in lines(found, kv_tokens={"prefill": 100, "decode": 500})


def test_changes_of_other_objects_are_listed() -> None:
    after = graph(cluster={"monitoring": {"pod_monitors": True}}, prefill={"replicas": 6})
    output = lines(between(graph(), after))
    assert "also: PodDisruptionBudget g-prefill: spec.minAvailable 3 → 5" in output
    assert "also: PodMonitor g-decode: created" in output
    assert "also: PodMonitor g-decode: removed" in lines(between(after, graph()))


def test_changing_to_an_aggregated_graph_creates_and_removes_pools() -> None:
    found = between(graph(), graph_values("trtllm", shape="agg"))
    assert actions(found) == {
        "frontend": "unchanged",
        "worker": "created",
        "prefill": "removed",
        "decode": "removed",
    }


def test_changing_the_platform_recreates_everything() -> None:
    found = between(graph(), graph(platform="plain"))
    assert "all objects are deleted and recreated" in lines(found)
    assert set(actions(found).values()) == {"created"}
    assert found.gpus == (12, 12)


def test_json_contains_what_the_text_reports() -> None:
    found = between(graph(), graph(prefill={"replicas": 6}))
    report = as_dict(found, ())
    assert report["changed"] is True
    assert report["gpus"] == {"before": 12, "after": 14, "max": 14, "required_free": 0}
    (prefill,) = (c for c in report["components"] if c["name"] == "prefill")
    assert prefill["replicas"] == {"before": 4, "after": 6}


def live(change: Callable[[Values], None], **sections: Any) -> tuple[Any, Any]:
    """A release's objects, and the live objects after ``change``."""
    released = render(graph(**sections), name="g").objects
    live_objects = copy.deepcopy(list(released))
    for manifest in live_objects:
        manifest["status"] = {"state": "successful"}
        change(manifest)
    return released, live_objects


def scaled(manifest: Values) -> None:
    if manifest["kind"] == "DynamoGraphDeployment":
        decode = manifest["spec"]["components"][2]
        decode["replicas"] = 5
        fields = {"f:spec": {"f:components": {'k:{"name":"decode"}': {"f:replicas": {}}}}}
        manifest["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "fieldsV1": fields}]


def test_replicas_changed_on_the_cluster_are_drift_with_their_manager() -> None:
    (found,) = drift(*live(scaled))
    assert str(found) == "decode: replicas 2 → 5 since the release, by kubectl-edit"


def defaulted(manifest: Values) -> None:
    """Fields that an API server and an operator add."""
    if manifest["kind"] == "DynamoGraphDeployment":
        for component in manifest["spec"]["components"]:
            component["podTemplate"]["spec"]["restartPolicy"] = "Always"
            component["podTemplate"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"


def test_defaults_and_status_are_not_drift() -> None:
    assert drift(*live(defaulted)) == ()


def other_image(manifest: Values) -> None:
    if manifest["kind"] == "DynamoGraphDeployment":
        template = manifest["spec"]["components"][1]["podTemplate"]
        template["spec"]["containers"][0]["image"] = "mine:1"


def test_an_edit_of_a_pod_is_drift() -> None:
    (found,) = drift(*live(other_image))
    assert (found.component, found.change.path) == ("prefill", "image")


def test_lists_of_named_elements_are_compared_by_name() -> None:
    before = [{"name": "a", "value": 1}, {"name": "b", "value": 2}]
    after = [{"name": "b", "value": 3}, {"name": "a", "value": 1}]
    (change,) = differences(before, after)
    assert (change.path, change.before, change.after) == ("b.value", 2, 3)
    (removed,) = differences({"x": [1, 2]}, {})
    assert (removed.path, removed.after) == ("x", ABSENT)


def test_added_fields_are_not_overwritten() -> None:
    assert list(overwritten({"a": 1}, {"a": 1, "b": 2})) == []
    (change,) = overwritten({"a": 1}, {"a": 2})
    assert (change.before, change.after) == (1, 2)


def test_long_values_are_cut() -> None:
    assert len(format_value("x" * 100)) <= 60
    assert format_value("") == '""'
