"""Validate objects of built-in kinds: what an API server rejects, or accepts although it is broken.

`problems` checks one object with kubernetes-validate's strict schemas and our own checks;
`references` checks the objects of a chart together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tests.support.kubernetes_schemas.enums import enum_problems
from tests.support.kubernetes_schemas.pods import (
    number_problems,
    pod_problems,
    port_name_fault,
    quantity_problems,
    templates,
)
from tests.support.kubernetes_schemas.selectors import matches, selector_problems
from tests.support.kubernetes_schemas.syntax import (
    LABEL_1035,
    LABEL_1123,
    PATH_SEGMENT,
    QUALIFIED,
    SUBDOMAIN,
    Problem,
    annotation_problems,
    label_problems,
    name_fault,
    under,
)

VERSIONS = ("1.31", "1.32", "1.33", "1.34")
RBAC = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
# Syntax and maximum length of names by kind, if not a DNS subdomain of 253 characters. A
# StatefulSet's name plus a hash of 11 characters becomes a label value; so does a Job's name.
NAMES = {
    "Service": (LABEL_1035, 63),
    "Namespace": (LABEL_1123, 63),
    "StatefulSet": (LABEL_1123, 52),
    "CronJob": (SUBDOMAIN, 52),
    "Job": (SUBDOMAIN, 63),
    **dict.fromkeys(RBAC, (PATH_SEGMENT, 253)),
}
WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
RESTARTS = {**dict.fromkeys(WORKLOADS, ("Always",)), "Job": ("OnFailure", "Never")}
K8S_IO = (
    "admissionregistration",
    "authentication",
    "authorization",
    "certificates",
    "coordination",
    "discovery",
    "events",
    "flowcontrol.apiserver",
    "networking",
    "node",
    "rbac.authorization",
    "resource",
    "scheduling",
    "storage",
)
GROUPS = {"", "apps", "autoscaling", "batch", "policy", *(f"{name}.k8s.io" for name in K8S_IO)}

Manifest = Mapping[str, Any]


def problems(manifest: Manifest, version: str) -> list[str]:
    """`Kind/name place: message` for each problem; ``version`` of Kubernetes, such as `1.33`."""
    schema = validator(version, str(manifest.get("apiVersion")), str(manifest.get("kind")))
    found = list(_schema_problems(schema, manifest, version))
    if not found:  # the other checks rely on the types
        found = sorted({*_meta(manifest), *_content(manifest), *enum_problems(manifest)})
    return [f"{title(manifest)} {place}: {message}" for place, message in found]


def is_builtin(manifest: Manifest) -> bool:
    """Whether the apiVersion is one of Kubernetes itself, not of a custom resource."""
    return str(manifest.get("apiVersion")).rpartition("/")[0] in GROUPS


def title(manifest: Manifest) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{manifest.get('kind')}/{metadata.get('name') or metadata.get('generateName')}"


@cache
def validator(version: str, api_version: str, kind: str) -> Draft202012Validator | None:
    """The strict schema of a kind; None if this Kubernetes version does not have the kind.

    kubernetes_validate.validate reads 1.5 MB of definitions for every object (25 ms); here each
    version is read once.
    """
    group, _, name = api_version.rpartition("/")
    if group not in GROUPS:  # file names contain only the group's first word
        return None
    prefix = f"{group.split('.')[0]}-" if group else ""
    file = _folder(version) / f"{kind.lower()}-{prefix}{name}.json"
    if not file.is_file():
        return None
    schema = Resource.from_contents(json.loads(file.read_text("utf-8")))
    return Draft202012Validator(schema.contents, registry=schema @ _definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    text = (_folder(version) / "_definitions.json").read_text("utf-8")
    return (Resource.from_contents(json.loads(text)) @ Registry()).crawl()


def _folder(version: str) -> Any:
    return files("kubernetes_validate") / f"kubernetes-json-schema/v{version}.0-local-strict"


def _schema_problems(
    schema: Draft202012Validator | None, manifest: Manifest, version: str
) -> Iterator[Problem]:
    if schema is None:
        kind, api_version = manifest.get("kind"), manifest.get("apiVersion")
        yield "kind", f"Kubernetes {version} has no {kind} in {api_version}"
        return
    for error in schema.iter_errors(manifest):
        place = ""
        for key in error.absolute_path:
            place = under(place, key)
        yield place, error.message[:300]


def _meta(manifest: Manifest) -> Iterator[Problem]:
    metadata = manifest.get("metadata") or {}
    syntax, longest = NAMES.get(manifest["kind"], (SUBDOMAIN, 253))
    name = metadata.get("name")
    if name is None and metadata.get("generateName"):
        # The API server appends five characters.
        name = f"{metadata['generateName']}xxxxx"
    if fault := name_fault(name, syntax, longest):
        yield "metadata.name", fault
    namespace = metadata.get("namespace")
    if namespace is not None and (fault := name_fault(namespace, LABEL_1123, 63)):
        yield "metadata.namespace", fault
    yield from _labels(manifest, "")


def _labels(value: Any, place: str) -> Iterator[Problem]:
    """Labels and annotations at any depth, in templates and selectors too."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _labels(item, under(place, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            where = under(place, str(key))
            if key in ("labels", "matchLabels", "nodeSelector"):
                yield from label_problems(item, where)
            elif key == "annotations":
                yield from annotation_problems(item, where)
            elif key not in ("data", "stringData", "binaryData"):
                yield from _labels(item, where)


def _content(manifest: Manifest) -> Iterator[Problem]:
    kind, spec = manifest["kind"], manifest.get("spec") or {}
    claims = spec.get("volumeClaimTemplates") or () if kind == "StatefulSet" else ()
    names = {claim["metadata"]["name"] for claim in claims}
    for template in templates(manifest):
        yield from pod_problems(template, volumes=names)
        restart = template.spec.get("restartPolicy")
        allowed = RESTARTS.get(kind)
        if allowed and (restart or "Always") not in allowed:
            where = under(under(template.place, "spec"), "restartPolicy")
            yield where, f"must be {' or '.join(allowed)}, is {restart}"
    yield from selector_problems(manifest)
    if kind in WORKLOADS:
        yield from _own_selector(spec)
    for index, claim in enumerate(claims):
        yield from _claim(claim["spec"], under("spec.volumeClaimTemplates", index) + ".spec")
    if kind == "PersistentVolumeClaim":
        yield from _claim(spec, "spec")
    if kind == "Service":
        yield from _service(spec)
    if kind in ("ConfigMap", "Secret"):
        yield from _data(manifest)
    if kind == "PodDisruptionBudget" and {"minAvailable", "maxUnavailable"} <= spec.keys():
        yield "spec", "minAvailable and maxUnavailable exclude each other"


def _own_selector(spec: Manifest) -> Iterator[Problem]:
    selector = spec.get("selector") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        yield "spec.selector", "selects nothing"
    elif not matches(selector, labels):
        yield "spec.selector", f"does not match the labels of the template: {dict(labels)}"


def _claim(spec: Manifest, place: str) -> Iterator[Problem]:
    if not spec.get("accessModes"):
        yield f"{place}.accessModes", "missing"
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    where = f"{place}.resources.requests.storage"
    if size is None:
        yield where, "missing"
    else:
        yield from quantity_problems(size, where)


def _service(spec: Manifest) -> Iterator[Problem]:
    ports = spec.get("ports") or []
    if not ports and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", "missing"
    names = [port.get("name") for port in ports]
    yield from label_problems(spec.get("selector"), "spec.selector")
    for index, port in enumerate(ports):
        where, name = under("spec.ports", index), port.get("name")
        if name is None and len(ports) > 1:
            yield where, "one of several ports needs a name"
        if name is not None and (fault := name_fault(name, LABEL_1123, 63)):
            yield where, f"port name {fault}"
        if name is not None and name in names[:index]:
            yield where, f"second port {name}"
        yield from number_problems(port.get("port"), where)
        target = port.get("targetPort")
        if isinstance(target, str) and (fault := port_name_fault(target)):
            yield f"{where}.targetPort", f"port name {fault}"


def _data(manifest: Manifest) -> Iterator[Problem]:
    size, seen = 0, set()
    for field in ("data", "stringData", "binaryData"):
        for key, value in (manifest.get(field) or {}).items():
            size += len(str(value).encode())
            fault = name_fault(key.strip("._-") or key, QUALIFIED, 253)
            if fault or key in (".", "..") or len(key) > 253:
                yield under(field, key), f"{key!r} is not a valid file name"
            if key in seen and field == "binaryData":
                yield under(field, key), "is in data as well"
            seen.add(key)
    if size > 2**20:
        yield "data", f"{size} bytes, at most {2**20} are allowed"
