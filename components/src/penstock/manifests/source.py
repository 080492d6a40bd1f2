"""The input file of a verb: a graph, which the chart renders, or a DGD manifest.

The graph model is imported only for a graph: it and pydantic take longer to import than a manifest
takes to check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ChartError, GraphError, ManifestError, Problem
from penstock.graph.foreign import kind_of_manifest
from penstock.graph.text_file import read_text_file
from penstock.manifests.deployment import Deployment
from penstock.manifests.documents import MOST_CHARACTERS, too_large
from penstock.manifests.read import Manifest, read_manifests
from penstock.manifests.render import RELEASE_NAME, Rendered, render

if TYPE_CHECKING:
    from penstock.graph.load import LoadedGraph

LOCAL_IMAGE = "penstock.invalid/llamacpp:local"  # no image: `.invalid` is reserved for such names
MOST_BYTES = 16 * 2**20  # of an input file; the CRDs of Dynamo have up to 1.6 MB each


@dataclass(frozen=True, kw_only=True)
class Source:
    """One deployment of an input file."""

    manifest: Manifest
    # The manifests.
    text: str
    # The graph from which they were rendered; None if the file is a manifest.
    loaded: LoadedGraph | None

    @property
    def deployment(self) -> Deployment:
        return self.manifest.deployment


def open_source(path: Path, sets: Sequence[str] = (), namespace: str = "default") -> Source:
    """Load and render a graph, or read a manifest, which must contain one deployment.

    Raises InputError, GraphError, ChartError or ManifestError.
    """
    sources = open_sources(path, sets, namespace)
    if len(sources) > 1:
        names = ", ".join(source.deployment.name for source in sources)
        raise ManifestError(
            f"contains {len(sources)} DynamoGraphDeployments: {names}",
            file=str(path),
            fix="Split it into one file per deployment.",
        )
    return sources[0]


def open_sources(
    path: Path, sets: Sequence[str] = (), namespace: str = "default"
) -> tuple[Source, ...]:
    """As `open_source`, with every deployment of a manifest."""
    return sources_of(read_text_file(path, MOST_BYTES), str(path), sets, namespace)


def sources_of(
    text: str, file: str, sets: Sequence[str] = (), namespace: str = "default"
) -> tuple[Source, ...]:
    """Every deployment of the text of a file; raises GraphError, ChartError or ManifestError."""
    if is_manifest(text):
        return _manifests(text, file, sets, namespace)
    if len(text) > MOST_CHARACTERS:
        raise GraphError(too_large(text, file, "a graph"))
    from penstock.graph.renamed_keys import warn_of

    source = graph_source(text, file, sets, namespace)
    if source.loaded is not None:
        warn_of(source.loaded.deprecations)
    return (source,)


def graph_source(
    text: str, source: str, sets: Sequence[str] = (), namespace: str = "default"
) -> Source:
    """Render the text of a graph; ``source`` is its file, whose stem is the deployment's name.

    Raises GraphError, ChartError or ManifestError.
    """
    from penstock.graph.load import parse_graph

    return rendered_source(parse_graph(text, source, sets), namespace)


def rendered_source(loaded: LoadedGraph, namespace: str = "default") -> Source:
    """Render a graph; raises ChartError or ManifestError."""
    source = loaded.source
    rendered = _as_dgd(_with_local_image(loaded), namespace)
    try:
        manifest, *_ = read_manifests(rendered.text, source, namespace=namespace)
    except ManifestError as error:
        # The lines are those of the rendered text, not of the user's file.
        where = [
            replace(p, file=f"{source} (as rendered)", line=None, column=None)
            for p in error.problems
        ]
        raise ManifestError(*where) from error
    return Source(manifest=manifest, text=rendered.text, loaded=loaded)


def _with_local_image(loaded: LoadedGraph) -> LoadedGraph:
    """The graph with an image, which the chart requires of llama.cpp and this machine does not use.

    What is installed on a cluster is rendered by `render_graph` alone, which refuses such a graph.
    """
    engine = loaded.graph.engine
    if engine.kind != "llamacpp" or engine.image is not None:
        return loaded
    values = {**loaded.values, "engine": {**loaded.values["engine"], "image": LOCAL_IMAGE}}
    return replace(loaded, values=values)


def _as_dgd(loaded: LoadedGraph, namespace: str) -> Rendered:
    """The graph as a DGD, whatever its platform; raises what rendering for its platform raises."""
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
        "cluster": {**cluster, "ssh_secret": None},  # the operator creates its own
    }
    return render(values, name=loaded.name, namespace=namespace)


def is_manifest(text: str) -> bool:
    """Whether a file contains Kubernetes objects, not a graph."""
    return kind_of_manifest(text) is not None


def render_graph(
    loaded: LoadedGraph, namespace: str = "default", name: str | None = None
) -> Rendered:
    """The manifests of a graph file; a ChartError has lines of the file, not of the chart.

    ``name`` is the name of the release, by default the file's stem.
    """
    try:
        return render(loaded.values, name=name or loaded.name, namespace=namespace)
    except ChartError as error:
        raise ChartError(*(_in_graph(p, loaded) for p in error.problems)) from error


def _in_graph(problem: Problem, loaded: LoadedGraph) -> Problem:
    if not problem.place or problem.place == "name":
        return problem
    if problem.place == RELEASE_NAME:
        message = f"the file's name is the name of the deployment: {problem.message}"
        fix = f"Rename the file. {problem.fix}"
        return replace(problem, file=loaded.source, message=message, fix=fix)
    return loaded.places.located(replace(problem, file=loaded.source))


def _manifests(text: str, source: str, sets: Sequence[str], namespace: str) -> tuple[Source, ...]:
    if sets:
        raise GraphError(
            "--set changes a graph, but this file is a manifest",
            file=source,
            fix="Edit the manifest, or pass the graph from which it was rendered.",
        )
    manifests = read_manifests(text, source, namespace=namespace)
    return tuple(Source(manifest=manifest, text=text, loaded=None) for manifest in manifests)
