"""Graphs, and what the chart renders from them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.graph.model import Graph
from penstock.manifests.render import Rendered, render
from tests.support.outside_files import graph_crd

ROOT = Path(__file__).parents[2]
GRAPHS = sorted((ROOT / "dynamo_graphs").glob("*.yaml"))
CRD = graph_crd()

Values = dict[str, Any]
OWN_IMAGE = "registry.example/llamacpp:1.6.1"


def installable(values: Mapping[str, Any]) -> Values:
    """The graph as a user installs it: llama.cpp needs an image of the user's own."""
    engine: Values = values["engine"]
    if engine["kind"] == "llamacpp":
        engine = {"image": OWN_IMAGE, **engine}
    return {**values, "engine": engine}


class Chart:
    """The parts of what the chart renders from graph values."""

    def render(self, values: Mapping[str, object], name: str = "demo") -> Rendered:
        return render(values, name=name)

    def dgd(self, values: Mapping[str, object], name: str = "demo") -> Values:
        objects = self.render(values, name).objects
        (dgd,) = (o for o in objects if o["kind"] == "DynamoGraphDeployment")
        return dict(dgd)

    def component(self, values: Mapping[str, object], name: str) -> Values:
        components = self.dgd(values)["spec"]["components"]
        return dict(next(c for c in components if c["name"] == name))

    def pod(self, values: Mapping[str, object], name: str) -> Values:
        return dict(self.component(values, name)["podTemplate"]["spec"])

    def main(self, values: Mapping[str, object], name: str) -> Values:
        return dict(self.pod(values, name)["containers"][0])

    def args(self, values: Mapping[str, object], name: str) -> list[str]:
        return list(self.main(values, name)["args"])

    def env(self, values: Mapping[str, object], name: str) -> dict[str, str]:
        return {e["name"]: e["value"] for e in self.main(values, name)["env"]}

    def config_text(self, values: Mapping[str, object], name: str) -> str:
        """The engine's file of a pool, through the volume that the pod mounts."""
        objects = self.render(values).objects
        (dgd,) = (o for o in objects if o["kind"] == "DynamoGraphDeployment")
        (component,) = (c for c in dgd["spec"]["components"] if c["name"] == name)
        volumes = component["podTemplate"]["spec"]["volumes"]
        (config_map_name,) = (
            v["configMap"]["name"] for v in volumes if v["name"] == "engine-config"
        )
        (config_map,) = (o for o in objects if o["metadata"]["name"] == config_map_name)
        (text,) = config_map["data"].values()
        return str(text)

    def config(self, values: Mapping[str, object], name: str) -> Values:
        """As the engine reads it: PyYAML, or JSON, which PyYAML reads too."""
        return dict(yaml.safe_load(self.config_text(values, name)))


def of_kind(values: Mapping[str, object], kind: str, name: str = "demo") -> list[Any]:
    """The objects of a kind that the chart renders from the graph."""
    return [o for o in render(values, name=name).objects if o["kind"] == kind]


def graph_values(kind: str = "mocker", *, shape: str = "disagg", **sections: Any) -> Values:
    """A small valid graph with sections merged over it; `None` removes nothing."""
    values: Values = {"model": {"id": "openai/gpt-oss-20b"}, "engine": {"kind": kind}}
    values |= {"prefill": {}, "decode": {}} if shape == "disagg" else {"worker": {}}
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    Graph.model_validate(values)
    return copy.deepcopy(values)
