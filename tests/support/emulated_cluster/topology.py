"""Which fields of an object are merged and owned one by one, and which as a whole.

For built-in kinds from the OpenAPI document of Kubernetes, in kubernetes-validate's wheel; for the
custom resources of the chart by hand, with the built-in schema of their pod templates. An API
server treats a list without `x-kubernetes-list-type` as one field (atomic).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

VERSION = "1.36"  # of the recordings
Schema = Mapping[str, Any]
UNKNOWN: Schema = {}
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def _keyed(keys: Sequence[str], **properties: Schema) -> Schema:
    return {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "items": {"properties": properties},
    }


def _custom(**spec: Schema) -> Schema:
    return {"properties": {"metadata": _ref(METADATA), "spec": {"properties": spec}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


KEY_DEFAULTS = {"protocol": "TCP"}  # of the keys of lists
ATOMIC: Schema = {"x-kubernetes-map-type": "atomic"}
CUSTOM_TEMPLATE = "custom pod template"  # in a CRD, controller-gen makes more types atomic
_TEMPLATE = _ref(CUSTOM_TEMPLATE)
CUSTOM: Mapping[str, Schema] = {
    "DynamoGraphDeployment": _custom(components=_keyed(["name"], podTemplate=_TEMPLATE)),
    "LeaderWorkerSet": _custom(
        leaderWorkerTemplate={
            "properties": {"leaderTemplate": _TEMPLATE, "workerTemplate": _TEMPLATE}
        }
    ),
    "PodMonitor": _custom(selector=ATOMIC),
    "PrometheusRule": _custom(groups=_keyed(["name"])),
    "Gateway": _custom(listeners=_keyed(["name"])),
}


def of(api_version: str, kind: str) -> Schema:
    """The schema of a kind."""
    return CUSTOM.get(kind) or _built_in().get((api_version, kind)) or _custom()


def resolved(schema: Schema) -> Schema:
    """The schema that a reference names, with the annotations next to the reference.

    Avoids copies: called for every field.
    """
    name = schema.get("$ref")
    if name is None:
        return schema
    text = str(name).rpartition("/")[2]
    target = _custom_template() if text == CUSTOM_TEMPLATE else _definitions()[text]
    here = {key: value for key, value in schema.items() if key.startswith("x-kubernetes")}
    return {**target, **here} if here else target


def definition(schema: Schema) -> str | None:
    """The name of the type that the schema refers to."""
    name = schema.get("$ref")
    return None if name is None else str(name).rpartition("/")[2]


def child(schema: Schema, name: str) -> Schema:
    """The schema of a field of a map."""
    properties = schema.get("properties") or {}
    return properties.get(name) or schema.get("additionalProperties") or UNKNOWN


def is_declared(schema: Schema, name: str) -> bool:
    """Whether it is a field of a struct, not an entry of a map."""
    return name in (schema.get("properties") or {})


def is_atomic(schema: Schema, value: object) -> bool:
    """Whether the value is one field."""
    if isinstance(value, list):
        return schema.get("x-kubernetes-list-type", "atomic") == "atomic"
    return not isinstance(value, dict) or schema.get("x-kubernetes-map-type") == "atomic"


def element_key(schema: Schema, element: Any) -> str:
    """The path element of an item of a keyed list or of a set, as in `managedFields`."""
    if schema.get("x-kubernetes-list-type") == "set":
        return "v:" + json.dumps(element)
    keys = schema["x-kubernetes-list-map-keys"]
    chosen = {k: element.get(k, KEY_DEFAULTS.get(k)) for k in keys}
    values = {k: v for k, v in chosen.items() if v is not None}
    return "k:" + json.dumps(values, sort_keys=True, separators=(",", ":"))


def problem(value: Any, schema: Schema, path: str = "") -> str:
    """What makes a value impossible to apply, as the API server says it; "" if nothing.

    Custom resources: repeated keys only, as their schemas here name only some fields.
    """
    schema = resolved(schema)
    if isinstance(value, list) and not is_atomic(schema, value):
        named = schema.get("x-kubernetes-list-map-keys") or ()
        for index, element in enumerate(value):
            if named and not {*named} & {*element, *KEY_DEFAULTS}:
                text = "associative list with keys has an element that omits all key fields"
                default = "(and doesn't have default values for any key fields)"
                return f"{path}: element {index}: {text} {json.dumps([*named])} {default}"
        keys = [element_key(schema, element) for element in value]
        for key in keys:
            if keys.count(key) > 1:
                text = ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(key[2:]).items())
                return f"{path}: duplicate entries for key [{text}]"
        items = schema.get("items") or {}
        causes = (
            problem(element, items, f"{path}[name={json.dumps(element.get('name'))}]")
            for element in value
            if isinstance(element, dict)
        )
        return next(filter(None, causes), "")
    if not isinstance(value, dict):
        return _type_problem(value, schema, path)
    is_closed = schema.get("properties") and "additionalProperties" not in schema
    is_built_in = is_closed and "description" in schema
    for name, inner in value.items():
        if is_built_in and not is_declared(schema, name):
            return f"{path}.{name}: field not declared in schema"
        if text := problem(inner, child(schema, name), f"{path}.{name}"):
            return text
    return ""


def _type_problem(value: Any, schema: Schema, path: str) -> str:
    types = schema.get("type") or ()
    types = {types} if isinstance(types, str) else set(types)
    if types & {"integer", "number"} and "string" not in types and isinstance(value, str):
        return f"{path}: expected numeric (int or float), got string"
    return ""


@cache
def _custom_template() -> Schema:
    template = _definitions()[POD_TEMPLATE]
    spec = _definitions()["io.k8s.api.core.v1.PodSpec"]
    volume = _definitions()["io.k8s.api.core.v1.Volume"]
    fields = {**volume["properties"], "configMap": ATOMIC}
    volumes = {**spec["properties"]["volumes"], "items": {**volume, "properties": fields}}
    pod = {**spec, "properties": {**spec["properties"], "volumes": volumes}}
    return {**template, "properties": {**template["properties"], "spec": pod}}


@cache
def _definitions() -> Mapping[str, Schema]:
    folder = files("kubernetes_validate") / f"kubernetes-json-schema/v{VERSION}.0-local"
    return dict(json.loads((folder / "_definitions.json").read_text())["$defs"])


@cache
def _built_in() -> Mapping[tuple[str, str], Schema]:
    schemas: dict[tuple[str, str], Schema] = {}
    for name, schema in _definitions().items():
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            version = "/".join(part for part in (gvk["group"], gvk["version"]) if part)
            schemas[version, gvk["kind"]] = _ref(name)
    return schemas
