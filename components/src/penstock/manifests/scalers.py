"""Autoscalers that own the replicas of a component, with their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Kind → its fields for the bounds.
BOUNDS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """One autoscaler."""

    # One of BOUNDS; empty if the autoscaler is not among the manifests.
    kind: str = ""
    min_replicas: int = 1
    # None if the manifests do not set it.
    max_replicas: int | None = None

    def bounded(self, replicas: int) -> int:
        upper = replicas if self.max_replicas is None else min(self.max_replicas, replicas)
        return max(self.min_replicas, upper)

    def __str__(self) -> str:
        if not self.kind:
            return "an autoscaler"
        upper = "" if self.max_replicas is None else f" to {self.max_replicas}"
        return f"a {self.kind} ({self.min_replicas}{upper})"


def adapter_name(deployment: str, component: str) -> str:
    """The name of the DynamoGraphDeploymentScalingAdapter that the operator creates."""
    return f"{deployment}-{component}".lower()


def scalers(objects: Iterable[Any]) -> dict[str, Scaler]:
    """Autoscalers by the name of what they scale; malformed bounds are ignored here."""
    by_target = {}
    for manifest in objects:
        kind = str(_get(manifest, "kind"))
        name = _get(_get(_get(manifest, "spec"), "scaleTargetRef"), "name")
        if kind in BOUNDS and isinstance(name, str):
            lower, upper = (_count(_get(manifest["spec"], field)) for field in BOUNDS[kind])
            lower = 1 if lower is None else lower
            by_target[name] = Scaler(kind=kind, min_replicas=lower, max_replicas=upper)
    return by_target


def _get(section: Any, key: str) -> Any:
    return section.get(key) if isinstance(section, Mapping) else None


def _count(number: Any) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None
