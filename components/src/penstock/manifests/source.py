"""A file that a verb was given: a graph, rendered by the chart, or somebody's DGD manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ChartError, GraphError, ManifestError, Problem
from penstock.graph.load import LoadedGraph, parse_graph, read_text_file
from penstock.manifests.deployment import Deployment
from penstock.manifests.read import read_text
from penstock.manifests.render import Rendered, render

# Every Kubernetes document has both at its top level; a graph has neither.
_MANIFEST = (re.compile(r"^apiVersion\s*:", re.MULTILINE), re.compile(r"^kind\s*:", re.MULTILINE))


@dataclass(frozen=True, kw_only=True)
class Source:
    """``loaded`` is the graph behind the deployment, None for a manifest."""

    deployment: Deployment
    manifests: str
    loaded: LoadedGraph | None


def open_source(path: Path, sets: Sequence[str] = (), namespace: str = "default") -> Source:
    """Load and render a graph, or read a manifest.

    Raises InputError, GraphError, ChartError or ManifestError.
    """
    text = read_text_file(path)
    if is_manifest(text):
        return _manifest(text, str(path), sets, namespace)
    loaded = parse_graph(text, str(path), sets)
    rendered = render_graph(loaded, namespace)
    try:
        deployment, *_ = read_text(rendered.text, str(path), namespace=namespace)
    except ManifestError as error:
        # The lines are those of the rendered text, which nobody wrote.
        where = [replace(p, file=f"{path} (as rendered)", line=None) for p in error.problems]
        raise ManifestError(*where) from error
    return Source(deployment=deployment, manifests=rendered.text, loaded=loaded)


def is_manifest(text: str) -> bool:
    """Whether a file holds Kubernetes documents and not a graph."""
    return all(key.search(text) for key in _MANIFEST)


def render_graph(loaded: LoadedGraph, namespace: str = "default") -> Rendered:
    """The manifests of a graph file; ChartError points into the file, not into the chart."""
    try:
        return render(loaded.values, name=loaded.name, namespace=namespace)
    except ChartError as error:
        raise ChartError(*(_in_graph(p, loaded) for p in error.problems)) from error


def _in_graph(problem: Problem, loaded: LoadedGraph) -> Problem:
    if not problem.place or problem.place == "name":
        return problem
    return replace(problem, file=loaded.source, line=loaded.places.line_of(problem.place))


def _manifest(text: str, source: str, sets: Sequence[str], namespace: str) -> Source:
    if sets:
        raise GraphError(
            Problem(
                file=source,
                message="--set changes a graph, and this is a manifest",
                fix="edit the manifest, or give the graph it came from",
            )
        )
    deployments = read_text(text, source, namespace=namespace)
    if len(deployments) > 1:
        names = ", ".join(d.name for d in deployments)
        raise ManifestError(
            Problem(
                file=source,
                message=f"holds {len(deployments)} DynamoGraphDeployments: {names}",
                fix="split it, one graph a file",
            )
        )
    return Source(deployment=deployments[0], manifests=text, loaded=None)
