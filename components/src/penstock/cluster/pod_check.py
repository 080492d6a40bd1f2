"""A dry run of one pod per component, so that the namespace's policies are known before a write.

The API server checks pods only when a controller creates them, which is after Helm has succeeded.
What the Dynamo operator adds to a pod (probes, volumes, variables, its ServiceAccount) is not
checked, and of a quota only whether one more pod fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.diff import GROVE
from penstock.cluster.workloads import (
    COMPONENT,
    DEPLOYMENT,
    DGD,
    LEADER_WORKER_SET,
    Object,
    workloads,
)
from penstock.errors import Problem

FIX = "Change the graph (cluster.security, resources) or the namespace's policy, quota or limits"
QUOTA = "exceeded quota"
# Of a namespace that was created a moment ago: Kubernetes creates the account soon after it.
NEW_NAMESPACE = 'serviceaccount "default" not found'


@dataclass(frozen=True, kw_only=True)
class PodRefusals:
    """``errors``: ("pods of COMPONENT", reason); ``unchecked``: missing rights."""

    errors: tuple[tuple[str, str], ...] = ()
    unchecked: tuple[Problem, ...] = ()


def pod_refusals(
    api: Api, before: Sequence[Object], after: Sequence[Object], replicas: Mapping[str, int]
) -> PodRefusals:
    """Why the pods that a change to ``after`` creates would be refused. Raises ClusterError.

    ``replicas``: the current number by component.
    """
    old, new = workloads(before), workloads(after)
    accounts = {o["metadata"]["name"] for o in after if o["kind"] == "ServiceAccount"}
    errors: list[tuple[str, str]] = []
    for name, template in pod_templates(after):
        existing = old.get(name)
        replaces = existing is not None and new[name].replicas <= replicas.get(name, 0)
        if existing and replaces and new[name].spec == existing.spec:
            continue  # creates no pod
        try:
            found = api.pod_errors(_pod(name, template, accounts))
            reasons = [reason for reason in found if NEW_NAMESPACE not in reason]
        except ForbiddenError as error:
            return PodRefusals(errors=tuple(errors), unchecked=error.problems)
        # Without surge an old pod is deleted first, which frees its share of the quota.
        kept = (r for r in reasons if QUOTA not in r or not replaces or _has_surge(after))
        errors += [(f"pods of {name}", f"{reason}. Fix: {FIX}") for reason in kept]
    return PodRefusals(errors=tuple(dict.fromkeys(errors)))


def pod_templates(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """The component and template of each kind of pod; two for pools on several nodes."""
    for manifest in objects:
        spec = manifest.get("spec") or {}
        name = (manifest["metadata"].get("labels") or {}).get(COMPONENT, "")
        match manifest["kind"]:
            case kind if kind == DGD:
                yield from ((c["name"], c["podTemplate"]) for c in spec["components"])
            case kind if kind == DEPLOYMENT and name:
                yield name, spec["template"]
            case kind if kind == LEADER_WORKER_SET and name:
                group = spec["leaderWorkerTemplate"]
                yield name, group["leaderTemplate"]
                yield name, group["workerTemplate"]


def _pod(component: str, template: Object, accounts: set[str]) -> Object:
    """A pod of the template. A ServiceAccount of the release may not exist yet, and a missing one
    would hide the other reasons."""
    spec = {
        field: value
        for field, value in template["spec"].items()
        if field != "serviceAccountName" or value not in accounts
    }
    metadata = {**(template.get("metadata") or {}), "name": f"{component}-dry-run"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _has_surge(after: Sequence[Object]) -> bool:
    graphs = [o for o in after if o["kind"] == DGD]
    if not graphs:
        return True
    annotations = graphs[0]["metadata"].get("annotations") or {}
    return annotations.get(GROVE) == "false"
