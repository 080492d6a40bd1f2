"""Judges a custom resource by its CRD as an API server does, on create and on update.

`problems(path, document, old)` is the whole of it: strict fields, nulls and defaults, schema, list
types, CEL. Not emulated: webhooks, conversion between versions, CEL's cost budget. Updates ratchet:
what was wrong before and has not changed is let pass (Kubernetes >= 1.30).
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

from tests.support.kubernetes_schemas.rules import rule_problems, rules_of
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

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 0.2 s for the DGD's CRD, not 3
Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Crd:
    """One version of a CRD, ready to judge; `versions` makes it."""

    api_version: str
    kind: str
    namespaced: bool
    has_status: bool  # then `status` is not the writer's, and a server drops it
    schema: Schema
    validator: Draft4Validator

    def problems(self, document: Document, old: Document | None = None) -> list[Problem]:
        """(place, message) of everything a server refuses; ``old`` is what an update replaces."""
        new = self._read(document)
        before = ABSENT if old is None else prepared(self.schema, self._read(old))
        if not isinstance(new, dict):
            return [("", "is no object")]
        value = prepared(self.schema, new)
        found = [*self._identity(value), *self._structure(value, before)]
        if not found:  # a server evaluates rules only where the structure is sound
            for node in nodes(self.schema, value, "", before):
                found += [*duplicates(node), *rule_problems(node)]
        return sorted(set(found))

    def rules(self) -> list[tuple[str, Mapping[str, Any]]]:
        """(place in the schema, rule as declared); every one compiles, or ValueError."""
        return list(_declared_rules(self.schema, ""))

    def defaulted(self, document: Document) -> Any:
        """The document as a server would store it."""
        return prepared(self.schema, self._read(document))

    def _read(self, document: Document) -> Any:
        # Through JSON as on the wire: keys become strings, and dates that PyYAML made, too.
        read = json.loads(json.dumps(document, default=str))
        if self.has_status and isinstance(read, dict):
            read.pop("status", None)
        return read

    def _structure(self, value: Any, before: Any) -> Iterator[Problem]:
        offences = list(structural_problems(self.validator, value))
        ratcheted: set[str] = set()
        if offences and before is not ABSENT:
            walk = nodes(self.schema, value, "", before)
            ratcheted = {node.place for node in walk if node.unchanged}
        yield from (offence for offence in offences if offence[0] not in ratcheted)

    def _identity(self, value: dict[str, Any]) -> Iterator[Problem]:
        for field, expected in (("apiVersion", self.api_version), ("kind", self.kind)):
            if value.get(field) != expected:
                yield field, f"must be {expected}, is {value.get(field)!r}"
        yield from _meta_problems(value.get("metadata", {}), "metadata", self.namespaced)


def problems(path: Path, document: Document, old: Document | None = None) -> list[Problem]:
    """Judge by the CRD in ``path``, in the version that the document's apiVersion names."""
    known = versions(path)
    crd = known.get(str(document.get("apiVersion")))
    if crd is None:
        served = ", ".join(known)
        return [("apiVersion", f"{document.get('apiVersion')!r} is not served; known: {served}")]
    return crd.problems(document, old)


@cache
def versions(path: Path) -> Mapping[str, Crd]:
    """The served versions of the CRD in ``path`` by apiVersion."""
    return parsed(yaml.load(path.read_text("utf-8"), Loader))


def parsed(definition: Document) -> Mapping[str, Crd]:
    """The same of a CRD that is read already."""
    spec = definition["spec"]
    return {
        crd.api_version: crd
        for version in spec["versions"]
        if version.get("served", True)
        for crd in (_crd(spec, version),)
    }


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
        return  # the schema has said so
    if metadata.get("name"):
        fault = name_fault(metadata["name"], SUBDOMAIN, 253)
    else:
        given = metadata.get("generateName")
        fault = name_fault(f"{given}x", SUBDOMAIN, 253) if given else "required"
    if fault:
        yield under(place, "name"), fault
    namespace = metadata.get("namespace")
    if namespace and not namespaced:
        yield under(place, "namespace"), "the kind has no namespace"
    elif namespace and (fault := name_fault(namespace, LABEL_1123, 63)):
        yield under(place, "namespace"), fault
    yield from label_problems(metadata.get("labels"), under(place, "labels"))
    yield from annotation_problems(metadata.get("annotations"), under(place, "annotations"))


def _declared_rules(schema: Schema, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rules_of(schema)  # compiles
    for declared in schema.get("x-kubernetes-validations", ()):
        yield place, declared
    for name, child in schema.get("properties", {}).items():
        yield from _declared_rules(child, under(place, name))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), Mapping):
            yield from _declared_rules(schema[key], place + mark)
