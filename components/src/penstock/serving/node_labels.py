"""Which labels the nodes of a pod have, as its node selector and its affinity state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.manifests.pods import Pod


def node_labels(pod: Pod, names: Sequence[str]) -> Iterator[str]:
    """The values of these labels that a node may have to get the pod."""
    selector = pod.spec.get("nodeSelector")
    if isinstance(selector, dict):
        yield from (str(selector[name]) for name in names if name in selector)
    yield from _affinity(pod.spec.get("affinity"), names)


def _affinity(value: object, names: Sequence[str]) -> Iterator[str]:
    """The values of all match expressions on the labels in an affinity."""
    if isinstance(value, list):
        for item in value:
            yield from _affinity(item, names)
    elif isinstance(value, dict):
        if value.get("key") in names and value.get("operator") == "In":
            values = value.get("values")
            yield from map(str, values if isinstance(values, list) else ())
        for item in value.values():
            yield from _affinity(item, names)
