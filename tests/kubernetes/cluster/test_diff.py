"""The changes of an upgrade, computed from manifests alone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.compare import differences, format_value
from penstock.cluster.diff import Action, Diff, diff, is_worker
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


def actions(change_of: Diff) -> dict[str, str]:
    return {c.name: c.action.value for c in change_of.components}


def lines(change_of: Diff, **known: Any) -> str:
    return "\n".join(as_lines(change_of, **known))


def test_the_same_graph_has_no_changes() -> None:
    change = between(graph(), graph())
    assert change.is_empty
    assert as_lines(change) == ["no changes"]


BATCH = {"decode": {"config": {"max_batch_size": 64}}}
RACK = {"cluster": {"topology": {"name": "t", "pack_domain": "rack"}}}
CREATED = {"frontend": "created", "prefill": "created", "decode": "created"}
RESTARTED = {"frontend": "unchanged", "prefill": "restarted", "decode": "restarted"}
UNCHANGED = {"frontend": "unchanged", "prefill": "unchanged", "decode": "unchanged"}
MONITORED = {"cluster": {"monitoring": {"pod_monitors": True}}}


@pytest.mark.parametrize(
    ("before", "after", "expected", "texts"),
    [
        (None, graph(), CREATED, ["decode: created with 2 replicas of 4 GPUs", "GPUs: 0 → 12"]),
        *(
            (
                graph(platform=platform),
                graph(platform=platform, prefill={"replicas": 6}),
                {**UNCHANGED, "prefill": "scaled"},
                ["prefill: scaled 4 → 6, without restart", "GPUs: 12 → 14"],
            )
            for platform in ("dynamo", "plain")
        ),
        *(
            (
                graph(platform=platform),
                graph(platform=platform, **BATCH),
                RESTARTED,
                [
                    "config.max_batch_size unset → 64",
                    "prefill: restarted (replicas 4), because all workers restart with decode",
                    "the KV cache of 4 × prefill and 2 × decode is lost",
                    "need 5 free GPUs",
                ],
            )
            for platform in ("dynamo", "plain")
        ),
        (
            graph(),
            graph(router={"temperature": 0.5}),
            {**UNCHANGED, "frontend": "restarted"},
            ["args.--router-policy-config unset → /etc/penstock/router.yaml"],
        ),
        (
            graph(),
            graph_values("trtllm", shape="agg"),
            {
                "frontend": "unchanged",
                "worker": "created",
                "prefill": "removed",
                "decode": "removed",
            },
            [],
        ),
        (graph(), graph(platform="plain"), CREATED, ["all objects are deleted and recreated"]),
        (graph(), graph(decode={"replicas": 0}), None, ["SERVING STOPS"]),
        (
            graph(),
            graph(**MONITORED, prefill={"replicas": 6}),
            None,
            [
                "also: PodDisruptionBudget g-prefill: spec.minAvailable 3 → 5",
                "also: PodMonitor g-decode: created",
            ],
        ),
        (graph(**MONITORED), graph(), None, ["also: PodMonitor g-decode: removed"]),
        # In Python 1 equals True, for an engine it does not.
        (
            graph(decode={"config": {"max_batch_size": 1}}),
            graph(decode={"config": {"max_batch_size": True}}),
            RESTARTED,
            ["config.max_batch_size 1 → true"],
        ),
    ],
)
def test_the_changes_of_a_graph(
    before: Values | None, after: Values, expected: dict[str, str] | None, texts: list[str]
) -> None:
    change = between(before, after)
    output = lines(change)
    assert expected is None or actions(change) == expected
    assert [text for text in texts if text not in output] == []
    has_rollout = any(c.action is Action.RESTARTED and is_worker(c) for c in change.components)
    assert ("rollout: " in output) == has_rollout


def test_too_few_gpus_are_reported() -> None:
    restarted = between(graph(), graph(**BATCH))
    assert restarted.surge_gpus == 1 + 4
    assert "not enough free GPUs" in lines(restarted, available_gpus=16)
    assert "not enough free GPUs" not in lines(restarted, available_gpus=17)
    scaled_up = between(graph(), graph(decode={"replicas": 4}))
    assert "4 too few: the graph's nodes have 16" in lines(scaled_up, available_gpus=16)
    both = between(graph(), graph(decode={"replicas": 4, **BATCH["decode"]}))
    assert both.required_free_gpus == 8 + 5
    assert "not enough free GPUs" in lines(both, available_gpus=24)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(1, "SERVING STOPS until it is replaced"), (3, "decode serves with 2 of 3")],
)
def test_a_graph_on_grove_loses_replicas_before_new_ones_start(
    replicas: int, expected: str
) -> None:
    """One multi-node pool moves the whole graph onto Grove, which has no surge."""
    wide = {"nodes": 2, "gpus": 8, "replicas": replicas}
    change = between(graph(decode=wide), graph(decode={**wide, **BATCH["decode"]}))
    assert [c.name for c in change.reduced] == ["prefill", "decode"]
    assert change.surge_gpus == 0
    assert expected in lines(change)


def with_claim(mode: str) -> Values:
    create = {"size": "1Ti", "access_mode": mode}
    return graph(model={"id": "a/b", "cache": {"pvc": "c", "create": create}})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            graph(decode={"nodes": 2, "gpus": 8}),
            graph(decode={"nodes": 3, "gpus": 8}),
            ["decode: multinode.nodeCount 2 → 3"],
        ),
        (
            graph(),
            graph(decode={"nodes": 2, "gpus": 8}),
            ['decode: multinode unset → {"nodeCount": 2}', "nvidia.com/enable-grove"],
        ),
        (graph(), graph(**RACK), ["topologyConstraint"]),
        (graph(), graph(engine={"kind": "vllm"}), ["spec.backendFramework trtllm → vllm"]),
        (
            with_claim("ReadWriteMany"),
            with_claim("ReadWriteOnce"),
            ["PersistentVolumeClaim c: spec.accessModes"],
        ),
    ],
)
def test_changes_that_are_rejected_are_reported(
    before: Values, after: Values, expected: list[str]
) -> None:
    rejected = "\n".join(r.what for r in between(before, after).rejected)
    assert [text for text in expected if text not in rejected] == []


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
    change_of = between(graph(decode={"args": before}), graph(decode={"args": after}))
    assert expected in lines(change_of)


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
    change_of = between(graph(), graph(**sections))
    assert not change_of.is_empty
    for output in (lines(change_of), str(as_dict(change_of, ()))):
        assert "planted" not in output
    assert "unset → (hidden)" in lines(change_of)


@pytest.mark.parametrize(
    ("path", "value", "printed"),
    [
        ("env.TIKTOKEN_ENCODINGS_BASE", "/models/encodings", "/models/encodings"),
        ("env.TOKENIZERS_PARALLELISM", "false", "false"),
        ("args.--max-num-batched-tokens", "8192", "8192"),
        ("env.API_TOKENS", "planted", "(hidden)"),
        ("env.HF_TOKEN", "12345", "(hidden)"),
    ],
)
def test_only_credentials_are_hidden(path: str, value: str, printed: str) -> None:
    (change,) = differences({path: value}, {})
    assert change.printable == (printed, "unset")


def test_pools_with_zero_replicas_cost_nothing() -> None:
    none = {"replicas": 0}
    changed = {"replicas": 0, "config": {"max_batch_size": 64}}
    change_of = between(graph(prefill=none, decode=none), graph(prefill=none, decode=changed))
    assert change_of.required_free_gpus == 0
    assert "KV cache" not in lines(change_of)


def test_a_kept_volume_claim_is_not_reported_as_removed() -> None:
    cache = {"pvc": "c", "create": {"size": "1Ti"}}
    before = graph(model={"id": "a/b", "cache": cache})
    assert "PersistentVolumeClaim" not in lines(
        between(before, graph(model={"id": "a/b", "cache": {"pvc": "c"}}))
    )


def test_the_size_of_a_known_kv_cache_is_reported_in_tokens() -> None:
    change_of = between(graph(), graph(decode={"config": {"max_batch_size": 64}}))
    assert "up to 1,400 tokens" in lines(change_of, kv_tokens={"prefill": 100, "decode": 500})


def scaled(manifest: Values) -> None:
    if manifest["kind"] == "DynamoGraphDeployment":
        decode = manifest["spec"]["components"][2]
        decode["replicas"] = 5
        fields = {"f:spec": {"f:components": {'k:{"name":"decode"}': {"f:replicas": {}}}}}
        manifest["metadata"]["managedFields"] = [{"manager": "kubectl-edit", "fieldsV1": fields}]


def test_long_values_are_cut() -> None:
    assert len(format_value("x" * 100)) <= 60
    assert format_value("") == '""'
