"""Write the names of a DynamoGraphDeployment's fields as a tree, from its CRD.

uv run python dump_dgd_fields.py nvidia.com_dynamographdeployments.yaml > dgd_fields.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.manifests.fields import Tree, field_trees


def main(path: Path) -> None:
    crd = yaml.safe_load(path.read_text("utf-8"))
    json.dump(shared(field_trees(crd)), sys.stdout, separators=(",", ":"))
    print()


def shared(versions: Mapping[str, Tree]) -> dict[str, Any]:
    """Equal subtrees once, under `trees`, and their number wherever they stand."""
    trees: list[Any] = []
    known: dict[str, int] = {}

    def number(node: Tree) -> int:
        if not node:
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
