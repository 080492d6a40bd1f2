"""Keys that a manifest has twice."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.places import Node, Path, Repeated

KIND = "DynamoGraphDeployment"


def repeated_keys(
    deployment: ServingDeployment,
) -> Iterator[tuple[Location, str | int, Repeated]]:
    """The place of each key whose last value is used, the key, and its first value."""
    for index, root in _objects(deployment):
        for path, first in _repeated(root, (), set()):
            if len(path) > 1 or not _lacks_separator(root):
                yield Location("", "document", (index, *path)), path[-1], first


def missing_separators(deployment: ServingDeployment) -> Iterator[tuple[Location, int, int]]:
    """Where two objects are in one YAML document: the place of the first key of the second one,
    its line, and the line of the first object."""
    for index, root in _objects(deployment):
        if _lacks_separator(root):
            lines = {key: root.children[key][0].line for key in root.repeated}
            key = min(lines, key=lambda key: lines[key])
            begins = min(first.line for first in root.repeated.values())
            yield Location("", "document", (index, key)), lines[key], begins


def _lacks_separator(root: Node) -> bool:
    return root.repeated.keys() >= {"apiVersion", "kind"}


def _objects(deployment: ServingDeployment) -> Iterator[tuple[int, Node]]:
    """The objects of the file, with their index; those that several deployments share only for the
    first one."""
    graphs = [root for root in deployment.documents if root["kind"].value == KIND]
    for index, root in enumerate(deployment.documents):
        owner, node = root if root["kind"].value == KIND else graphs[0], root.document.node
        if owner.document is deployment.root.document and node is not None:
            yield index, node


def _repeated(node: Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, Repeated]]:
    """The path of each repeated key; aliases are read once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, first in node.repeated.items():
        yield (*path, key), first
    for step, (_, child) in node.children.items():
        yield from _repeated(child, (*path, step), seen)
