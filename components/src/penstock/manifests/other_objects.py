"""What to say about a file of Kubernetes objects without a DynamoGraphDeployment."""

from __future__ import annotations

from penstock.errors import Problem, ProblemKind
from penstock.graph.foreign import OVERLAY
from penstock.manifests.documents import Cursor
from penstock.text.names import nearest

SIMILAR = 0.8  # DynamoGraphDeploy, not Deployment
DGD = "DynamoGraphDeployment"
_OF_CLUSTER = "with `kubectl get dynamographdeployments -o yaml > FILE`, then pass FILE"
# Kind → what it is, and what to check instead.
_KINDS = {
    "DynamoGraphDeploymentRequest": (
        f"from which the operator generates a {DGD}",
        f"Save the {DGD} that the operator generates {_OF_CLUSTER}.",
    ),
    "DynamoComponentDeployment": (
        f"which the operator creates for each component of a {DGD}",
        f"Save the {DGD} to which it belongs {_OF_CLUSTER}.",
    ),
    "DynamoModel": (
        "a model or LoRA adapter that a deployment serves",
        f"Pass the file with the {DGD} that serves it.",
    ),
    "DynamoGraphDeploymentScalingAdapter": (
        f"which holds the replicas of one component of a {DGD}",
        f"Pass it in one file with its {DGD}.",
    ),
    "DynamoWorkerMetadata": (
        "which a worker writes for discovery",
        f"Save the {DGD} to which the worker belongs {_OF_CLUSTER}.",
    ),
    "DynamoCheckpoint": ("which Dynamo 1.5 removed", f"Pass the file with the {DGD}."),
    "Kustomization": ("which names the files of an overlay", OVERLAY),
    "Component": (
        "which overlays of Kustomize use",
        "Build an overlay that uses it with `kubectl kustomize DIR > FILE`, then pass FILE.",
    ),
}


def no_deployment(roots: list[Cursor], lists: list[Cursor], source: str) -> Problem:
    """``roots``: every object of the file, with the items of ``lists`` in place of the lists."""
    if roots:
        return _other_kinds(roots, source)
    if lists:
        line, column = lists[0]["items"].position or (None, None)
        return Problem(
            file=source,
            line=line,
            column=column,
            place="items",
            message="the list has no items: `kubectl get` found no object",
            fix="Name the namespace and the kind: "
            "`kubectl get dynamographdeployments -n NAMESPACE -o yaml`.",
            kind=ProblemKind.NOTHING_TO_READ,
        )
    return Problem(
        file=source,
        message="the file is empty",
        fix=f"Add a {DGD}.",
        kind=ProblemKind.NOTHING_TO_READ,
    )


def _other_kinds(roots: list[Cursor], source: str) -> Problem:
    kinds = dict.fromkeys(str(root["kind"].value or "a document without kind") for root in roots)
    known = next((kind for kind in kinds if kind in _KINDS), None)
    fix = f"Pass a graph, or a manifest with a {DGD}."
    first = roots[0]
    if known is not None:
        about, fix = _KINDS[known]
        first = next(root for root in roots if root["kind"].value == known)
        kinds = {kind: None for kind in kinds if kind != known} | {f"{known}, {about}": None}
    elif mistyped := next((kind for kind in kinds if nearest(kind, [DGD], SIMILAR)), None):
        fix = f"Did you mean `kind: {DGD}`, instead of {mistyped}?"
    elif str(first["apiVersion"].value).startswith("nvidia.com/") and first["kind"].is_absent:
        fix = f"Add `kind: {DGD}` if it is one."
    line, column = first.position or (None, None)
    return Problem(
        file=source,
        line=line,
        column=column,
        message=f"the file contains no {DGD}, only: {', '.join(kinds)}",
        fix=fix,
        kind=ProblemKind.NOTHING_TO_READ,
    )
