"""Write what can be checked of a DynamoGraphDeployment, from the CRDs of several operators.

uv run python tools/dump_dgd_fields.py 1.5=CRD.yaml 1.6=CRD.yaml > dgd_fields.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.manifests.fields import Schema, specs_of

# The stored CRDs are deploy/operator/config/crd/bases/nvidia.com_dynamographdeployments.yaml of
# ai-dynamo/dynamo at v1.0.2 (1.0), release/1.1.0 (1.1), 0a132bc43 (1.2), 82ce03df2 (1.3), d7bb84ef0
# (1.4) and main of 2026-08-21 (1.5 and 1.6). Those of 1.2 to 1.4 are the last changes before each
# release's branch, by the pull requests in its release notes and the engines in its images.
KEPT = (
    *("type", "enum", "minimum", "maximum", "pattern", "minLength", "maxLength"),
    *("minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
)
NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": 63,
    "pattern": "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$",
}
GROUP = {
    "type": "object",
    "required": ["name", "replicas", "components"],
    "properties": {
        "name": NAME,
        "replicas": {"type": "integer", "minimum": 1},
        "scalingAdapter": {"type": "object"},
        "components": {
            "type": "array",
            "minItems": 1,
            "maxItems": 16,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string", "minLength": 1}},
            },
        },
    },
}
# The fields of 1.6 that the newest CRD that could be read (main, 2026-08-21) does not have:
# dynamographdeployment_types.go@0fddc01b and dynamocomponentdeployment_types.go@006b6e10.
ADDED: Mapping[str, tuple[tuple[str, str, Schema], ...]] = {
    "1.6": (
        ("experimental", "componentGroups", {"type": "array", "maxItems": 16, "items": GROUP}),
        ("components", "roles", {"type": "array", "items": {"type": "object"}}),
        ("components", "dynamoSidecar", {"type": "string"}),
    )
}


def main(files: Mapping[str, Path]) -> None:
    nodes: list[Any] = []
    known: dict[str, int] = {}
    releases = {
        release: {
            version: _number(spec, nodes, known) for version, spec in _specs(release, path).items()
        }
        for release, path in files.items()
    }
    data = {"made_by": "tools/dump_dgd_fields.py", "releases": releases}
    json.dump(data | {"schemas": nodes}, sys.stdout, separators=(",", ":"))
    print()


def _specs(release: str, path: Path) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 0.2 s instead of 3 s
    specs: dict[str, Any] = specs_of(yaml.load(path.read_text("utf-8"), loader))  # noqa: S506
    for parent, name, schema in ADDED.get(release, ()):
        section = specs["nvidia.com/v1beta1"]["properties"][parent]
        section.get("items", section)["properties"][name] = schema
    return specs


def _number(schema: Any, nodes: list[Any], known: dict[str, int]) -> int:
    """The index of a schema in ``nodes``, which has each schema once, after its parts."""
    kept = {key: schema[key] for key in KEPT if key in schema}
    properties = schema.get("properties", {})
    if properties:
        kept["properties"] = {n: _number(properties[n], nodes, known) for n in sorted(properties)}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = _number(schema[key], nodes, known)
    # A field with a default is never missing: the API server adds it first.
    required = [n for n in schema.get("required", ()) if "default" not in properties.get(n, {})]
    if required:
        kept["required"] = required
    text = json.dumps(kept)
    if text not in known:
        known[text] = len(nodes)
        nodes.append(kept)
    return known[text]


if __name__ == "__main__":
    main({release: Path(path) for release, path in (arg.split("=") for arg in sys.argv[1:])})
