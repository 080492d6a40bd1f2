"""Write which release of Dynamo has which flags, as JSON: from the unpacked wheels.

    uv run python tools/dump_flag_history.py FOLDER > flag_history.json

FOLDER has one folder per wheel, such as `ai-dynamo-1.4.2`, `vllm-0.26.0` and `sglang-0.5.16`. None
of their code runs: the sources may name flags that a parser lacks, but never lack one that it has.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.engines.releases import RELEASES

MODULES = ("frontend", "mocker", "sglang", "trtllm", "vllm")
LITERAL = re.compile(r"""["'](--[a-z][a-z0-9_-]*)["']""")


def main(folder: Path) -> None:
    flags: dict[str, dict[str, list[str]]] = {f"dynamo.{name}": {} for name in MODULES}
    for release, versions in RELEASES.items():
        engines = {
            "vllm": _vllm(folder / f"vllm-{versions.vllm}"),
            "sglang": _sglang(folder / f"sglang-{versions.sglang}"),
        }
        for name in MODULES:
            own = _dynamo(folder / f"ai-dynamo-{versions.dynamo}" / "dynamo", name)
            found = {*own, *engines.get(name, ())}
            for flag in found:
                flags[f"dynamo.{name}"].setdefault(flag, []).append(release)
    _write(flags)


def _write(flags: dict[str, dict[str, list[str]]]) -> None:
    """The first and the last release of each, one a line."""
    lines = []
    for title, table in flags.items():
        rows = [f'  "{name}": ["{seen[0]}", "{seen[-1]}"]' for name, seen in sorted(table.items())]
        lines.append(f' "{title}": {{\n' + ",\n".join(rows) + "\n }")
    about = ' "made_by": "tools/dump_flag_history.py"'
    print("{\n" + about + ",\n" + ",\n".join(lines) + "\n}")


def _dynamo(root: Path, name: str) -> Iterator[str]:
    for folder in (root / name, root / "common"):
        yield from _literals(p for p in folder.rglob("*.py") if "tests" not in p.parts)


def _vllm(root: Path) -> set[str]:
    return {_dashed(f) for f in _literals([root / "vllm" / "engine" / "arg_utils.py"])}


def _sglang(root: Path) -> set[str]:
    """Since 0.5.14 SGLang makes its flags of the fields of classes."""
    folder = root / "sglang" / "srt"
    paths = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
    found = {_dashed(flag) for flag in _literals(paths)}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(_dashed(f"--{node.target.id.lower().strip('_')}"))
    return found


def _literals(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from LITERAL.findall(path.read_text("utf-8"))


def _dashed(flag: str) -> str:
    return flag.replace("_", "-")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
