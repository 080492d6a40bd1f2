"""What an edit of the graph changes, and what the chart renders for each owner of replicas."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.manifests.read import read_text
from penstock.manifests.render import render
from tests.support.charts import Chart, Values, graph_values, of_kind

counts = st.integers(0, 300)
POOLS = {"disagg": ("prefill", "decode"), "agg": ("worker",)}


def without_replicas(objects: tuple[Any, ...]) -> list[Any]:
    """Without the disruption budgets, which depend on the replicas and restart no pod."""
    kept = [copy.deepcopy(o) for o in objects if o["kind"] != "PodDisruptionBudget"]
    for component in kept[-1]["spec"]["components"]:
        component.pop("replicas")
    return kept


@pytest.mark.slow
@given(st.sampled_from(["mocker", "trtllm", "vllm", "sglang"]), st.data())
@settings(max_examples=40, deadline=None)
def test_replicas_change_nothing_but_replicas(kind: str, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(sorted(POOLS)))
    before, after = (
        graph_values(
            kind,
            shape=shape,
            **{name: {"replicas": data.draw(counts)} for name in ("frontend", *POOLS[shape])},
        )
        for _ in range(2)
    )
    old, new = Chart().render(before).objects, Chart().render(after).objects
    assert without_replicas(old) == without_replicas(new)
    (dgd,) = (o for o in new if o["kind"] == "DynamoGraphDeployment")
    components = {c["name"]: c["replicas"] for c in dgd["spec"]["components"]}
    assert components == {name: after[name]["replicas"] for name in components}


@pytest.mark.parametrize(
    ("replicas", "router", "synced"),
    [
        (1, {}, True),
        (2, {}, True),
        (2, {"replica_sync": False}, False),
        (2, {"mode": "random"}, False),
    ],
)
def test_replica_sync_is_on_for_any_number_of_frontends_by_default(
    chart: Chart, replicas: int, router: dict[str, object], synced: bool
) -> None:
    values = graph_values(frontend={"replicas": replicas}, router=router)
    assert ("--router-replica-sync" in chart.args(values, "frontend")) is synced


def test_a_second_frontend_does_not_change_the_workers(chart: Chart) -> None:
    single, two = (graph_values(frontend={"replicas": n}) for n in (1, 2))
    for name in ("prefill", "decode"):
        assert chart.component(single, name) == chart.component(two, name)


def config_map(chart: Chart, values: Values, pool: str) -> str:
    (volume,) = (v for v in chart.pod(values, pool)["volumes"] if "configMap" in v)
    return str(volume["configMap"]["name"])


def test_a_changed_config_changes_only_the_config_map_of_its_pool(chart: Chart) -> None:
    before = graph_values("trtllm", decode={"config": {"max_batch_size": 8}})
    after = graph_values("trtllm", decode={"config": {"max_batch_size": 16}})
    assert config_map(chart, before, "decode") != config_map(chart, after, "decode")
    assert config_map(chart, before, "prefill") == config_map(chart, after, "prefill")


def test_config_maps_are_immutable_and_outlive_their_generation(chart: Chart) -> None:
    for config in chart.render(graph_values()).objects[:-1]:
        assert config["immutable"] is True
        assert config["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_an_upgrade_renders_what_an_install_renders() -> None:
    """No revision, clock or random value may reach a pod template."""
    import helm_python as helm

    from penstock.manifests.render import chart_path

    values = graph_values()
    with helm.Chart.load(chart_path()) as loaded:
        install = loaded.render(values, name="demo", is_install=True)
        upgrade = loaded.render(values, name="demo", is_upgrade=True, revision=7)
    assert install == upgrade


MONITORED = {"monitoring": {"pod_monitors": True}}
REQUESTS = {"owner": "keda", "max": 4, "signal": "requests", "target": 8}
CPU = {"owner": "hpa", "min": 2, "max": 6, "signal": "cpu", "target": 70}
PLANNER = {"max_gpus": 8, "config": {"ttft_ms": 500, "itl_ms": 20}}


def keda(**words: object) -> Values:
    return graph_values("vllm", decode={"autoscaling": {**REQUESTS, **words}}, cluster=MONITORED)


def test_fixed_replicas_need_no_scaling_adapter(chart: Chart) -> None:
    component = chart.component(graph_values(decode={"replicas": 3}), "decode")
    assert component["replicas"] == 3
    assert "scalingAdapter" not in component


@pytest.mark.parametrize("owner", [CPU, REQUESTS, {"owner": "external"}])
def test_autoscaled_replicas_are_omitted_and_have_a_scaling_adapter(
    chart: Chart, owner: dict[str, Any]
) -> None:
    values = graph_values(
        "vllm", decode={"autoscaling": owner, "resources": {"cpu": "8"}}, cluster=MONITORED
    )
    component = chart.component(values, "decode")
    assert component["scalingAdapter"] == {}
    assert "replicas" not in component
    assert chart.component(values, "prefill")["replicas"] == 1


@pytest.mark.parametrize("owner", [CPU, REQUESTS])
def test_the_scale_target_is_the_adapter_or_the_deployment(owner: dict[str, Any]) -> None:
    pool = {"autoscaling": owner, "resources": {"cpu": "8"}}
    kind = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[owner["owner"]]
    (scaler,) = of_kind(graph_values("vllm", decode=pool, cluster=MONITORED), kind)
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeploymentScalingAdapter",
        "name": "demo-decode",
    }
    plain = graph_values("vllm", decode=pool, cluster=MONITORED, platform="plain")
    (scaler,) = of_kind(plain, kind)
    target = scaler["spec"]["scaleTargetRef"]
    (deployment,) = (
        o for o in of_kind(plain, "Deployment") if o["metadata"]["name"] == target["name"]
    )
    assert target["kind"] == "Deployment"
    assert "replicas" not in deployment["spec"]


def test_a_pool_grows_as_fast_as_models_load_and_shrinks_as_they_drain() -> None:
    (scaler,) = of_kind({**keda(), "drain_timeout_s": 300}, "ScaledObject")
    behavior = scaler["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["policies"] == [
        {"type": "Percent", "value": 100, "periodSeconds": 300}
    ]
    assert behavior["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 360}]
    (longest,) = of_kind({**keda(), "drain_timeout_s": 7200}, "ScaledObject")
    behavior = longest["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["policies"][0]["periodSeconds"] == 1800  # Kubernetes' most
    (custom,) = of_kind(keda(behavior={"scaleDown": {"selectPolicy": "Disabled"}}), "ScaledObject")
    assert custom["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == {
        "scaleDown": {"selectPolicy": "Disabled"}
    }


def test_a_missing_signal_does_not_scale_in() -> None:
    (scaler,) = of_kind(keda(), "ScaledObject")
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert 'app_kubernetes_io_instance="demo"' in trigger["metadata"]["query"]
    assert 'namespace="default"' in trigger["metadata"]["query"]


def test_own_triggers_and_metrics_are_passed_on() -> None:
    cron = {"type": "cron", "metadata": {"timezone": "UTC", "start": "0 8 * * *"}}
    (scaler,) = of_kind(keda(signal=None, target=None, triggers=[cron]), "ScaledObject")
    assert scaler["spec"]["triggers"] == [cron]
    metric = {"type": "External", "external": {"metric": {"name": "queue"}}}
    values = graph_values(
        "vllm", decode={"autoscaling": {"owner": "hpa", "max": 4, "metrics": [metric]}}
    )
    (hpa,) = of_kind(values, "HorizontalPodAutoscaler")
    assert hpa["spec"]["metrics"] == [metric]


def test_statistics_are_published_if_they_are_the_signal(chart: Chart) -> None:
    values = graph_values(
        "trtllm",
        decode={"autoscaling": {**REQUESTS, "signal": "kv_usage", "target": 0.8}},
        cluster=MONITORED,
    )
    assert chart.env(values, "decode")["DYN_TRTLLM_PUBLISH_METRICS"] == "true"
    assert "DYN_TRTLLM_PUBLISH_METRICS" not in chart.env(values, "prefill")


def test_up_and_check_use_the_minimum_replicas() -> None:
    values = {**keda(min=3), "prefill": {"replicas": 2}}
    (deployment,) = read_text(render(values, name="demo").text, "demo")
    assert {c.name: c.replicas for c in deployment.components} == {
        "frontend": 1,
        "prefill": 2,
        "decode": 3,
    }


def test_a_disruption_budget_of_autoscaled_pods_is_a_number_of_pods() -> None:
    budgets = {
        o["metadata"]["name"]: o["spec"]
        for o in of_kind({**keda(), "prefill": {"replicas": 3}}, "PodDisruptionBudget")
    }
    assert budgets["demo-prefill"]["minAvailable"] == 2
    assert budgets["demo-decode"]["maxUnavailable"] == 1
    assert "demo-frontend" not in budgets


def planned(**planner: object) -> Values:
    pool = {"autoscaling": {"owner": "planner", "min": 2}}
    return graph_values("trtllm", prefill=pool, decode=pool, planner={**PLANNER, **planner})


def test_the_planner_is_a_component_with_the_operators_account(chart: Chart) -> None:
    values = {**planned(), "cluster": {"service_account": "cloud"}}
    component = chart.component(values, "planner")
    assert (component["type"], component["replicas"]) == ("planner", 1)
    pod = chart.pod(values, "planner")
    assert "serviceAccountName" not in pod
    assert chart.env(values, "planner")["PROMETHEUS_ENDPOINT"].startswith("http://prometheus")


def test_a_planner_without_pools_has_no_pod(chart: Chart) -> None:
    values = graph_values("trtllm", planner={"max_gpus": 8})
    assert chart.component(values, "planner")["replicas"] == 0


def test_the_planner_reaches_prometheus_through_the_network_policy() -> None:
    open_to = {"network_policy": {"enabled": True}, "monitoring": {"prometheus": "http://p:9091"}}
    policy = of_kind({**planned(), "cluster": open_to}, "NetworkPolicy")[0]
    ports = [p["port"] for rule in policy["spec"]["egress"] for p in rule.get("ports", ())]
    assert 9091 in ports
