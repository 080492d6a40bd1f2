"""Write the fields of Dynamo's PlannerConfig as JSON: run it in penstock's environment.

uv run python tools/dump_planner_config.py > planner_config.json
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from importlib import import_module
from typing import Any

from penstock.engines.substitutes import PLANNER, substituted

BOUNDS = ("minimum", "exclusiveMinimum", "maximum")


def described(field: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """The types that JSON has for a field, its choices and bounds, and all its spellings."""
    branches = schema.get("anyOf", [schema])
    found: dict[str, Any] = {"types": sorted({b.get("type", "object") for b in branches})}
    for branch in branches:
        found |= {key: branch[key] for key in ("enum", *BOUNDS) if key in branch}
    if field.validation_alias is not None:
        found["spellings"] = list(field.validation_alias.choices)
    return found


def main() -> None:
    with substituted(PLANNER):
        config = import_module("dynamo.planner.config.planner_config").PlannerConfig
    schemas = config.model_json_schema(by_alias=False)
    enums = {name: part for name, part in schemas["$defs"].items() if "enum" in part}
    fields = {}
    for name, schema in schemas["properties"].items():
        branches = [
            enums.get(str(b.get("$ref", "")).rsplit("/", 1)[-1], b)
            for b in schema.get("anyOf", [schema])
        ]
        fields[name] = described(config.model_fields[name], {"anyOf": branches})
    version = importlib.metadata.version("ai-dynamo")
    written = {"made_by": "tools/dump_planner_config.py", "ai-dynamo": version}
    json.dump({**written, "fields": fields}, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
