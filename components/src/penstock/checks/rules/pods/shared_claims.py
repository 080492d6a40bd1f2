"""The rule about a volume for one node that several pods of the file mount."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import mappings
from penstock.engines.settings import Location, Path
from penstock.manifests.other_objects import DGD
from penstock.serving.deployment import ServingDeployment

SEVERAL_NODES = {"ReadWriteMany", "ReadOnlyMany"}
REPLICATED = ("Deployment", "StatefulSet", "ReplicaSet")


@dataclass(frozen=True, kw_only=True)
class _Pods:
    """Equal pods of one object."""

    claims: frozenset[str]
    count: int
    # False for a Job, which may release its volumes before others start.
    is_lasting: bool = True


def one_node_volume(deployment: ServingDeployment) -> Iterable[RuleResult]:
    objects = [root.value for root in deployment.documents if isinstance(root.value, Mapping)]
    counted = [(one, tuple(_pods(one, deployment))) for one in objects]
    for volume, modes in _claims_for_one_node(objects):
        claim = str(as_mapping(volume.get("metadata")).get("name"))
        mounting = [
            (one, pods)
            for one, group in counted
            for pods in group
            if claim in pods.claims and may_share_namespace(one, volume)
        ]
        place = _place(deployment, claim)
        graphs = [one for one, _ in mounting if one.get("kind") == DGD]
        # Once in the file, although every graph in it is checked.
        if place is None or not graphs or graphs[0] is not deployment.root.value:
            continue
        if sum(pods.count for _, pods in mounting if pods.is_lasting) > 1:
            count = sum(pods.count for _, pods in mounting)
            yield RuleResult(
                location=place,
                message=f"{claim} is {', '.join(map(str, modes))}, but {count} pods mount it",
                fix=Fix(text="Use the access mode ReadWriteMany."),
            )


def may_share_namespace(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both may be in one namespace: `kubectl apply -n` sets that of an object without."""
    names = [as_mapping(each.get("metadata")).get("namespace") for each in (one, other)]
    return None in names or names[0] == names[1]


def _claims_for_one_node(
    objects: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    for one in objects:
        modes = as_mapping(one.get("spec")).get("accessModes")
        if one.get("kind") != "PersistentVolumeClaim" or not isinstance(modes, list):
            continue
        if not SEVERAL_NODES & {str(mode) for mode in modes}:
            yield one, modes


def _place(deployment: ServingDeployment, claim: str) -> Location | None:
    """The first place of this deployment that mounts the claim."""
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for index, mount in enumerate(_list(pod.mounted.value)):
            if as_mapping(mount).get("name") == claim:
                return _field(component.name, ("volumeMounts", index))
        if claim in mounted_claims(pod.spec, None):
            return _field(component.name, ("pod", "volumes"))
    return None


def _field(component: str, path: Path) -> Location:
    return Location(component, "field", path)


def _pods(document: Mapping[str, Any], deployment: ServingDeployment) -> Iterator[_Pods]:
    """The pods that an object of the file starts; those on one certain node are left out."""
    if document is deployment.root.value:
        for component in deployment.components:  # their replicas are those after scaling
            pod = deployment.pods[component.name]
            count = component.replicas * component.nodes
            yield from _group(pod.spec, count, pod.mounted.value)
        return
    spec, kind = as_mapping(document.get("spec")), document.get("kind")
    template = as_mapping(as_mapping(spec.get("template")).get("spec"))
    if kind == DGD:
        services = as_mapping(spec.get("services")).values()
        for one in mappings([*services, *_list(spec.get("components"))]):
            pod_spec = as_mapping(as_mapping(one.get("podTemplate")).get("spec"))
            count = _count(one.get("replicas")) * _nodes(one)
            inner = as_mapping(one.get("extraPodSpec")) or pod_spec
            yield from _group(inner, count, one.get("volumeMounts"))
    elif kind in REPLICATED:
        yield from _group(template, _count(spec.get("replicas")))
    elif kind == "Pod":
        yield from _group(spec, 1)
    elif kind == "Job":
        yield from _group(template, _count(spec.get("parallelism")), is_lasting=False)


def _group(
    spec: Mapping[str, Any], count: int, mounted: object = None, *, is_lasting: bool = True
) -> Iterator[_Pods]:
    if "kubernetes.io/hostname" not in as_mapping(spec.get("nodeSelector")):
        claims = frozenset(mounted_claims(spec, mounted))
        yield _Pods(claims=claims, count=count, is_lasting=is_lasting)


def mounted_claims(spec: Mapping[str, Any], mounted: object) -> list[str]:
    """The claims in a PodSpec, and in the ``volumeMounts`` of a v1alpha1 service."""
    sources = (volume.get("persistentVolumeClaim") for volume in mappings(spec.get("volumes")))
    names = [as_mapping(source).get("claimName") for source in sources]
    names += [mount.get("name") for mount in mappings(mounted)]
    return [name for name in names if isinstance(name, str)]


def _nodes(component: Mapping[str, Any]) -> int:
    """`nodeCount` defaults to 2 if `multinode` is set at all (DGD CRD)."""
    multinode = component.get("multinode")
    return 1 if multinode is None else _count(as_mapping(multinode).get("nodeCount"), unset=2)


def _count(value: object, unset: int = 1) -> int:
    return value if isinstance(value, int) else unset


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
