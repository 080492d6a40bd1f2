"""From a place in a deployment to the file's line and path, in a graph or in a manifest."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from penstock.checks.fields import in_graph, in_manifest
from penstock.engines.settings import At
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import KnownConfig
from penstock.manifests.documents import line_of, node_at
from penstock.manifests.pods import Container
from penstock.manifests.read import Manifest


@dataclass(frozen=True)
class Place:
    """``override``: the --set that gave the value."""

    line: int | None
    path: str
    override: str | None = None


def locate(at: At, manifest: Manifest, loaded: LoadedGraph | None) -> Place:
    """The nearest line there is; a place that nothing says leads to the part that would say it."""
    if at.what == "graph":
        dotted = ".".join(map(str, at.path))
        if loaded is None:
            return Place(None, dotted)
        return Place(loaded.places.line_of(dotted), dotted, loaded.places.set_of(dotted))
    if loaded is not None:
        return _in_graph(at, loaded)
    if at.what == "document":
        root = manifest.documents[int(at.path[0])]
        return _cursor(Cursor(root.document, None, at.path[1:]))
    if at.component not in manifest.pods:
        return _cursor(Cursor(manifest.root.document, None, at.path))
    if at.what == "config":
        return _config(at, manifest)
    if at.what in ("args", "env"):
        return _in_containers(at, manifest)
    path = in_manifest(at.path, manifest.pods[at.component])
    return _cursor(Cursor(manifest.root.document, None, path))


def _cursor(cursor: Cursor) -> Place:
    return Place(cursor.line, cursor.place)


def _in_graph(at: At, loaded: LoadedGraph) -> Place:
    if at.what in ("config", "args", "env"):
        what = {"config": "engine_config"}.get(at.what, at.what)
        path = at.path or ("",)
        found = origin(loaded, (at.component, what, *path))
        return Place(found.line, found.path, found.override)
    paths = in_graph(at.path, at.component) if at.component and at.path else (at.component,)
    places = loaded.places
    said = [place for place in paths if place and places.nearest(place) == place]
    dotted = (said or list(paths))[0]
    return Place(places.line_of(dotted), dotted, places.set_of(dotted))


def _config(at: At, manifest: Manifest) -> Place:
    """A key of the engine's file: in its ConfigMap, else at the component that writes it."""
    pod = manifest.pods[at.component]
    config = manifest.deployment.component(at.component).engine_config
    dotted = ".".join(str(step) for step in at.path)
    if not isinstance(config, KnownConfig):
        place = _cursor(pod.containers[0].cursor)
        return Place(place.line, f"{place.path}: {dotted}")
    kind, _, rest = config.place.partition("/")
    name, _, key = rest.rpartition("/")
    if kind == "ConfigMap":
        for root in manifest.documents:
            if root["kind"].value == kind and root.at("metadata", "name").value == name:
                return Place(_inner_line(root, key, at), f"{config.place}: {dotted}")
    return Place(_cursor(pod.containers[0].cursor).line, f"{config.path}: {dotted}")


def _inner_line(root: Cursor, key: str, at: At) -> int | None:
    """The line of a key inside a `|` block; that of the block where it has none of its own."""
    line = line_of(root.document.node, ("data", key))
    node = node_at(root.document.node, ("data", key))
    if line is None or not isinstance(node, yaml.ScalarNode) or node.style != "|":
        return line
    inner = yaml.compose(node.value, Loader=yaml.CSafeLoader)
    if inner is None or node_at(inner, at.path[:1]) is None:
        return line
    return line + (line_of(inner, at.path) or 0)


def _in_containers(at: At, manifest: Manifest) -> Place:
    """A variable or a flag: in the list that has it, else at the container."""
    pod = manifest.pods[at.component]
    for container in pod.containers:
        found = _variable(container, at) if at.what == "env" else _argument(container, at)
        if found is not None:
            return _cursor(found)
    main = pod.containers[0].cursor
    return _cursor(main[at.what] if main[at.what].value else main)


def _variable(container: Container, at: At) -> Cursor | None:
    for entries in reversed(container.env.env):
        values = entries.value if isinstance(entries.value, list) else []
        for index, entry in enumerate(values):
            if isinstance(entry, dict) and entry.get("name") == at.path[0]:
                return Cursor(entries.document, entry, (*entries.path, index))
    return None


def _argument(container: Container, at: At) -> Cursor | None:
    flag = str(at.path[0]) if at.path else ""
    for key in ("args", "command"):
        words = container.cursor[key]
        values = words.value if isinstance(words.value, list) else []
        for index, word in enumerate(values):
            if isinstance(word, str) and (word.split("=")[0] == flag or f"{flag} " in word):
                return Cursor(words.document, word, (*words.path, index))
    return None
