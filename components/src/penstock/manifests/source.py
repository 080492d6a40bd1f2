"""A file that a verb was given: a graph, rendered by the chart, or somebody's DGD manifest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.errors import ChartError, GraphError, ManifestError, Problem
from penstock.graph.load import LoadedGraph, parse_graph, read_text_file
from penstock.graph.renamed_keys import warn_of
from penstock.manifests.deployment import Deployment
from penstock.manifests.read import Manifest, read_manifests
from penstock.manifests.render import Rendered, render

# Every Kubernetes document has both at its top level; a graph has neither.
_MANIFEST = (re.compile(r"^apiVersion\s*:", re.MULTILINE), re.compile(r"^kind\s*:", re.MULTILINE))


@dataclass(frozen=True, kw_only=True)
class Source:
    """``text`` are the manifests; ``loaded`` is the graph behind them, None for a manifest."""

    manifest: Manifest
    text: str
    loaded: LoadedGraph | None

    @property
    def deployment(self) -> Deployment:
        return self.manifest.deployment


def open_source(path: Path, sets: Sequence[str] = (), namespace: str = "default") -> Source:
    """Load and render a graph, or read a manifest, which must hold one deployment.

    Raises InputError, GraphError, ChartError or ManifestError.
    """
    sources = open_sources(path, sets, namespace)
    if len(sources) > 1:
        names = ", ".join(source.deployment.name for source in sources)
        raise ManifestError(
            Problem(
                file=str(path),
                message=f"holds {len(sources)} DynamoGraphDeployments: {names}",
                fix="split it, one graph a file",
            )
        )
    return sources[0]


def open_sources(
    path: Path, sets: Sequence[str] = (), namespace: str = "default"
) -> tuple[Source, ...]:
    """As `open_source`, with every deployment that a manifest holds."""
    text = read_text_file(path)
    if is_manifest(text):
        return _manifests(text, str(path), sets, namespace)
    source = graph_source(text, str(path), sets, namespace)
    if source.loaded is not None:
        warn_of(source.loaded.deprecations)
    return (source,)


def graph_source(
    text: str, source: str, sets: Sequence[str] = (), namespace: str = "default"
) -> Source:
    """The text of a graph, rendered; ``source`` is its file, whose stem is the deployment's name.

    Raises GraphError, ChartError or ManifestError.
    """
    loaded = parse_graph(text, source, sets)
    rendered = _as_dgd(loaded, namespace)
    try:
        manifest, *_ = read_manifests(rendered.text, source, namespace=namespace)
    except ManifestError as error:
        # The lines are those of the rendered text, which nobody wrote.
        where = [replace(p, file=f"{source} (as rendered)", line=None) for p in error.problems]
        raise ManifestError(*where) from error
    return Source(manifest=manifest, text=rendered.text, loaded=loaded)


def _as_dgd(loaded: LoadedGraph, namespace: str) -> Rendered:
    """The graph as a DGD, whatever its platform; refused where its own platform refuses it."""
    rendered = render_graph(loaded, namespace)
    if loaded.graph.platform == "dynamo":
        return rendered
    infrastructure = loaded.values.get("infrastructure") or {}
    cluster = loaded.values.get("cluster") or {}
    discovery = loaded.graph.infrastructure.discovery or "etcd"
    values = {
        **loaded.values,
        "platform": "dynamo",
        "infrastructure": {**infrastructure, "discovery": discovery},
        "cluster": {**cluster, "ssh_secret": None},  # the operator makes its own
    }
    return render(values, name=loaded.name, namespace=namespace)


def is_manifest(text: str) -> bool:
    """Whether a file holds Kubernetes documents and not a graph."""
    return all(key.search(text) for key in _MANIFEST)


def render_graph(
    loaded: LoadedGraph,
    namespace: str = "default",
    name: str | None = None,
) -> Rendered:
    """The manifests of a graph file; ChartError points into the file, not into the chart.

    ``name`` is the release's, else the file's.
    """
    try:
        return render(loaded.values, name=name or loaded.name, namespace=namespace)
    except ChartError as error:
        raise ChartError(*(_in_graph(p, loaded) for p in error.problems)) from error


def _in_graph(problem: Problem, loaded: LoadedGraph) -> Problem:
    if not problem.place or problem.place == "name":
        return problem
    if problem.place == "release name":
        message = f"the file's name is the deployment's: {problem.message}"
        return replace(
            problem, file=loaded.source, message=message, fix=f"rename it: {problem.fix}"
        )
    return replace(problem, file=loaded.source, line=loaded.places.line_of(problem.place))


def _manifests(text: str, source: str, sets: Sequence[str], namespace: str) -> tuple[Source, ...]:
    if sets:
        raise GraphError(
            Problem(
                file=source,
                message="--set changes a graph, and this is a manifest",
                fix="edit the manifest, or give the graph it came from",
            )
        )
    found = read_manifests(text, source, namespace=namespace)
    return tuple(Source(manifest=manifest, text=text, loaded=None) for manifest in found)
