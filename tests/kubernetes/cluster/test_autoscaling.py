"""Replicas owned by an autoscaler: diff, drift, status, and changes of the owner."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cluster.diff import Action, Diff, diff, drift
from penstock.cluster.progress import Observation, progress_of
from penstock.cluster.report import as_dict, as_lines
from penstock.errors import ClusterError
from penstock.manifests.render import render
from tests.support.emulated_cluster.adapters import KIND
from tests.support.emulated_cluster.released import Cluster
from tests.support.emulated_cluster.site import ADAPTERS

Values = dict[str, Any]
HPA = {"owner": "hpa", "min": 2, "max": 8, "metrics": [{"type": "x"}]}
PLATFORMS = ("dynamo", "plain")


def graph(**sections: Any) -> tuple[Any, ...]:
    values: Values = {
        "model": {"id": "a/b"},
        "hardware": {"gpu": "h100", "gpus_per_node": 8, "nodes": 4},
        "engine": {"kind": "trtllm"},
        "prefill": {"replicas": 4},
        "decode": {"replicas": 2, "gpus": 4},
    }
    return render({**values, **sections}, name="g").objects


def scaled(platform: str = "dynamo", **autoscaling: Any) -> tuple[Any, ...]:
    decode = {"gpus": 4, "autoscaling": {**HPA, **autoscaling}}
    return graph(decode=decode, platform=platform)


def with_live(objects: tuple[Any, ...], replicas: int) -> tuple[Any, ...]:
    """The objects with another number of decode replicas, as on a cluster."""
    for o in objects:
        for component in o.get("spec", {}).get("components", ()):
            if component["name"] == "decode":
                component["replicas"] = replicas
        if o["kind"] == "Deployment" and o["metadata"]["name"] == "g-decode":
            o["spec"]["replicas"] = replicas
    return objects


def decode_of(change: Diff) -> Any:
    return next(c for c in change.components if c.name == "decode")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_new_autoscaler_keeps_the_replicas_and_restarts_nothing(platform: str) -> None:
    change = diff(graph(platform=platform), scaled(platform), {"decode": 5, "prefill": 4})
    assert decode_of(change).action is Action.SCALED
    assert decode_of(change).replicas == (5, 5)
    output = as_lines(change, available_gpus=32)
    assert "decode: replicas will be set by a HorizontalPodAutoscaler (2 to 8)" in output
    assert (
        "GPUs: up to 36 when autoscalers reach their maximum; the graph's nodes have 32" in output
    )
    assert not [line for line in output if "restarted" in line]
    report = as_dict(change, ())
    assert report["gpus"]["max"] == 36
    assert report["components"][2]["autoscaled"] == {"before": False, "after": True}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_replicas_outside_the_new_bounds_move_into_them(platform: str) -> None:
    change = diff(scaled(platform), scaled(platform, min=4), {"decode": 3, "prefill": 4})
    assert "decode: scaled 3 → 4, without restart" in as_lines(change)
    assert diff(scaled(platform), scaled(platform), {"decode": 7, "prefill": 4}).is_empty


def test_a_new_autoscaled_component_starts_with_its_minimum() -> None:
    output = as_lines(diff((), scaled()))
    scaler = "a HorizontalPodAutoscaler (2 to 8)"
    assert f"decode: created with 2 replicas of 4 GPUs, then scaled by {scaler}" in output


def test_other_replicas_at_the_end_of_autoscaling_are_rejected_with_a_fix() -> None:
    (rejected,) = diff(scaled(), graph(), {"decode": 5, "prefill": 4}).rejected
    assert str(rejected) == "decode: replicas 5 → 2: cannot change while its autoscaling ends"
    assert rejected.fix.startswith(
        "Set decode.replicas to 5, apply, and set the new number afterwards"
    )
    assert diff(scaled(), graph(), {"decode": 2, "prefill": 4}).rejected == ()
    assert diff(scaled("plain"), graph(platform="plain"), {"decode": 5}).rejected == ()


def test_a_planner_cannot_be_added_to_an_installed_graph() -> None:
    planner = {"max_gpus": 32, "config": {"ttft_ms": 500, "itl_ms": 20}}
    planned = {"gpus": 4, "autoscaling": {"owner": "planner"}}
    (rejected,) = diff(graph(), graph(planner=planner, decode=planned)).rejected
    assert str(rejected) == "planner: cannot be added to an installed graph"
    waiting = graph(planner=planner)
    change = diff(waiting, graph(planner=planner, decode=planned), {"decode": 2, "prefill": 4})
    assert change.rejected == ()
    assert decode_of(change).action is Action.SCALED


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(("live", "is_drift"), [(2, False), (8, False), (9, True), (1, True)])
def test_only_replicas_outside_the_bounds_are_drift(
    platform: str, live: int, is_drift: bool
) -> None:
    entries = drift(scaled(platform), with_live(scaled(platform), live))
    assert [str(d.change) for d in entries] == (
        [f"replicas a HorizontalPodAutoscaler (2 to 8) → {live}"] if is_drift else []
    )


def test_an_autoscaler_that_cannot_scale_is_reported_but_does_not_fail_the_rollout() -> None:
    condition = {"type": "ScalingActive", "status": "False", "reason": "FailedGetMetric"}
    live = [dict(o) for o in scaled()]
    for o in live:
        if o["kind"] == "HorizontalPodAutoscaler":
            o["status"] = {"conditions": [{**condition, "message": "no metrics returned"}]}
    progress = progress_of(scaled(), Observation(live=tuple(live), pods=(), events=()))
    (diagnosis,) = progress.diagnoses
    assert str(diagnosis).startswith("HorizontalPodAutoscaler g-decode: cannot scale")
    assert "FailedGetMetric: no metrics returned" in str(diagnosis)
    assert not diagnosis.is_permanent
    scalers = {p.name: str(p.scaler) for p in progress.pools if p.scaler}
    assert scalers == {"decode": "a HorizontalPodAutoscaler (2 to 8)"}


def test_a_rollback_across_a_change_of_owner_keeps_the_replicas(installed: Cluster) -> None:
    installed.edit(prefill={"replicas": None, "autoscaling": {"owner": "external"}})
    assert installed.apply()[0] == 0
    installed.expect(0, "rollback", "1", "--yes")
    assert installed.replicas()["prefill"] == 2
    assert installed.api.store.of_kind(KIND) == []
    managers = {e["manager"] for e in installed.live()["metadata"]["managedFields"]}
    assert "penstock-replicas" not in managers


def test_a_rollback_that_would_be_rejected_writes_nothing_and_gives_a_fix(
    installed: Cluster,
) -> None:
    installed.edit(prefill={"replicas": None, "autoscaling": {"owner": "external"}})
    assert installed.apply()[0] == 0
    (adapter,) = installed.api.store.of_kind(KIND)
    key = ("nvidia.com/v1beta1", ADAPTERS, "default", "quick-prefill")
    installed.api.store.write(key, {**adapter, "spec": {**adapter["spec"], "replicas": 5}})
    installed.wait_until(lambda: installed.replicas()["prefill"] == 5)
    before = installed.api.store.of_kind("PodDisruptionBudget")
    output = installed.expect(ClusterError, "rollback", "1", "--yes")
    assert "prefill: replicas 5 → 2: cannot change while its autoscaling ends" in output
    assert "kubectl scale dgdsa/RELEASE-prefill --replicas=2" in output
    assert installed.api.store.of_kind("PodDisruptionBudget") == before


def test_changed_bounds_are_drift() -> None:
    live = [dict(o) for o in scaled()]
    for o in live:
        if o["kind"] == "HorizontalPodAutoscaler":
            o["spec"] = {**o["spec"], "maxReplicas": 80}
    (entry,) = drift(scaled(), with_live(tuple(live), 5), scaled())
    assert (
        str(entry) == "HorizontalPodAutoscaler g-decode: spec.maxReplicas 8 → 80 since the release"
    )
    assert entry.is_corrected_by_apply


def test_replacing_one_autoscaler_with_another_in_one_step_is_rejected() -> None:
    keda = {"owner": "keda", "min": 2, "max": 8, "triggers": [{"type": "cron"}]}
    after = graph(decode={"gpus": 4, "autoscaling": keda})
    (rejected,) = diff(scaled(), after).rejected
    assert rejected.what == "ScaledObject g-decode"
    assert "owner: external" in rejected.fix
    between = graph(decode={"gpus": 4, "autoscaling": {"owner": "external"}})
    assert diff(scaled(), between).rejected == diff(between, after).rejected == ()


def test_a_changed_target_and_a_changed_budget_are_each_reported() -> None:
    def rendered(target: int, max_gpus: int) -> tuple[Any, ...]:
        keda = {"owner": "keda", "max": 8, "signal": "requests", "target": target}
        planner = {"max_gpus": max_gpus, "config": {"ttft_ms": 500, "itl_ms": 20}}
        pools = {"prefill": {"autoscaling": {"owner": "planner"}}, "decode": {"autoscaling": keda}}
        return graph(**pools, planner=planner, cluster={"monitoring": {"pod_monitors": True}})

    output = "\n".join(as_lines(diff(rendered(16, 16), rendered(32, 24))))
    assert "spec.triggers[0].metadata.threshold 16 → 32" in output
    assert "args.--config.max_gpu_budget 16 → 24" in output


def test_a_credential_in_a_list_is_hidden() -> None:
    def rendered(**metadata: str) -> tuple[Any, ...]:
        trigger = {"type": "x", "metadata": metadata}
        keda = {"owner": "keda", "max": 8, "triggers": [trigger]}
        return graph(decode={"autoscaling": keda})

    change = diff(
        rendered(url="http://a:planted@c"), rendered(url="http://a:planted2@c", apiKey="sk-1")
    )
    report = json.dumps(as_dict(change, ())) + "\n".join(as_lines(change))
    assert "planted" not in report
    assert "sk-1" not in report
    assert "(hidden)" in report
