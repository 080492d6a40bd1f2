"""Small manifests for the tests of the reading side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import yaml

from penstock.errors import ManifestError, Problem
from penstock.manifests.deployment import Component, Deployment
from penstock.manifests.read import read_text

FRONTEND = """
- name: Frontend
  type: frontend
  podTemplate: {spec: {containers: [{name: main, image: a/frontend:1}]}}
"""


def beta(components: str, *, spec: str = "", name: str = "g", more: str = "") -> str:
    """A v1beta1 deployment; ``more`` are further documents."""
    head = (
        f"apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {{name: {name}}}\n"
    )
    body = "spec:\n" + textwrap.indent(spec, "  ") + "  components:\n"
    text = head + body + textwrap.indent(textwrap.dedent(components).strip("\n"), "  ") + "\n"
    return text + (f"---\n{textwrap.dedent(more)}" if more else "")


def alpha(services: str, *, spec: str = "", more: str = "") -> str:
    head = "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: g}\n"
    body = "spec:\n" + textwrap.indent(spec, "  ") + "  services:\n"
    text = head + body + textwrap.indent(textwrap.dedent(services).strip("\n"), "    ") + "\n"
    return text + (f"---\n{textwrap.dedent(more)}" if more else "")


def worker(container: str, *, kind: str = "worker", more: str = "", pod: str = "") -> str:
    """One v1beta1 worker whose `main` container has the fields in ``container``."""
    text = f"- name: w\n  type: {kind}\n{textwrap.indent(textwrap.dedent(more), '  ')}"
    text += "  podTemplate:\n    spec:\n"
    text += textwrap.indent(textwrap.dedent(pod), "      ")
    text += "      containers:\n      - name: main\n        image: a/vllm:1\n"
    return text + textwrap.indent(textwrap.dedent(container), "        ")


def read(text: str) -> Deployment:
    (deployment,) = read_text(text, "f.yaml")
    return deployment


def read_objects(objects: Iterable[object], source: str) -> tuple[Deployment, ...]:
    """The same objects, written as YAML by PyYAML."""
    return read_text(yaml.safe_dump_all(objects, allow_unicode=True), source)


def first(text: str) -> Component:
    return read(text).components[0]


def problems(text: str) -> tuple[Problem, ...]:
    try:
        read_text(text, "f.yaml")
    except ManifestError as error:
        return error.problems
    return ()


def only_problem(text: str) -> Problem:
    reported = problems(text)
    assert len(reported) == 1, reported
    return reported[0]
