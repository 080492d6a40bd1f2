"""The PodSpec of a component, whichever API version it is written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.manifests.pods import Pod


def pod_spec(pod: Pod) -> Mapping[str, Any]:
    """What stands beside the pod's volumes; empty where the component has none of it."""
    value: Any = pod.cursor.document.value
    for step in pod.volumes.path[:-1]:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, Mapping) else {}
