"""The `tracing` section: its mistakes, and the variables that the chart derives from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.errors import GraphError
from penstock.graph.load import parse_graph
from tests.support.charts import Chart

GRAPH = """\
model: {id: openai/gpt-oss-20b}
engine: {kind: mocker}
worker: {replicas: 1}
"""


@pytest.mark.parametrize(
    "endpoint",
    [
        "tempo:4317",
        "https://tempo:4317",
        "http://tempo",
        "http://tempo:4318/v1/traces",
        "http://t:0",
        "http://tempo:65536",
        "grpc://tempo:4317",
        "http://user@tempo:4317",
    ],
)
def test_an_endpoint_needs_http_a_port_and_no_path(endpoint: str) -> None:
    with pytest.raises(GraphError, match="must be an http URL with a port, without a path"):
        parse_graph(f"{GRAPH}tracing: {{endpoint: '{endpoint}'}}\n", "g.yaml")


@pytest.mark.parametrize(
    "endpoint", ["http://PLANTED:PLANTED@t:4317", "http://u:PLANTED@/PLANTED@t:1", "//u:PLANTED@t"]
)
def test_a_password_in_an_endpoint_is_not_printed(
    endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, other = tmp_path / "written.yaml", tmp_path / "other.yaml"
    written.write_text(f"{GRAPH}tracing: {{endpoint: '{endpoint}'}}\n")
    other.write_text(GRAPH)
    for argv in ([str(written)], [str(other), "--set", f"tracing.endpoint={endpoint}"]):
        for form in ([], ["--json"]):
            assert main(["check", *argv, *form]) == 14
            printed = capsys.readouterr()
            assert "PS002" in printed.out
            assert "(not shown)@t" in printed.out
            assert "PLANTED" not in printed.out + printed.err


@pytest.mark.parametrize("ratio", ["-0.1", "1.5"])
def test_a_ratio_is_between_0_and_1(ratio: str) -> None:
    with pytest.raises(GraphError, match=r"tracing\.sample_ratio: must be at"):
        parse_graph(
            f"{GRAPH}tracing: {{endpoint: 'http://t:4317', sample_ratio: {ratio}}}\n", "g.yaml"
        )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("env: {OTEL_SERVICE_NAME: x}", "env.OTEL_SERVICE_NAME"),
        ("frontend: {env: {OTEL_EXPORT_ENABLED: 'false'}}", "frontend.env.OTEL_EXPORT_ENABLED"),
    ],
)
def test_a_variable_of_the_export_cannot_be_set_too(text: str, place: str) -> None:
    with pytest.raises(GraphError) as error:
        parse_graph(f"{GRAPH}tracing: {{endpoint: 'http://t:4317'}}\n{text}\n", "g.yaml")
    assert f"{place}: cannot be combined with `tracing`" in str(error.value)


def test_other_variables_of_opentelemetry_may_be_set() -> None:
    text = "tracing: {endpoint: 'http://t:4317'}\nenv: {OTEL_EXPORTER_OTLP_HEADERS: 'a=b'}\n"
    assert parse_graph(GRAPH + text, "g.yaml").graph.tracing is not None


def test_the_chart_sets_the_export_of_every_component_but_the_planner() -> None:
    values = {
        "model": {"id": "openai/gpt-oss-20b"},
        "engine": {"kind": "mocker"},
        "prefill": {"autoscaling": {"owner": "planner"}},
        "decode": {"replicas": 1},
        "planner": {"max_gpus": 4, "config": {"ttft_ms": 500, "itl_ms": 20}},
        "tracing": {"endpoint": "http://tempo.monitoring:4318"},
        "cluster": {"network_policy": {"enabled": True}},
    }
    chart = Chart()
    for component in ("frontend", "prefill", "decode"):
        assert exported(chart.env(values, component)) == {
            "OTEL_EXPORT_ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://tempo.monitoring:4318",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": f"demo-{component}",
            "OTEL_TRACES_SAMPLE_RATIO": "0.1",
        }
    assert exported(chart.env(values, "planner")) == {}
    policies = [o for o in chart.render(values).objects if o["kind"] == "NetworkPolicy"]
    assert {"port": 4318, "protocol": "TCP"} in policies[0]["spec"]["egress"][1]["ports"]


def test_another_port_is_grpc_and_the_ratio_may_be_0() -> None:
    values = {
        "model": {"id": "openai/gpt-oss-20b"},
        "engine": {"kind": "mocker"},
        "worker": {"replicas": 1},
        "tracing": {"endpoint": "http://tempo:4317", "sample_ratio": 0.0},
    }
    env = Chart().env(values, "worker")
    assert env["OTEL_EXPORTER_OTLP_PROTOCOL"] == "grpc"
    assert env["OTEL_TRACES_SAMPLE_RATIO"] in ("0", "0.0")
    del values["tracing"]
    assert exported(Chart().env(values, "worker")) == {}


def exported(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith("OTEL_")}
