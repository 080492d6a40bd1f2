"""Objects of the file that pods use: claims, ConfigMaps, Secrets and Services."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.checks.rules.containers import mappings
from penstock.checks.rules.pods.pod_containers import indexed
from penstock.engines.settings import Location, Path
from penstock.manifests.documents import Cursor
from penstock.manifests.other_objects import DGD
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment
from penstock.text.names import nearest_name
from penstock.text.values import as_mapping

SEVERAL_NODES = {"ReadWriteMany", "ReadOnlyMany"}
# Kind of an object that starts equal pods → the key of their number.
NUMBERS_OF_PODS = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet"), "replicas"),
    "Job": "parallelism",
}
# Field that names an object → its key with the name, and the kind of the object.
REFERENCES = {
    "configMap": ("name", "ConfigMap"),
    "configMapRef": ("name", "ConfigMap"),
    "configMapKeyRef": ("name", "ConfigMap"),
    "secret": ("secretName", "Secret"),
    "secretRef": ("name", "Secret"),
    "secretKeyRef": ("name", "Secret"),
    "persistentVolumeClaim": ("claimName", "PersistentVolumeClaim"),
}
SIMILAR = 0.8
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")  # the id of a model on the hub


def may_share_namespace(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both may be in one namespace: `kubectl apply -n` sets that of an object without."""
    names = [as_mapping(each.get("metadata")).get("namespace") for each in (first, second)]
    return None in names or names[0] == names[1]


def near_objects(deployment: ServingDeployment) -> Iterator[tuple[int, str, str]]:
    """(index, kind, name) of the documents that may be in the deployment's namespace."""
    for index, root in enumerate(deployment.documents):
        if may_share_namespace(as_mapping(root.value), as_mapping(deployment.root.value)):
            yield index, str(root["kind"].value), str(root.at("metadata", "name").value)


def shared_claims(deployment: ServingDeployment) -> Iterator[tuple[str, list[Any], int, Location]]:
    """(name, access modes, pods, first place of the deployment) of each claim for one node that
    several pods of the file mount. Of several graphs, only the first one has the claim."""
    objects = [root.value for root in deployment.documents if isinstance(root.value, Mapping)]
    started = [
        (document, count, mounted_claims(spec, mounted))
        for document in objects
        for spec, count, mounted in _pods(document, deployment)
        if "kubernetes.io/hostname" not in as_mapping(spec.get("nodeSelector"))  # on one node
    ]
    for volume in objects:
        modes = as_mapping(volume.get("spec")).get("accessModes")
        if volume.get("kind") != "PersistentVolumeClaim" or not isinstance(modes, list):
            continue
        claim = str(as_mapping(volume.get("metadata")).get("name"))
        mounting = [
            (document, count)
            for document, count, claims in started
            if claim in claims and may_share_namespace(document, volume)
        ]
        graphs = [document for document, _ in mounting if document.get("kind") == DGD]
        # A Job may release its volumes before other pods start.
        lasting = sum(count for document, count in mounting if document.get("kind") != "Job")
        is_for_one = not SEVERAL_NODES & {str(mode) for mode in modes}
        if is_for_one and lasting > 1 and graphs and graphs[0] is deployment.root.value:
            if (place := _place(deployment, claim)) is not None:
                yield claim, modes, sum(count for _, count in mounting), place


def _place(deployment: ServingDeployment, claim: str) -> Location | None:
    for name, pod in ((c.name, deployment.pods[c.name]) for c in deployment.components):
        for index, mount in indexed(pod.mounted.value):
            if mount.get("name") == claim:
                return Location(name, "field", ("volumeMounts", index))
        if claim in mounted_claims(pod.spec, None):
            return Location(name, "field", ("pod", "volumes"))
    return None


def _pods(
    document: Mapping[str, Any], deployment: ServingDeployment
) -> Iterator[tuple[Mapping[str, Any], int, Any]]:
    """(PodSpec, pods, `volumeMounts` of a v1alpha1 service) of what an object starts."""
    if document is deployment.root.value:
        for component in deployment.components:  # their replicas are those after scaling
            pod = deployment.pods[component.name]
            yield pod.spec, component.replicas * component.nodes, pod.mounted.value
        return
    spec, kind = as_mapping(document.get("spec")), str(document.get("kind"))
    if kind == DGD:
        listed = [*as_mapping(spec.get("services")).values()]
        for part in (*mappings(listed), *mappings(spec.get("components"))):
            pod_spec = as_mapping(as_mapping(part.get("podTemplate")).get("spec"))
            count = _count(part.get("replicas")) * _nodes(part)
            yield as_mapping(part.get("extraPodSpec")) or pod_spec, count, part.get("volumeMounts")
    elif kind == "Pod":
        yield spec, 1, None
    elif kind in NUMBERS_OF_PODS:
        template = as_mapping(as_mapping(spec.get("template")).get("spec"))
        yield template, _count(spec.get(NUMBERS_OF_PODS[kind])), None


def _nodes(component: Mapping[str, Any]) -> int:
    """`nodeCount` defaults to 2 if `multinode` is set at all (DGD CRD)."""
    multinode = component.get("multinode")
    return 1 if multinode is None else _count(as_mapping(multinode).get("nodeCount"), unset=2)


def _count(value: object, unset: int = 1) -> int:
    return value if isinstance(value, int) else unset


def mounted_claims(spec: Mapping[str, Any], mounted: object) -> list[str]:
    """The claims in a PodSpec, and in the ``volumeMounts`` of a v1alpha1 service."""
    sources = (volume.get("persistentVolumeClaim") for volume in mappings(spec.get("volumes")))
    names = [as_mapping(source).get("claimName") for source in sources]
    names += [mount.get("name") for mount in mappings(mounted)]
    return [name for name in names if isinstance(name, str)]


def has_cache(pod: Pod) -> bool:
    """Whether a volume may contain the model."""
    kinds = {kind for volume in mappings(pod.volumes.value) for kind in volume}
    claims = mounted_claims(pod.spec, pod.mounted.value)
    return bool(claims) or not kinds.isdisjoint(("hostPath", "nfs", "csi"))


def misspelled_objects(deployment: ServingDeployment) -> Iterator[tuple[str, str, str, Location]]:
    """(kind, name, name in the file, place) of each object that a pod names and the file does not
    have, if it has one of a similar name that nothing uses."""
    objects = {(kind, name) for _, kind, name in near_objects(deployment)}
    used: set[str] = set()
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        seen = set(objects)
        for path, kind, name in _references(cursor):
            names = {written for of, written in objects if of == kind}
            if (kind, name) in seen or not names:
                continue
            seen.add((kind, name))
            used = used or {
                text
                for root in deployment.documents
                for at, text in _walk(root.value, ())
                if isinstance(text, str) and at[-2:] != ("metadata", "name")
            }
            if near := nearest_name(name, sorted(names - used), SIMILAR):
                yield kind, name, near, Location("", "manifest", path)


def _references(cursor: Cursor) -> Iterator[tuple[Path, str, str]]:
    """(path, kind, name) of each object that must exist."""
    for path, value in _walk(cursor.value, cursor.path):
        if path[-1] in REFERENCES and isinstance(value, Mapping) and not value.get("optional"):
            key, kind = REFERENCES[str(path[-1])]
            name = value.get(key)
            # Other texts are placeholders of a template.
            if isinstance(name, str) and name.replace("-", "").replace(".", "").isalnum():
                yield (*path, key), kind, name


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """(path, value) of a value and of all those in it."""
    yield path, value
    steps = enumerate(value) if isinstance(value, list) else as_mapping(value).items()
    for step, inner in steps:
        yield from _walk(inner, (*path, step))


def services_of(deployment: ServingDeployment) -> Mapping[str, Location]:
    """The name and place of each Service of the file and of the operator, which has one for each
    component. A headless Service sets no variables."""
    at = Location("", "manifest", ("metadata", "name"))
    services = {f"{deployment.name}-{c.name}".lower(): at for c in reversed(deployment.components)}
    for index, kind, name in reversed([*near_objects(deployment)]):
        spec = deployment.documents[index]["spec"]
        is_headless = spec["clusterIP"].value == "None"
        is_external = spec["type"].value == "ExternalName"
        if kind == "Service" and not is_headless and not is_external:
            services[name] = Location("", "document", (index, "metadata", "name"))
    return services
