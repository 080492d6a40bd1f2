"""k8s/: files are valid YAML, versions are pinned, rendered manifests are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.graph.load import load_graph
from penstock.manifests.render import chart_path
from penstock.manifests.source import render_graph
from tests.support.charts import ROOT

K8S = ROOT / "k8s"
RENDERED = sorted((K8S / "rendered").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return [d for d in yaml.safe_load_all(path.read_text("utf-8")) if d]


def test_every_file_is_yaml_and_no_manifest_contains_a_secret() -> None:
    files = [
        path
        for folder in ("operators", "gitops", "autoscaling")
        for path in (K8S / folder).glob("*.yaml")
    ]
    assert len(files) >= 6
    for path in files:
        manifests = documents(path)
        assert manifests, path
        assert all(d.get("kind") != "Secret" for d in manifests), path


def test_rendered_manifests_exist_for_the_main_graphs() -> None:
    assert {path.stem for path in RENDERED} == {
        "gpt-oss-120b-h200-disagg",
        "gpt-oss-120b-b200-disagg",
        "gpt-oss-120b-gb200-disagg",
        "gpt-oss-20b-h100",
    }


@pytest.mark.parametrize("path", RENDERED, ids=[path.stem for path in RENDERED])
def test_rendered_manifests_are_fresh(path: Path) -> None:
    graph = load_graph(ROOT / "dynamo_graphs" / path.name)
    assert path.read_text("utf-8") == render_graph(graph).text, "make manifests"


def test_gitops_examples_reference_a_graph_and_the_chart() -> None:
    (application,) = documents(K8S / "gitops" / "argocd.yaml")
    source = application["spec"]["source"]
    for values in source["helm"]["valueFiles"]:
        assert (ROOT / source["path"] / values).resolve().exists()
    _, release = documents(K8S / "gitops" / "flux.yaml")
    chart = release["spec"]["chart"]["spec"]
    assert (ROOT / chart["chart"]).resolve() == chart_path().resolve()
    assert all((ROOT / values).exists() for values in chart["valuesFiles"])


def test_the_platform_version_matches_the_charts_dynamo_version() -> None:
    version = yaml.safe_load((chart_path() / "Chart.yaml").read_text())["appVersion"]
    for text in (
        (ROOT / "docs" / "cluster.md"),
        (K8S / "operators" / "dynamo-platform.values.yaml"),
    ):
        assert version in text.read_text("utf-8")
