"""What owns the replicas of a component, where its manifest does not: bounds by what is scaled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Kind → its words for the bounds.
BOUNDS = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """Bounds as far as the manifests say them; ``most`` is None where they do not."""

    kind: str = ""  # of BOUNDS, or "" where it is not among the manifests
    least: int = 1
    most: int | None = None

    def bounded(self, replicas: int) -> int:
        return max(self.least, replicas if self.most is None else min(self.most, replicas))

    def __str__(self) -> str:
        if not self.kind:
            return "an autoscaler"
        most = "" if self.most is None else f" to {self.most}"
        return f"a {self.kind} ({self.least}{most})"


def adapter_name(deployment: str, component: str) -> str:
    """Of the DynamoGraphDeploymentScalingAdapter that the operator makes of a component."""
    return f"{deployment}-{component}".lower()


def scalers(objects: Iterable[Any]) -> dict[str, Scaler]:
    """By the name of what they scale; what is malformed is left to those who judge it."""
    found = {}
    for manifest in objects:
        kind = str(_get(manifest, "kind"))
        name = _get(_get(_get(manifest, "spec"), "scaleTargetRef"), "name")
        if kind in BOUNDS and isinstance(name, str):
            least, most = (_count(_get(manifest["spec"], word)) for word in BOUNDS[kind])
            found[name] = Scaler(kind=kind, least=1 if least is None else least, most=most)
    return found


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
