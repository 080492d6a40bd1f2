"""Which objects of a namespace belong to a release: by their labels and owners, never their names.

The name of a release can begin with that of another, such as `gpt` and `gpt-canary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.kinds import PLURALS
from penstock.cluster.release import CHART
from penstock.cluster.workloads import COMPONENT, POD_COMPONENT, POD_GRAPH, Object
from penstock.helm import ReleaseTarget

NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
POD = "Pod"
# From a pod up to the graph: ReplicaSet, Deployment, DynamoComponentDeployment, and Grove's kinds.
MOST_OWNERS = 8


@dataclass
class OwnObjects:
    """The objects of one release. Asks the API server once about each object."""

    api: Api
    target: ReleaseTarget
    forbidden: dict[str, str] = field(default_factory=dict)
    """The API server's message by kind that the user may not read."""
    _components: dict[str, str | None] = field(default_factory=dict)
    """By uid; None: of something else."""

    def add_pods(self, pods: Iterable[Object]) -> None:
        """Pods of the release, as listed by their label."""
        for pod in pods:
            metadata = pod["metadata"]
            self._components[str(metadata.get("uid", ""))] = _labels(pod).get(POD_COMPONENT, "")

    def component(self, reference: Object) -> str | None:
        """The component of the object; "" if it is the graph's own; None if it is not known to
        belong to the release. Pods are known only from `add_pods`.

        ``reference``: apiVersion, kind, name and uid, as in an event or an owner reference. Raises
        ClusterError, but not for a kind that the user may not read.
        """
        return self._component(reference, MOST_OWNERS)

    def _component(self, reference: Object, left: int) -> str | None:
        uid, kind = str(reference.get("uid") or ""), reference.get("kind")
        if uid in self._components:
            return self._components[uid]
        is_known = kind in PLURALS and kind != POD and reference.get("apiVersion")
        if not (uid and left and is_known) or kind in self.forbidden:
            return None
        try:
            found = self.api.get({**reference, "metadata": {"name": reference.get("name")}})
        except ForbiddenError as error:
            self.forbidden[str(kind)] = str(error)
            return None
        # Another uid: an object of the same name from before.
        is_same = found is not None and found["metadata"].get("uid") == uid
        self._components[uid] = self._of_object(found, left) if found and is_same else None
        return self._components[uid]

    def _of_object(self, manifest: Object, left: int) -> str | None:
        labels = _labels(manifest)
        component = labels.get(POD_COMPONENT) or labels.get(COMPONENT) or ""
        if (release := _release(labels)) is not None:
            return component if release == self.target.name else None
        for owner in manifest["metadata"].get("ownerReferences") or ():
            if (of_owner := self._component(owner, left - 1)) is not None:
                return of_owner
        return None


def _release(labels: Mapping[str, str]) -> str | None:
    """The release that the labels name. The controllers copy a pod's labels to what creates it."""
    return labels.get(POD_GRAPH) or (labels.get(INSTANCE) if labels.get(NAME) == CHART else None)


def _labels(manifest: Object) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}
