"""Fields, values and types that the CRD of the operator's release excludes, and their fixes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix
from penstock.engines.flags import flag_table
from penstock.manifests.documents import Cursor
from penstock.manifests.fields import (
    NEAR,
    BadValue,
    Path,
    Schema,
    UnknownField,
    bad_values,
    fits,
    is_of_type,
    stored,
    stored_release,
    stored_releases,
    unknown_fields,
)
from penstock.manifests.pods import V1ALPHA1, V1BETA1
from penstock.serving.deployment import ServingDeployment
from penstock.strict_yaml.places import looks_secret, place_of
from penstock.text.names import nearest

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


# Fields of one version of the API → those of the other. The main container has the rest.
_RENAMED: Mapping[str, Mapping[str, str]] = {
    V1ALPHA1: {"components": "services", "type": "componentType", "podTemplate": "extraPodSpec"},
    V1BETA1: {"services": "components", "componentType": "type", "subComponentType": "type"},
}
# Where the main container and the pod may be below a field of a manifest.
_MAIN: tuple[Path, ...] = (
    ("mainContainer",),
    ("extraPodSpec", "mainContainer"),
    ("podTemplate", "spec", "containers", 0),
    ("podTemplate", "spec"),
)
# GPUs of any vendor, and parts of GPUs.
_GPU = re.compile(r"\bgpus?\b|/mig-")
_RESOURCES = ("ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi")
# The fields that operators before 1.0, whose CRDs are not stored, had, and the release without it.
_REMOVED: Mapping[str, str] = {"pvc": "0.6"}
# Fields of Kubernetes' Deployment → the annotations that the operator reads instead
# (deployment_strategy.go).
_STRATEGY = "nvidia.com/deployment-rolling-update-"
_ANNOTATIONS: Mapping[str, str] = {
    "rollingUpdate": f"annotations {_STRATEGY}max-surge and {_STRATEGY}max-unavailable",
    "strategy": "annotation nvidia.com/deployment-strategy",
}


def removed_in(deployment: ServingDeployment, field: UnknownField) -> str:
    """The operator's release that removed a field of a component; empty if it is not known."""
    is_of_component = deployment.api_version == V1ALPHA1 and len(field.path) == 4
    return _REMOVED.get(str(field.path[-1]), "") if is_of_component else ""


def better_field(deployment: ServingDeployment, field: UnknownField) -> Fix:
    """The field that has the meaning of an unknown one, or the place where the CRD has it."""
    name = str(field.path[-1])
    content = _value_at(deployment.root.value, field.path)
    schemas = [*_schemas(crd_specs(deployment)[deployment.api_version], field.path[:-1])]
    if field.path[-3:-2] == ("resources",) and "custom" in schemas[-1].get("properties", ()):
        return _resource(deployment, field.path, content)
    if name in ("pvc", "pvcs") and len(field.path) == 4 and deployment.api_version == V1ALPHA1:
        return _claim(deployment, field.path, content)
    renamed = _RENAMED.get(deployment.api_version, {}).get(name)
    if renamed in schemas[-1].get("properties", ()):
        return Fix(text=f"Use {renamed}.")
    if near := _near(schemas[-1], name, content):
        return Fix(text=f"Use {near}.")
    if len(field.path) == 4 and name in _ANNOTATIONS:
        return Fix(text=f"Remove it, and set the component's {_ANNOTATIONS[name]}.")
    if switched := _switched(schemas[-1], name, content):
        return Fix(text=f"Use {switched}.")
    siblings = _value_at(deployment.root.value, field.path[:-1])
    if "pluginRef" in siblings:
        return Fix(text=f"Move it to the plugin {siblings['pluginRef']} in the list plugins.")
    places = [*_places(schemas, field.path, [*siblings])]
    for accepts in (fits, is_of_type):  # a field may have slipped together with its own fields
        for path, schema in places:
            inner = schema.get("properties", {}).get(name)
            if inner is not None and accepts(content, inner):
                return Fix(text=f"Move it to {place_of(path)}, which has {name}.")
    if len(field.path) == 4 and _is_flag(deployment, str(field.path[2]), f"--{name}"):
        is_shown = isinstance(content, (str, int)) and not looks_secret(name)
        flag = f"--{name} {content}" if is_shown and content is not True else f"--{name}"
        return Fix(text=f"Remove it, and pass it to the program as a flag: `{flag}`.")
    return Fix(text="Remove it.")


def _switched(schema: Schema, name: str, content: Any) -> str:
    """The field `x` with `enabled` that a boolean `enableX` or `xEnabled` means."""
    stem = re.fullmatch(r"enable(\w+)|(\w+?)Enabled", name)
    if stem is None or not isinstance(content, bool):
        return ""
    word = stem[1] or stem[2]
    meant = word[0].lower() + word[1:]
    inner = schema.get("properties", {}).get(meant, {})
    return f"{meant}.enabled" if "enabled" in inner.get("properties", {}) else ""


def _is_flag(deployment: ServingDeployment, component: str, flag: str) -> bool:
    """Whether a program of a component has a flag of this name."""
    if component not in deployment.pods:
        return False
    launches = deployment.component(component).launches
    tables = [flag_table(launch.module or "") for launch in launches]
    return any(flag in table.by_spelling for table in tables if table is not None)


def _resource(deployment: ServingDeployment, path: Path, quantity: Any) -> Fix:
    """For an amount in `resources` of v1alpha1, which has cpu, memory, gpu, gpuType and custom."""
    name, siblings = str(path[-1]), _value_at(deployment.root.value, path[:-1])
    if near := nearest(name, ("cpu", "memory", "gpu", "gpuType"), NEAR):
        return Fix(text=f"Use {near}.")
    if _GPU.search(name):
        if "gpu" in siblings:
            return Fix(text="Remove it: gpu is the field for the number of GPUs.")
        kind = {} if name == "nvidia.com/gpu" else {"gpuType": name}
        text = f"Rename it to gpu{f', and set gpuType to {name}' if kind else ''}."
        above = "/".join(map(str, path[:-1]))
        amounts = {"gpu": str(quantity), **kind}
        changes = {f"{above}/{key}": amount for key, amount in amounts.items()}
        return Fix(text=text, deployment=changes, replaces=name)
    custom, place = nearest(name, _RESOURCES, NEAR) or name, (*path[:-1], "custom")
    spelled = f" as {custom}" if custom != name else ""
    key = "/".join((*map(str, place), custom.replace("/", "~1")))
    text = f"Move it to {place_of(place)}{spelled}, where resources other than cpu and memory are."
    return Fix(text=text, deployment={key: str(quantity)}, replaces=name)


def _claim(deployment: ServingDeployment, path: Path, content: Any) -> Fix:
    """For a claim that a component mounts, which `pvcs` of the deployment must list."""
    alone = content[0] if isinstance(content, list) and len(content) == 1 else content
    claim = alone if isinstance(alone, dict) else {}
    name, folder = claim.get("name"), claim.get("mountPoint")
    mounts = f"volumeMounts of {path[-2]}"
    if not (isinstance(name, str) and isinstance(folder, str)):
        return Fix(text=f"List the claim in spec.pvcs, and mount it with {mounts}.")
    text = f"List the claim {name} in spec.pvcs, and mount it at {folder} with {mounts}."
    spec, component = deployment.spec, _value_at(deployment.root.value, path[:-1])
    if "pvcs" in spec or "volumeMounts" in component:
        return Fix(text=text)
    listed = {key: part for key, part in claim.items() if key != "mountPoint"}
    changes = {
        "spec/pvcs": [listed],
        f"spec/services/{path[-2]}/volumeMounts": [{"name": name, "mountPoint": folder}],
    }
    return Fix(text=text, deployment=changes, replaces=str(path[-1]))


def _schemas(spec: Schema, path: Path) -> Iterator[Schema]:
    """The schema of each step of a path that begins with `spec`."""
    yield (schema := spec)
    for step in path[1:]:
        inner = schema.get("items") if isinstance(step, int) else None
        named = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
        schema = inner or named or {}
        yield schema


def _places(
    schemas: list[Schema], path: Path, siblings: list[Any]
) -> Iterator[tuple[Path, Schema]]:
    """Where a field may belong: in a part above it, in the main container, in the part that stands
    before it, and in the other parts of its parent."""
    above = [(path[: depth + 1], schema) for depth, schema in enumerate(schemas)][::-1]
    yield from above[1:]
    parent, properties = path[:-1], schemas[-1].get("properties", {})
    for steps in _MAIN:
        yield (*parent, *steps), [*_schemas(schemas[-1], ("", *steps))][-1]
    for sibling in siblings[: siblings.index(path[-1])][::-1]:
        for place, schema in above:
            if sibling in schema.get("properties", ()):
                yield (*place, sibling), schema["properties"][sibling]
    for name, schema in properties.items():
        if name != "frontendSidecar":
            yield (*parent, name), schema


def _near(schema: Schema, name: str, content: Any) -> str:
    """The field with a similar name, or with one that ends with this one, that takes the value."""
    properties: Mapping[str, Schema] = schema.get("properties", {})
    fitting = [other for other, inner in properties.items() if fits(content, inner)]
    ending = [other for other in fitting if other.lower().endswith(name.lower())]
    return nearest(name, fitting, NEAR) or (ending[0] if len(ending) == 1 else "")


def _value_at(tree: Any, path: Path) -> Any:
    for step in path:
        keys = {str(key): key for key in tree} if isinstance(tree, dict) else {}
        tree = tree[keys.get(str(step), step)]
    return tree
