"""Validate a custom resource against its CRD as an API server does, on create and update.

`problems` checks strict fields, nulls and defaults, schema, list types and CEL. Not emulated:
webhooks, conversion between versions, CEL's cost budget, and that an update may keep a violation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft4Validator

from tests.support.kubernetes_schemas.rules import rule_problems
from tests.support.kubernetes_schemas.structure import (
    ABSENT,
    FORMATS,
    Schema,
    closed,
    duplicates,
    embedded,
    nodes,
    prepared,
    resolved,
    structural_problems,
)
from tests.support.kubernetes_schemas.syntax import (
    LABEL_1123,
    SUBDOMAIN,
    Problem,
    annotation_problems,
    label_problems,
    name_fault,
    under,
)

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 0.2 s instead of 3 s for the DGD's CRD
Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Crd:
    """One version of a CRD, ready to validate; created by `versions`."""

    api_version: str
    kind: str
    namespaced: bool
    has_status: bool  # then the API server drops `status` from writes
    schema: Schema
    validator: Draft4Validator

    def problems(self, document: Document, old: Document | None = None) -> list[Problem]:
        """(place, message) of every violation; ``old``: the object that an update replaces."""
        new = self._read(document)
        before = ABSENT if old is None else prepared(self.schema, self._read(old))
        if not isinstance(new, dict):
            return [("", "is not an object")]
        value = prepared(self.schema, new)
        texts = [*self._identity(value), *structural_problems(self.validator, value)]
        if not texts:  # a server evaluates rules only on a valid structure
            for node in nodes(self.schema, value, "", before):
                texts += [*duplicates(node), *rule_problems(node)]
        return sorted(set(texts))

    def _read(self, document: Document) -> Any:
        # Through JSON as on the wire: keys and the dates that PyYAML parsed become strings.
        read = json.loads(json.dumps(document, default=str))
        if self.has_status and isinstance(read, dict):
            read.pop("status", None)
        return read

    def _identity(self, value: dict[str, Any]) -> Iterator[Problem]:
        for field, expected in (("apiVersion", self.api_version), ("kind", self.kind)):
            if value.get(field) != expected:
                yield field, f"must be {expected}, is {value.get(field)!r}"
        yield from _meta_problems(value.get("metadata", {}), "metadata", self.namespaced)


def problems(path: Path, document: Document) -> list[Problem]:
    """Validate against the CRD in ``path``, in the version of the document's apiVersion."""
    known = versions(path)
    crd = known.get(str(document.get("apiVersion")))
    if crd is None:
        served = ", ".join(known)
        return [("apiVersion", f"{document.get('apiVersion')!r} is not served; known: {served}")]
    return crd.problems(document)


@cache
def versions(path: Path) -> Mapping[str, Crd]:
    """The served versions of the CRD in ``path`` by apiVersion."""
    spec = yaml.load(path.read_text("utf-8"), Loader)["spec"]
    served = [_crd(spec, v) for v in spec["versions"] if v.get("served", True)]
    return {crd.api_version: crd for crd in served}


def _crd(spec: Document, version: Document) -> Crd:
    schema = resolved(embedded(version["schema"]["openAPIV3Schema"]))
    return Crd(
        api_version=f"{spec['group']}/{version['name']}",
        kind=spec["names"]["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        has_status="status" in version.get("subresources", {}),
        schema=schema,
        validator=Draft4Validator(closed(schema), format_checker=FORMATS),
    )


def _meta_problems(metadata: object, place: str, namespaced: bool) -> Iterator[Problem]:
    if not isinstance(metadata, Mapping):
        return  # reported by the schema check
    if metadata.get("name"):
        fault = name_fault(metadata["name"], SUBDOMAIN, 253)
    else:
        generate_name = metadata.get("generateName")
        fault = name_fault(f"{generate_name}x", SUBDOMAIN, 253) if generate_name else "required"
    if fault:
        yield under(place, "name"), fault
    namespace = metadata.get("namespace")
    if namespace and not namespaced:
        yield under(place, "namespace"), "the kind has no namespace"
    elif namespace and (fault := name_fault(namespace, LABEL_1123, 63)):
        yield under(place, "namespace"), fault
    yield from label_problems(metadata.get("labels"), under(place, "labels"))
    yield from annotation_problems(metadata.get("annotations"), under(place, "annotations"))
