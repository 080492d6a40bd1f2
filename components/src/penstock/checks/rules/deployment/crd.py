"""Rules about fields, values and types that the CRD of the operator's release does not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.engines.settings import Location
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import Role
from penstock.manifests.fields import (
    BadValue,
    Path,
    Schema,
    bad_values,
    stored,
    stored_release,
    stored_releases,
    unknown_fields,
)
from penstock.manifests.pods import TYPES, V1ALPHA1
from penstock.nearest import KEY_CUTOFF, nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS
from penstock.strict_yaml.places import place_of

# The fields with the list or map of components. PS753 reports their limit.
COMPONENTS = (("spec", "components"), ("spec", "services"))
QUANTITY = "|[numkMGTPE]|"  # part of the pattern for quantities
# The types of v1beta1, the operator's name for a component without a type (ComponentTypeDefault in
# consts.go), and `main`: the comment of the field has this example, and old recipes use it.
V1ALPHA1_TYPES = (*TYPES, "default", "main")
SUB_TYPES = ("prefill", "decode", "encode")
NO_POOL = "The planner, the endpoint picker and DynamoModel do not find the pool of this component."
OWN_ROLES = ("encode", "encoder")  # similar to `decode`, with another meaning
COUNTED: Mapping[type, str] = {str: "characters", list: "items", dict: "fields"}
TYPE_FIXES = {
    "integer": "Write an integer.",
    "number": "Write a number.",
    "boolean": "Write true or false.",
    "array": "Write a list, each item after `- `.",
    "object": "Write `key: value` lines.",
    "integer or string": "Write an integer or a string.",
}
WORDS = {"array": "a list", "object": "a mapping", "boolean": "true or false"}


def too_many(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for bad in _bad_values(deployment):
        if bad.path in COMPONENTS and bad.keyword.startswith("max"):
            yield RuleResult(
                location=Location("", "manifest", ("spec",)),
                message=f"the deployment has {len(bad.value)} components; the limit is {bad.limit}",
                fix=Fix(text=f"Split it into deployments of at most {bad.limit} components."),
            )


def unknown_field(deployment: ServingDeployment) -> Iterable[RuleResult]:
    value = _object(deployment)
    for field in unknown_fields(value, _specs(deployment)):
        where, fix = _of_other_operators(deployment, field.path)
        if not fix:
            fix = f"Use {field.near}." if field.near else "Remove it."
        yield RuleResult(
            location=Location("", "manifest", field.path),
            message=f"{field.path[-1]!r} is not a field of {place_of(field.path[:-1])}{where}",
            fix=Fix(text=fix),
        )


def excluded_value(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.is_graph and deployment.api_version not in _specs(deployment):
        yield _not_served(deployment)
    for bad in _bad_values(deployment):
        if bad.path in COMPONENTS and bad.keyword.startswith("max"):
            continue
        message, fix = _described(bad, deployment.root)
        location = Location("", "manifest", bad.path)
        yield RuleResult(location=location, message=message, fix=Fix(text=fix))


def unknown_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.api_version != V1ALPHA1:
        return
    for component in deployment.components:
        pod = deployment.pods[component.name]
        runs_dynamo = component.role in (*WORKERS, Role.FRONTEND)
        if pod.kind and pod.kind not in V1ALPHA1_TYPES:
            near = _near(pod.kind, TYPES)
            level = None if near else Level.WARNING if runs_dynamo else Level.NOTE
            known = f"the operator knows {', '.join(TYPES)}"
            yield _unknown_type(component.name, "componentType", pod.kind, known, near, level)
        if pod.sub_kind and pod.sub_kind not in SUB_TYPES:
            near = _near(pod.sub_kind, SUB_TYPES)
            level = None if near else Level.NOTE
            known = "the operator knows prefill and decode"
            yield _unknown_type(
                component.name, "subComponentType", pod.sub_kind, known, near, level, NO_POOL
            )


def _unknown_type(
    component: str,
    field: str,
    value: str,
    known: str,
    near: str,
    level: Level | None,
    why: str = "",
) -> RuleResult:
    return RuleResult(
        location=Location(component, "field", (field,)),
        message=f"{field} is {value!r}; {known}",
        fix=Fix(text=f"Use {near}.", fields={field: near})
        if near
        else Fix(text="Use a type that the operator knows, or suppress this finding."),
        level=level,
        why=why,
    )


def _near(value: str, known: Iterable[str]) -> str:
    return "" if value in OWN_ROLES else nearest(value, known, KEY_CUTOFF)


def _object(deployment: ServingDeployment) -> Mapping[str, Any]:
    """The object that the file has; empty for a graph, whose object the chart writes."""
    value = deployment.root.value
    return value if isinstance(value, dict) and not deployment.is_graph else {}


def _release(deployment: ServingDeployment) -> str:
    """The operator's release, or the nearest whose CRD is stored."""
    return stored_release(deployment.operator) or stored_releases()[0]


def _specs(deployment: ServingDeployment) -> Mapping[str, Schema]:
    return stored(_release(deployment))


def _bad_values(deployment: ServingDeployment) -> Iterator[BadValue]:
    return bad_values(_object(deployment), _specs(deployment))


def _not_served(deployment: ServingDeployment) -> RuleResult:
    version = deployment.api_version
    others = [release for release in stored_releases() if version in stored(release)]
    use = f"Use {next(iter(_specs(deployment)))}"
    return RuleResult(
        location=Location("", "manifest", ("apiVersion",)),
        message=f"operator {deployment.operator} does not have {version}",
        fix=Fix(text=f"{use}, or operator {others[0]} or later." if others else f"{use}."),
    )


def _of_other_operators(deployment: ServingDeployment, path: Path) -> tuple[str, str]:
    """The end of the message and the fix for a field of another operator version; else empty."""
    value, own, known = _object(deployment), _release(deployment), stored_releases()
    others = [release for release in known if release != own and _has_field(release, value, path)]
    if not others:
        return "", ""
    where = f" in operator {own}"
    later = [release for release in others if known.index(release) > known.index(own)]
    if later:
        return where, f"Remove it, or use operator {later[0]} or later, which has it."
    return where, f"Remove it: operators after {others[-1]} do not have it."


def _has_field(release: str, value: Mapping[str, Any], path: Path) -> bool:
    specs = stored(release)
    unknown = [field.path for field in unknown_fields(value, specs)]
    is_served = value.get("apiVersion") in specs
    return is_served and all(path[: len(one)] != one for one in unknown)


def _described(bad: BadValue, root: Cursor) -> tuple[str, str]:
    """The message and the fix."""
    place, value, limit = place_of(bad.path), bad.value, bad.limit
    shown = Cursor(root.document, value, bad.path).shown
    if bad.keyword == "required":
        return f"{place} has no {limit}", f"Add {limit}."
    if bad.keyword == "type":
        return _wrong_type(bad, root)
    if bad.keyword == "enum":
        near = nearest(str(value), limit)
        listed = ", ".join(map(str, limit))
        fix = f"Use {near}." if near else f"Use one of {listed}."
        return f"{place} is {shown}, which is not one of {listed}", fix
    if bad.keyword == "pattern":
        if QUANTITY in limit:
            fix = "Write a quantity such as 500m, 8Gi or 2."
            return f"{place} is {shown}, which is not a quantity", fix
        message = f"{place} is {shown}, which does not match the pattern {limit}"
        return message, "Write a value that matches the pattern."
    bound = "minimum" if bad.keyword.startswith("min") else "limit"
    counted = COUNTED.get(type(value), "")
    has = f"has {len(value)} {counted}" if counted else f"is {shown}"
    least = "at least" if bound == "minimum" else "at most"
    what = f"{least} {limit} {counted}".strip()
    return f"{place} {has}; the {bound} is {limit}", f"Use {what}."


def _wrong_type(bad: BadValue, root: Cursor) -> tuple[str, str]:
    cursor = Cursor(root.document, bad.value, bad.path)
    if bad.limit == "string":
        message, fix = cursor.string_problem()
    elif bad.limit == "integer":
        message, fix = cursor.integer_problem()
    else:
        article = "an" if bad.limit.startswith("i") else "a"
        word = WORDS.get(bad.limit, f"{article} {bad.limit}")
        message, fix = f"must be {word}, got {cursor.shown}", TYPE_FIXES[bad.limit]
    return f"{place_of(bad.path)} {message}", fix
