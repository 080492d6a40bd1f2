"""The rule about keys that a manifest has twice without a loss; PS004 reports the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import KUBERNETES
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.nodes import Node
from penstock.strict_yaml.places import Path

KIND = "DynamoGraphDeployment"


@rule(
    id="PS009",
    title="repeated key without effect",
    level=Level.NOTE,
    cause="A mapping has the same key twice. kubectl uses the last value, and the first one is "
    "empty or the same, so nothing is lost.",
    effect="`kubectl apply -f` accepts the file, but Kustomize, and with it `kubectl apply -k` and "
    "Flux, refuse it: “mapping key already defined”.",
    remedy="Remove the first of the two keys.",
    source="sigs.k8s.io/yaml (Unmarshal); kubectl 1.32: `kubectl label --local` and `kubectl "
    "kustomize` with such a file; kubernetes#14791; kustomize#3523",
    versions=KUBERNETES,
    exceptions="If the first value is lost, PS004 reports an error. Nothing is "
    "reported for an engine's file in a ConfigMap, because the engine uses the last value.",
)
def repeated_key(deployment: ServingDeployment) -> Iterable[RuleResult]:
    graphs = [root for root in deployment.documents if root["kind"].value == KIND]
    for index, root in enumerate(deployment.documents):
        # Objects that several deployments share are reported with the first one.
        owner = root if root["kind"].value == KIND else graphs[0]
        if owner.document is not deployment.root.document or root.document.node is None:
            continue
        for path, line in _repeated(root.document.node, (), set()):
            yield RuleResult(
                location=Location("", "document", (index, *path)),
                message=f"the key `{path[-1]}` is also on line {line}, where its value is "
                "empty or the same",
                fix=Fix(text=f"Remove `{path[-1]}` on line {line}."),
            )


def _repeated(node: Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, int]]:
    """The path of each repeated key with the line of the first; aliases are read once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for key, line in node.repeated.items():
        yield (*path, key), line
    for step, (_, child) in node.children.items():
        yield from _repeated(child, (*path, step), seen)
