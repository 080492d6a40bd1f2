"""The chart with plain Helm: `helm install -f`, `helm package`."""

from __future__ import annotations

from pathlib import Path

import helm_python as helm
import pytest
import yaml

from penstock.graph.model import Graph
from penstock.manifests.render import chart_path, render
from tests.support.charts import graph_values, installable

pytestmark = pytest.mark.slow  # renders each graph twice


def test_a_values_file_gives_what_render_gives(graph_file: Path) -> None:
    """Manifests of values read by Helm and by penstock, with and without defaults."""
    text = graph_file.read_text("utf-8")
    ours = yaml.safe_load(text)
    if installable(ours) != ours:
        text = yaml.safe_dump(ours := installable(ours), sort_keys=False)
    complete = Graph.model_validate(ours).model_dump(mode="json", exclude_unset=False)
    name = graph_file.stem
    with helm.Chart.load(chart_path()) as loaded:
        stock = loaded.render(helm.values_from_yaml(text), name=name, namespace="default")
    manifests = [
        text.strip()
        for template, text in sorted(stock.items())
        if template.endswith(".yaml") and "/tests/" not in template and text.strip()
    ]
    objects = [o for m in manifests for o in yaml.safe_load_all(m) if o]
    assert list(render(ours, name=name).objects) == objects
    assert list(render(complete, name=name).objects) == objects


@pytest.mark.parametrize(
    ("section", "key"),
    [(None, "prefil"), ("frontend", "replica"), ("decode", "replcias"), ("model", "path_")],
)
def test_a_misspelled_key_is_refused_by_the_schema(section: str | None, key: str) -> None:
    values = graph_values()
    target = values if section is None else values.setdefault(section, {})
    target[key] = {} if section is None else 1
    with helm.Chart.load(chart_path()) as loaded, pytest.raises(helm.HelmValuesError, match=key):
        loaded.validate_schema(values)


def test_no_default_of_one_engine_leaks_into_another() -> None:
    with helm.Chart.load(chart_path()) as loaded:
        assert loaded.values["engine"] == {"device": "gpu", "config": {}, "args": [], "env": {}}


def test_the_app_version_is_the_installed_dynamo() -> None:
    from importlib.metadata import version

    with helm.Chart.load(chart_path()) as loaded:
        assert loaded.metadata["appVersion"] == version("ai-dynamo")


def notes(values: dict[str, object]) -> str:
    with helm.Chart.load(chart_path()) as loaded:
        return loaded.render(values, name="demo", namespace="ns")["penstock/templates/NOTES.txt"]


def test_notes_show_the_next_commands() -> None:
    text = notes(graph_values(frontend={"port": 9000}))
    assert "kubectl -n ns wait --for=condition=Ready dgd/demo --timeout=2h" in text
    assert "helm -n ns test demo --logs" in text
    assert "kubectl -n ns port-forward svc/demo-frontend 9000:8000" in text
    assert "curl -s localhost:9000/v1/models" in text


def test_notes_wait_for_every_kind_that_platform_plain_renders() -> None:
    single, several = ({"nodes": nodes, "gpus": 8} for nodes in (1, 2))
    wait = "wait --for=condition=Available deploy{} -l app.kubernetes.io/instance=demo"
    assert wait.format("") in notes(graph_values("vllm", platform="plain", decode=single))
    assert wait.format(",lws") in notes(graph_values("vllm", platform="plain", decode=several))


TWO = {"replicas": 2}


def test_notes_have_only_warnings_that_apply() -> None:
    quiet = graph_values(
        "trtllm",
        model={"id": "a/b", "path": "/m"},
        prefill=TWO,
        decode=TWO,
        kv_transfer={"transport": "rdma"},
    )
    assert "Warnings:" not in notes(quiet)
    loud = graph_values(
        model={"id": "a/b", "reasoning_parser": "gpt_oss"},
        engine={"kind": "mocker", "image": "x:latest"},
        infrastructure={"discovery": "file"},
    )
    warnings = notes(loud).split("Warnings:")[1].strip().splitlines()
    assert len(warnings) == len(("mocker", "parsers", "file", "prefill", "decode", "image"))
    assert "TCP" in notes(graph_values("trtllm"))
    assert "NO FABRIC" in notes(graph_values("trtllm", hardware={"fabric": "none"}))
