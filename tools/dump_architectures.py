"""Write which version of vLLM and SGLang was the first with each model architecture, as JSON.

    uv run python tools/dump_architectures.py FOLDER > architectures.json

FOLDER has one folder per package of Dynamo's releases, such as `vllm-0.26.0`. Only architectures
of `models.known` are written. The sources are parsed; none of their code runs.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from dump_value_history import tree_of
from penstock.engines.releases import RELEASES
from penstock.models.known import known_models

# Tables of vllm/model_executor/models/registry.py that name no class of vLLM.
OTHER_TABLES = (
    *("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS"),
    *("_TRANSFORMERS_BACKEND_MODELS", "_VLLM_MODELS"),
)


def main(folder: Path) -> None:
    known = {str(config.get("architecture")) for config in known_models().values()}
    text: dict[str, object] = {"made_by": "tools/dump_architectures.py"}
    for engine, read in (("vllm", _vllm), ("sglang", _sglang)):
        first: dict[str, str] = {}
        for version in dict.fromkeys(getattr(release, engine) for release in RELEASES.values()):
            for name in sorted(known & set(read(folder / f"{engine}-{version}"))):
                first.setdefault(name, version)
        text[engine] = dict(sorted(first.items()))
    print(json.dumps(text, indent=1))


def _vllm(root: Path) -> Iterator[str]:
    """The keys of the registry's tables: architecture → (module, class)."""
    for node in tree_of(root / "vllm/model_executor/models/registry.py").body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.targets[0]) not in OTHER_TABLES:
            keys = (key for key in node.value.keys if isinstance(key, ast.Constant))
            yield from (str(key.value) for key in keys)


def _sglang(root: Path) -> Iterator[str]:
    """The names of the classes in `EntryClass` of each module."""
    for path in sorted((root / "sglang/srt/models").glob("*.py")):
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
