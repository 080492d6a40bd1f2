"""Generate chart values and documentation from the model's defaults and descriptions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.graph.schema import Schema, has_default, plain_schema, section_of
from penstock.text.numbers import plain_number

# Section after whose description the example is shown → YAML of one or several sections.
EXAMPLES: Mapping[str, str] = {
    "model": """\
model:
  id: openai/gpt-oss-120b
  revision: b5c939de8f754692c1647ca79fbf85e8c1e70f8a
  context_length: 131072
  reasoning_parser: gpt_oss
  tool_call_parser: harmony
  cache:
    pvc: model-cache
    create: {size: 200Gi}
    download: true
  token_secret: hf-token-secret
""",
    "hardware": """\
hardware:
  gpu: h200
  gpus_per_node: 8
  nodes: 2
  gpu_hour_price: 2.5
  fabric: ib
""",
    "slo": """\
slo:
  ttft_ms: 1000
  itl_ms: 20
""",
    "gateway": """\
gateway:
  hostname: llm.example.com
  tls: {secret: llm-tls}
  rate_limit: {requests: 600, unit: minute}
""",
    "prefill": """\
prefill:
  replicas: 4
  gpus: 1
  shared_memory: 80Gi
  config: {max_batch_size: 64, max_num_tokens: 16384}
decode:
  replicas: 1
  gpus: 4
  shared_memory: 80Gi
  config: {max_batch_size: 512, max_num_tokens: 16384}
""",
    "worker": """\
worker:
  gpus: 2
  autoscaling:
    owner: keda
    min: 2
    max: 8
    signal: kv_usage
    target: 0.8
cluster:
  monitoring: {pod_monitors: true}
""",
    "speculation": """\
speculation:
  method: eagle3
  draft_model: nvidia/gpt-oss-120b-Eagle3-v3
  draft_tokens: 3
""",
}


WIDTH = 100


def values_yaml() -> str:
    """The chart's values.yaml: every default, each under its description, and the examples.

    Fields without a default are comments: as values they would always exist, and Helm would pass
    the templates pools that the graph does not have.
    """
    schema = plain_schema()
    sections = [
        "\n".join(
            [
                *_values_of(schema, {**schema, "properties": {name: prop}}, ""),
                *_example(EXAMPLES.get(name, "")),
            ]
        )
        for name, prop in schema["properties"].items()
    ]
    return "\n\n".join(sections) + "\n"


def _example(text: str) -> list[str]:
    """An example as comment lines; nothing for an empty one."""
    return ["# Example:", *(f"#   {line}" for line in text.splitlines())] if text else []


def _values_of(schema: Schema, part: Schema, indent: str) -> Iterator[str]:
    for name, prop in part["properties"].items():
        yield from _comment(_described(name, prop, part), indent)
        if "$ref" not in prop:
            yield indent + _leaf(name, prop)
        elif not _always_there(name, prop, part):
            yield f"{indent}# {name}:"
        else:
            yield from _section(schema, name, schema["$defs"][section_of(prop)], indent)


def _section(schema: Schema, name: str, part: Schema, indent: str) -> Iterator[str]:
    has_value = any(has_default(p) for p in part["properties"].values())
    yield f"{indent}{name}:" + ("" if has_value else " {}")
    yield from _values_of(schema, part, indent + "  ")


def _leaf(name: str, prop: Schema) -> str:
    if has_default(prop):
        return f"{name}: {json.dumps(prop['default'])}"
    return f"# {name}:"


def _always_there(name: str, prop: Schema, part: Schema) -> bool:
    return has_default(prop) or name in part.get("required", [])


def _described(name: str, prop: Schema, part: Schema) -> str:
    required = " (required)" if name in part.get("required", []) else ""
    return f"{prop['description']}{required}"


def _comment(text: str, indent: str) -> list[str]:
    lead = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False
    )


def pool_defaults() -> dict[str, Any]:
    """Defaults of the optional sections, which the chart merges into each section of a graph.

    They cannot be in values.yaml, where a pool with a default would exist in every graph.
    """
    schema = plain_schema()
    return {
        "pool": _defaults(schema, "WorkerPool"),
        "autoscaling": _defaults(schema, "Autoscaling"),
        "planner": _defaults(schema, "Planner"),
        "speculation": _defaults(schema, "Speculation"),
        "model_cache": _defaults(schema, "ModelCache"),
        "cache_claim": _defaults(schema, "CacheClaim"),
        "gateway": _defaults(schema, "GatewaySection"),
        "rate_limit": _defaults(schema, "RateLimit"),
        "tracing": _defaults(schema, "Tracing"),
    }


def _defaults(schema: Schema, section: str) -> dict[str, Any]:
    return {
        name: _defaults(schema, section_of(prop)) if "$ref" in prop else prop["default"]
        for name, prop in schema["$defs"][section]["properties"].items()
        if has_default(prop)
    }


def reference_markdown() -> str:
    """Every field of the graph YAML with type, default and description, one table per section."""
    schema = plain_schema()
    tables = [_table("the graph", schema)]
    for section, places in _sections(schema, schema, "").items():
        heading = ", ".join(f"`{place}`" for place in places)
        tables.append(_table(heading, schema["$defs"][section]))
    return "\n".join(tables)


def _sections(schema: Schema, part: Schema, prefix: str) -> dict[str, list[str]]:
    """Definition → the dotted places that use it, in the order of the fields."""
    places_by_section: dict[str, list[str]] = {}
    for name, prop in part["properties"].items():
        if "$ref" not in prop:
            continue
        section = section_of(prop)
        places_by_section.setdefault(section, []).append(prefix + name)
        inner = _sections(schema, schema["$defs"][section], f"{prefix}{name}.")
        for deeper, places in inner.items():
            places_by_section.setdefault(deeper, []).extend(places)
    return places_by_section


def _table(heading: str, part: Schema) -> str:
    rows = [f"## {heading}", "", "| field | type | default | description |", "|---|---|---|---|"]
    for name, prop in part["properties"].items():
        cells = (f"`{name}`", _type(prop), _default(name, prop, part), prop["description"])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _type(prop: Schema) -> str:
    if "$ref" in prop:
        return "section"
    if "enum" in prop:
        return " / ".join(f"`{choice}`" for choice in prop["enum"] if choice is not None)
    kind = prop["type"] if isinstance(prop["type"], str) else prop["type"][0]
    if kind == "object":
        values = prop["additionalProperties"]
        is_count = isinstance(values, dict) and values.get("type") == "integer"
        return "map" if values is True else f"map of {'integers' if is_count else 'strings'}"
    if kind == "array":
        return "list of maps" if prop["items"].get("type") == "object" else "list of strings"
    return TYPE_NAMES[kind] + _bounds(prop)


TYPE_NAMES = {"integer": "integer", "number": "number", "string": "string", "boolean": "bool"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _bounds(prop: Schema) -> str:
    bounds = [f"{sign} {plain_number(prop[key])}" for key, sign in BOUNDS.items() if key in prop]
    return " " + ", ".join(bounds) if bounds else ""


def _default(name: str, prop: Schema, part: Schema) -> str:
    if name in part.get("required", []):
        return "required"
    if not has_default(prop):
        return "unset"
    return "" if "$ref" in prop else f"`{json.dumps(prop['default'])}`"
