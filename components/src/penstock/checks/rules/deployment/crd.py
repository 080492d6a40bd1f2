"""Fields, values and types that the CRD of the operator's release does not allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.manifests.documents import Cursor
from penstock.manifests.fields import (
    BadValue,
    Path,
    Schema,
    UnknownField,
    bad_values,
    stored,
    stored_release,
    stored_releases,
    unknown_fields,
)
from penstock.serving.deployment import ServingDeployment

_COUNTED: Mapping[type, str] = {str: "characters", list: "items", dict: "fields"}
_TYPES: Mapping[str, tuple[str, str]] = {
    "number": ("a number", "Write a number."),
    "boolean": ("true or false", "Write true or false."),
    "array": ("a list", "Write a list, each item after `- `."),
    "object": ("a mapping", "Write `key: value` lines."),
    "integer or string": ("an integer or string", "Write an integer or a string."),
}


def crd_release(deployment: ServingDeployment) -> str:
    """The operator's release, or the nearest whose CRD is stored."""
    return stored_release(deployment.operator) or stored_releases()[0]


def crd_specs(deployment: ServingDeployment) -> Mapping[str, Schema]:
    """The schemas of `crd_release`, by apiVersion."""
    return stored(crd_release(deployment))


def fields_not_allowed(deployment: ServingDeployment) -> Iterator[UnknownField]:
    """The fields that the CRD does not have."""
    return unknown_fields(_object(deployment), crd_specs(deployment))


def values_not_allowed(deployment: ServingDeployment) -> Iterator[BadValue]:
    """The values that the CRD excludes."""
    return bad_values(_object(deployment), crd_specs(deployment))


def is_component_limit(bad: BadValue) -> bool:
    """Whether the list or map of components is too long."""
    is_components = bad.path in (("spec", "components"), ("spec", "services"))
    return is_components and bad.keyword.startswith("max")


def other_releases_with(deployment: ServingDeployment, path: Path) -> list[str]:
    """The other releases of the operator whose CRD has a field, oldest first."""
    manifest, release = _object(deployment), crd_release(deployment)
    known = stored_releases()
    return [other for other in known if other != release and _has_field(other, manifest, path)]


def _has_field(release: str, manifest: Mapping[str, Any], path: Path) -> bool:
    specs = stored(release)
    unknown = [field.path for field in unknown_fields(manifest, specs)]
    is_served = manifest.get("apiVersion") in specs
    return is_served and all(path[: len(prefix)] != prefix for prefix in unknown)


def shortened(deployment: ServingDeployment, bad: BadValue) -> str:
    """The value as a message has it."""
    return _cursor(deployment, bad).shown


def counted_in(value: Any) -> str:
    """What the length of a value counts; empty for numbers."""
    return _COUNTED.get(type(value), "")


def wrong_type(deployment: ServingDeployment, bad: BadValue) -> tuple[str, str]:
    """What is there instead of a value of the type `bad.limit`, and the fix."""
    cursor = _cursor(deployment, bad)
    if bad.limit == "string":
        return cursor.string_problem()
    if bad.limit == "integer":
        return cursor.integer_problem()
    noun, fix = _TYPES[bad.limit]
    return f"must be {noun}, got {cursor.shown}", fix


def _cursor(deployment: ServingDeployment, bad: BadValue) -> Cursor:
    return Cursor(deployment.root.document, bad.value, bad.path)


def _object(deployment: ServingDeployment) -> Mapping[str, Any]:
    """The object that the file has; empty for a graph, whose object the chart writes."""
    manifest = deployment.root.value
    return manifest if isinstance(manifest, dict) and not deployment.is_graph else {}
