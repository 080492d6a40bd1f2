"""The rule about keys that a manifest has twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.nodes import Node, Repeated
from penstock.strict_yaml.places import Path

KIND = "DynamoGraphDeployment"


def repeated_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    graphs = [root for root in deployment.documents if root["kind"].value == KIND]
    for index, root in enumerate(deployment.documents):
        # Objects that several deployments share are reported with the first one.
        owner = root if root["kind"].value == KIND else graphs[0]
        if owner.document is not deployment.root.document or root.document.node is None:
            continue
        for path, first in _repeated(root.document.node, (), set()):
            location, key = Location("", "document", (index, *path)), path[-1]
            yield _lost(location, key, first) if first.is_lost else _harmless(location, key, first)


def _lost(location: Location, key: int | str, first: Repeated) -> RuleResult:
    return RuleResult(
        location=location,
        message=f"duplicate key `{key}`: kubectl uses this one and ignores line {first.line}",
        fix=Fix(
            text=f"Copy what is needed from line {first.line} to this one, and remove `{key}` on "
            f"line {first.line}."
        ),
    )


def _harmless(location: Location, key: int | str, first: Repeated) -> RuleResult:
    return RuleResult(
        location=location,
        message=f"the key `{key}` is also on line {first.line}, where its value is empty or the "
        "same",
        why="Nothing is lost with `kubectl apply -f`, but Kustomize, and with it `kubectl apply "
        "-k` and Flux, refuses the file: “mapping key already defined”.",
        fix=Fix(text=f"Remove `{key}` on line {first.line}."),
        level=Level.NOTE,
    )


def _repeated(node: Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, Repeated]]:
    """The path of each repeated key; aliases are read once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, first in node.repeated.items():
        yield (*path, key), first
    for step, (_, child) in node.children.items():
        yield from _repeated(child, (*path, step), seen)
