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

from tests.support.kubernetes_schemas.contents import content_problems, unnoticed_problems
from tests.support.kubernetes_schemas.every_field import field_problems
from tests.support.kubernetes_schemas.structure import structural_problems
from tests.support.kubernetes_schemas.syntax import (
    LABEL_1035,
    LABEL_1123,
    PATH_SEGMENT,
    SUBDOMAIN,
    Problem,
    name_fault,
    under,
)

VERSIONS = ("1.31", "1.32", "1.33", "1.34")
FINALIZERS = ("foregroundDeletion", "kubernetes", "orphan")
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
K8S_IO = (
    "admissionregistration", "authentication", "authorization", "certificates", "coordination",
    "discovery", "events", "flowcontrol.apiserver", "networking", "node", "rbac.authorization",
    "resource", "scheduling", "storage",
)  # fmt: skip
GROUPS = {"", "apps", "autoscaling", "batch", "policy", *(f"{name}.k8s.io" for name in K8S_IO)}

Manifest = Mapping[str, Any]


def problems(manifest: Manifest, version: str) -> list[str]:
    """`Kind/name place: message` for each problem; ``version`` of Kubernetes, such as `1.33`."""
    texts = wrong_types(manifest, version)
    if not texts:  # the other checks rely on the types
        texts = sorted({*refused(manifest), *unnoticed_problems(manifest)})
    return [f"{title(manifest)} {place}: {message}" for place, message in texts]


def wrong_types(manifest: Manifest, version: str) -> list[Problem]:
    """Unknown, missing and malformed fields."""
    schema = validator(version, str(manifest.get("apiVersion")), str(manifest.get("kind")))
    return list(_schema_problems(schema, manifest, version))


def refused(manifest: Manifest) -> list[Problem]:
    """What an API server refuses in an object of the right types."""
    return sorted({*_meta(manifest), *content_problems(manifest), *field_problems(manifest)})


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
    yield from sorted({*structural_problems(schema, manifest)})


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
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in FINALIZERS:
            yield under("metadata.finalizers", index), "is neither standard nor fully qualified"
