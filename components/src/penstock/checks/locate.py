"""From a place in a deployment to the file's line and path, in a graph or in a manifest."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checks.fields import in_graph, in_manifest
from penstock.engines.settings import Location
from penstock.graph.load import LoadedGraph
from penstock.graph.origin import origin
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import KnownConfig
from penstock.manifests.engine_files import ENGINE_FILE
from penstock.manifests.pods import Container
from penstock.manifests.read import Manifest
from penstock.strict_yaml.document import read_documents
from penstock.strict_yaml.nodes import line_of, node_at


@dataclass(frozen=True)
class Place:
    """``override``: the --set that gave the value."""

    line: int | None
    path: str
    override: str | None = None


def locate(location: Location, manifest: Manifest, loaded: LoadedGraph | None) -> Place:
    """The nearest line there is; a place that nothing says leads to the part that would say it."""
    if location.what == "graph":
        dotted = ".".join(map(str, location.path))
        if loaded is None:
            return Place(None, dotted)
        return Place(loaded.places.line_of(dotted), dotted, loaded.places.set_of(dotted))
    if loaded is not None:
        return _in_graph(location, loaded)
    if location.what == "document":
        root = manifest.documents[int(location.path[0])]
        return _cursor(Cursor(root.document, None, location.path[1:]))
    if location.component not in manifest.pods:
        return _cursor(Cursor(manifest.root.document, None, location.path))
    if location.what == "config":
        return _config(location, manifest)
    if location.what in ("args", "env"):
        return _in_containers(location, manifest)
    path = in_manifest(location.path, manifest.pods[location.component])
    return _cursor(Cursor(manifest.root.document, None, path))


def _cursor(cursor: Cursor) -> Place:
    return Place(cursor.line, cursor.place)


def _in_graph(location: Location, loaded: LoadedGraph) -> Place:
    if location.what in ("config", "args", "env"):
        what = {"config": "engine_config"}.get(location.what, location.what)
        path = location.path or ("",)
        found = origin(loaded, (location.component, what, *path))
        return Place(found.line, found.path, found.override)
    paths = (
        in_graph(location.path, location.component)
        if location.component and location.path
        else (location.component,)
    )
    places = loaded.places
    said = [place for place in paths if place and places.nearest(place) == place]
    dotted = (said or list(paths))[0]
    return Place(places.line_of(dotted), dotted, places.set_of(dotted))


def _config(location: Location, manifest: Manifest) -> Place:
    """A key of the engine's file: in its ConfigMap, else at the component that writes it."""
    pod = manifest.pods[location.component]
    config = manifest.deployment.component(location.component).engine_config
    dotted = ".".join(str(step) for step in location.path)
    if not isinstance(config, KnownConfig):
        place = _cursor(pod.containers[0].cursor)
        return Place(place.line, f"{place.path}: {dotted}")
    kind, _, rest = config.place.partition("/")
    name, _, key = rest.rpartition("/")
    if kind == "ConfigMap":
        for root in manifest.documents:
            if root["kind"].value == kind and root.at("metadata", "name").value == name:
                return Place(_inner_line(root, key, location), f"{config.place}: {dotted}")
    return Place(_cursor(pod.containers[0].cursor).line, f"{config.path}: {dotted}")


def _inner_line(root: Cursor, key: str, location: Location) -> int | None:
    """The line of a key inside a `|` block; that of the block where it has none of its own."""
    line = line_of(root.document.node, ("data", key))
    node = node_at(root.document.node, ("data", key))
    if line is None or node is None or node.style != "|":
        return line
    roots, _ = read_documents(node.value, key, ENGINE_FILE)
    if not roots or node_at(roots[0], location.path[:1]) is None:
        return line
    return line + (line_of(roots[0], location.path) or 0)


def _in_containers(location: Location, manifest: Manifest) -> Place:
    """A variable or a flag: in the list that has it, else at the container."""
    pod = manifest.pods[location.component]
    for container in pod.containers:
        found = (
            _variable(container, location)
            if location.what == "env"
            else _argument(container, location)
        )
        if found is not None:
            return _cursor(found)
    main = pod.containers[0].cursor
    return _cursor(main[location.what] if main[location.what].value else main)


def _variable(container: Container, location: Location) -> Cursor | None:
    for entries in reversed(container.env.env):
        values = entries.value if isinstance(entries.value, list) else []
        for index, entry in enumerate(values):
            if isinstance(entry, dict) and entry.get("name") == location.path[0]:
                return Cursor(entries.document, entry, (*entries.path, index))
    return None


def _argument(container: Container, location: Location) -> Cursor | None:
    flag = str(location.path[0]) if location.path else ""
    for key in ("args", "command"):
        words = container.cursor[key]
        values = words.value if isinstance(words.value, list) else []
        for index, word in enumerate(values):
            if isinstance(word, str) and (word.split("=")[0] == flag or f"{flag} " in word):
                return Cursor(words.document, word, (*words.path, index))
    return None
