"""Paths of Dynamo's CRDs and published recipes, and small graph deployments for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from penstock.graph.load import parse_graph
from penstock.manifests.render import render
from tests.support.charts import installable
from tests.support.kubernetes_schemas.crd import Loader
from tests.support.outside_files import graph_crd, recipes

ROOT = Path(__file__).parents[3]
CRD = graph_crd()
RECIPES = recipes()
SAMPLES_FILE = Path(__file__).with_name("samples.yaml")
GRAPHS = sorted(path.name for path in (ROOT / "dynamo_graphs").glob("*.yaml"))
KIND = "DynamoGraphDeployment"

Document = dict[str, Any]


def deployment(version: str, spec: Document) -> Document:
    """``version`` is `v1alpha1` or `v1beta1`."""
    meta = {"name": "g"}
    return {"apiVersion": f"nvidia.com/{version}", "kind": KIND, "metadata": meta, "spec": spec}


def beta(**component: Any) -> Document:
    """The spec of a graph with one component."""
    return {"components": [{"name": "w", "type": "worker", **component}]}


@cache
def recipe(name: str) -> tuple[Document, ...]:
    """The complete graph deployments of a recipe's file, without kustomize patches."""
    documents = yaml.load_all((RECIPES / name).read_text("utf-8"), Loader)
    return tuple(
        d
        for d in documents
        if isinstance(d, dict) and d.get("kind") == KIND and "patch" not in name
    )


@cache
def rendered(graph: str) -> tuple[Document, ...]:
    """Every object that the chart renders for a graph of dynamo_graphs."""
    path = ROOT / "dynamo_graphs" / graph
    loaded = parse_graph(path.read_text("utf-8"), str(path))
    values = installable(loaded.values)
    return tuple(dict(item) for item in render(values, name=loaded.name).objects)


def graph_of(objects: tuple[Document, ...]) -> Document:
    (graph,) = [item for item in objects if item["kind"] == KIND]
    return graph
