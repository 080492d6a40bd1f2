"""Keys that a manifest has twice."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.nodes import Node, Repeated
from penstock.strict_yaml.places import Path

KIND = "DynamoGraphDeployment"


def repeated_keys(
    deployment: ServingDeployment,
) -> Iterator[tuple[Location, str | int, Repeated]]:
    """The place of each key whose last value is used, the key, and its first value.

    Objects that several deployments share are reported with the first one.
    """
    graphs = [root for root in deployment.documents if root["kind"].value == KIND]
    for index, root in enumerate(deployment.documents):
        owner = root if root["kind"].value == KIND else graphs[0]
        if owner.document is deployment.root.document and root.document.node is not None:
            for path, first in _repeated(root.document.node, (), set()):
                yield Location("", "document", (index, *path)), path[-1], first


def _repeated(node: Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, Repeated]]:
    """The path of each repeated key; aliases are read once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, first in node.repeated.items():
        yield (*path, key), first
    for step, (_, child) in node.children.items():
        yield from _repeated(child, (*path, step), seen)
