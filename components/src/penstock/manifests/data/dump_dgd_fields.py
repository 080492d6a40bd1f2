"""Write the names of a DynamoGraphDeployment's fields as a tree, from its CRD.

uv run python dump_dgd_fields.py nvidia.com_dynamographdeployments.yaml > dgd_fields.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml


def tree(schema: Any) -> Any:
    """Field → its own fields, `*` for a map's; 0 where any key is allowed."""
    if "items" in schema:
        return tree(schema["items"])
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict) and "properties" in inner:
        return {"*": tree(inner)}
    properties = schema.get("properties")
    preserves = schema.get("x-kubernetes-preserve-unknown-fields")
    if not isinstance(properties, dict) or preserves or inner is not None:
        return 0
    return {name: tree(inner) for name, inner in sorted(properties.items())}


def main(path: Path) -> None:
    crd = yaml.safe_load(path.read_text("utf-8"))
    versions = {
        f"nvidia.com/{v['name']}": tree(v["schema"]["openAPIV3Schema"]["properties"]["spec"])
        for v in crd["spec"]["versions"]
    }
    json.dump(shared(versions), sys.stdout, separators=(",", ":"))
    print()


def shared(versions: dict[str, Any]) -> dict[str, Any]:
    """Equal subtrees once, under `trees`, and their number wherever they stand."""
    trees: list[Any] = []
    known: dict[str, int] = {}

    def number(node: Any) -> int:
        if not isinstance(node, dict):
            return 0
        own = {name: number(inner) for name, inner in node.items()}
        text = json.dumps(own)
        if text not in known:
            trees.append(own)
            known[text] = len(trees)
        return known[text]

    roots = {name: number(root) for name, root in versions.items()}
    return {"made_by": "penstock/manifests/data/dump_dgd_fields.py", "roots": roots, "trees": trees}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
