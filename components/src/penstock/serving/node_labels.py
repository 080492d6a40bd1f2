"""Which labels the nodes of a pod have, as its node selector and its affinity state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.manifests.pods import Pod


def node_labels(pod: Pod, names: Sequence[str]) -> Iterator[str]:
    """The values of these labels that a node may have to get the pod."""
    return (value for name, value in all_node_labels(pod) if name in names)


def all_node_labels(pod: Pod) -> Iterator[tuple[str, str]]:
    """Each label that a node may have to get the pod, with its value."""
    selector = pod.spec.get("nodeSelector")
    if isinstance(selector, dict):
        yield from ((str(name), str(value)) for name, value in selector.items())
    yield from _affinity(pod.spec.get("affinity"))


def _affinity(value: object) -> Iterator[tuple[str, str]]:
    """The labels and values of all match expressions in an affinity."""
    if isinstance(value, list):
        for item in value:
            yield from _affinity(item)
    elif isinstance(value, dict):
        if value.get("operator") == "In":
            values = value.get("values")
            for one in values if isinstance(values, list) else ():
                yield str(value.get("key")), str(one)
        for item in value.values():
            yield from _affinity(item)
