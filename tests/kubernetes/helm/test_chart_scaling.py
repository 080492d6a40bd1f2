"""What an edit of the graph changes, and what it does not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.charts import Chart, Values, graph_values

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
