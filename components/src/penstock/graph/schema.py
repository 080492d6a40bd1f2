"""The model as the JSON schema of the chart's values; `generate.py` writes it to a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.graph.messages import POD_KEYS_OF_THE_CHART
from penstock.graph.model import NO_SPECULATION, Graph
from penstock.graph.renamed_keys import RENAMED_KEYS
from penstock.graph.router import KV_ONLY

Schema = dict[str, Any]

OBJECT: Schema = {"type": "object"}
NOTHING: Schema = {"type": "null"}


def values_schema() -> Schema:
    """The JSON schema by which Helm validates the merged values, defaults included.

    values.yaml supplies every default, so each is `required` here: in Helm `replicas: null` deletes
    a default, and a template would read the missing value as 0.
    """
    schema = graph_schema()
    # The templates check it: of a choice that may be null, Helm's message ends in `<nil>`.
    del schema["properties"]["dynamo"]["enum"]
    # Helm adds `global` when the chart is a dependency of another one.
    schema["properties"]["global"] = {**OBJECT, "description": "Added by Helm; not used."}
    for part in _always_there(schema):
        defaulted = [n for n, p in part["properties"].items() if has_default(p)]
        part["required"] = [*part.get("required", []), *defaulted]
    return schema


def graph_schema() -> Schema:
    """The JSON schema of a graph file, in which fields with a default are optional."""
    schema = plain_schema()
    schema["allOf"] = [_pools_rule(), _speculation_rule()]
    for section in ("Frontend", "WorkerPool"):
        schema["$defs"][section]["allOf"] = [_owner_rule()]
    schema["$defs"]["Router"]["allOf"] = [_kv_rule(), _queue_rule()]
    schema["$defs"]["Speculation"]["allOf"] = [_eagle_rule()]
    for old, new in RENAMED_KEYS.items():
        _accept_old_key(schema, old, new)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A penstock graph: the values of helm/penstock",
        **schema,
    }


def _accept_old_key(schema: Schema, old: str, new: str) -> None:
    """Describe the old key like the new one, as deprecated and without a default."""
    prop = {k: v for k, v in property_at(schema, new).items() if k != "default"}
    if isinstance(prop.get("type"), str):
        prop["type"] = [prop["type"], "null"]
    section, _, name = old.rpartition(".")
    _properties_of(schema, section)[name] = {
        **prop,
        "description": f"Deprecated: use {new}.",
        "deprecated": True,
    }


def property_at(schema: Schema, place: str) -> Schema:
    """The property at a dotted place."""
    section, _, name = place.rpartition(".")
    return dict(_properties_of(schema, section)[name])


def _properties_of(schema: Schema, section: str) -> Schema:
    """The properties of a section by its dotted place; of the graph for the empty one."""
    part = schema
    for step in section.split(".") if section else ():
        part = schema["$defs"][section_of(part["properties"][step])]
    properties: Schema = part["properties"]
    return properties


def plain_schema() -> Schema:
    """pydantic's schema of the graph without titles, JsonValue and anyOf with null."""
    schema = Graph.model_json_schema()
    schema.pop("title")
    schema["$defs"].pop("JsonValue")
    for part in (schema, *schema["$defs"].values()):
        part.pop("title", None)
        for name, prop in part["properties"].items():
            part["properties"][name] = _simplified(name, prop)
    _let_optional_sections_be_null(schema)
    return schema


def _simplified(name: str, prop: Schema) -> Schema:
    """One property without `anyOf`, for which Helm's message would list every branch."""
    prop = {k: v for k, v in prop.items() if k not in ("title", "anyOf")} | _without_null_branch(
        prop.get("anyOf", [])
    )
    if prop.get("default", ...) is None:
        del prop["default"]
    elif "$ref" in prop and "default" in prop:
        prop["default"] = {}
    for part in (prop, prop.get("items", {})):
        if part.get("additionalProperties") == {"$ref": "#/$defs/JsonValue"}:
            part["additionalProperties"] = True
    if "patternProperties" in prop:
        prop["additionalProperties"] = False
    if name == "pod":
        prop["properties"] = dict.fromkeys(POD_KEYS_OF_THE_CHART, NOTHING)
    return prop


def _without_null_branch(branches: list[Schema]) -> Schema:
    """`anyOf: [X, null]` as X that may be null; a `$ref` is only marked as nullable."""
    if not branches:
        return {}
    (branch,) = (b for b in branches if b != NOTHING)
    if "$ref" in branch:
        return {**branch, "nullable": True}
    if "enum" in branch:
        return {"enum": [*branch["enum"], None]}
    return {**branch, "type": [branch["type"], "null"]}


def _let_optional_sections_be_null(schema: Schema) -> None:
    """Allow null in the definition of each optional section, as none is required elsewhere."""
    for part in (schema, *schema["$defs"].values()):
        for prop in part["properties"].values():
            if prop.pop("nullable", False):
                schema["$defs"][section_of(prop)]["type"] = ["object", "null"]


def section_of(prop: Schema) -> str:
    """Name of the definition a property refers to."""
    return str(prop["$ref"]).rsplit("/", 1)[-1]


def has_default(prop: Schema) -> bool:
    return "default" in prop


def _always_there(schema: Schema) -> Iterator[Schema]:
    """The graph and its sections with defaults, all of which are in values.yaml.

    Not the sections of an optional section: they exist only in graphs that have it.
    """
    parts = [schema]
    while parts:
        part = parts.pop()
        yield part
        sections = [section_of(p) for p in part["properties"].values() if "$ref" in p]
        parts += [d for d in map(schema["$defs"].get, sections) if d and d["type"] == "object"]


def _pools_rule() -> Schema:
    """Either `worker` alone, or `prefill` and `decode`; null means absent."""
    return {
        "if": {"properties": {"worker": OBJECT}, "required": ["worker"]},
        "then": {"properties": {"prefill": NOTHING, "decode": NOTHING}},
        "else": {
            "properties": {"prefill": OBJECT, "decode": OBJECT},
            "required": ["prefill", "decode"],
        },
    }


def _speculation_rule() -> Schema:
    engine = {"properties": {"kind": {"enum": [*NO_SPECULATION]}}, "required": ["kind"]}
    return {
        "if": {"properties": {"engine": engine}},
        "then": {"properties": {"speculation": NOTHING}},
    }


def _owner_rule() -> Schema:
    """Either `autoscaling` or `replicas`."""
    return {
        "if": {"properties": {"autoscaling": OBJECT}, "required": ["autoscaling"]},
        "then": {"properties": {"replicas": NOTHING}},
    }


def _kv_rule() -> Schema:
    """Refuse keys of kv mode in other modes, except those that values.yaml always sets."""
    return {
        "if": {"properties": {"mode": {"const": "kv"}}},
        "then": {},
        "else": {"properties": dict.fromkeys(unset_kv_keys(), NOTHING)},
    }


def _queue_rule() -> Schema:
    """A policy needs a queue."""
    return {
        "if": {"properties": {"queue_policy": {"type": "string"}}, "required": ["queue_policy"]},
        "then": {
            "properties": {"queue_threshold": {"type": "number"}},
            "required": ["queue_threshold"],
        },
    }


def unset_kv_keys() -> list[str]:
    """Keys of the router that only kv mode reads and that values.yaml does not set."""
    router = plain_schema()["$defs"]["Router"]["properties"]
    return sorted(name for name in KV_ONLY if not has_default(router[name]))


def _eagle_rule() -> Schema:
    return {
        "if": {"properties": {"method": {"const": "eagle3"}}, "required": ["method"]},
        "then": {"properties": {"draft_model": {"type": "string"}}, "required": ["draft_model"]},
        "else": {"properties": {"draft_model": NOTHING}},
    }
