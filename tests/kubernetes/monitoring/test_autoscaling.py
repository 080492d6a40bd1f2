"""The Prometheus queries of autoscalers: the chart's signals and k8s/autoscaling."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.kubernetes_schemas import builtin
from tests.support.monitoring import names
from tests.support.monitoring.files import ROOT, metric_names, query_of_signal, signals
from tests.support.monitoring.live import Prometheus

EXAMPLES = ROOT / "k8s" / "autoscaling"


def example(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / name).read_text("utf-8")))


def test_the_keda_example_has_the_charts_queries() -> None:
    triggers = example("keda.yaml")["spec"]["triggers"]
    expected = {query_of_signal("decode", s, "gpt-oss", "llm") for s in ("kv_usage", "requests")}
    assert {t["metadata"]["query"] for t in triggers} == expected


@pytest.mark.parametrize("version", builtin.VERSIONS)
def test_the_hpa_example_is_valid(version: str) -> None:
    assert builtin.problems(example("hpa.yaml"), version) == []


@pytest.mark.parametrize("name", ["hpa.yaml", "keda.yaml"])
def test_the_examples_scale_the_operators_adapter(name: str) -> None:
    manifest = example(name)
    target = manifest["spec"]["scaleTargetRef"]
    assert target["kind"] == "DynamoGraphDeploymentScalingAdapter"
    assert target["apiVersion"] == "nvidia.com/v1beta1"
    assert target["name"] == manifest["metadata"]["name"]


def test_the_kv_cache_gauge_is_set_by_all_engines() -> None:
    assert metric_names(query_of_signal("decode", "kv_usage")) <= names.component_gauges()


@pytest.mark.e2e
@pytest.mark.needs("prometheus")
def test_no_signal_is_0_without_scrape_targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The result is empty, which KEDA treats as an error: an outage does not scale in."""
    with Prometheus(tmp_path_factory.mktemp("prometheus"), {}) as prometheus:
        prometheus.wait(lambda: bool(prometheus.query("vector(1)")))
        assert [prometheus.query(text) for text in signals()] == [[]] * len(signals())
