"""Write which release of Dynamo has which flags, as JSON: from the unpacked wheels.

    uv run python tools/dump_flag_history.py FOLDER > flag_history.json

FOLDER has one folder per wheel, such as `ai-dynamo-1.4.2`, `vllm-0.26.0` and `sglang-0.5.16`. None
of their code runs: the sources may name flags that a parser lacks, but never lack one that it has.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from penstock.engines.releases import RELEASES

MODULES = ("frontend", "mocker", "sglang", "trtllm", "vllm")
# Groups of flags, each for some of the modules. The rest of `dynamo.common` has other programs.
SHARED = ("common/configuration", "common/config_dump")
DEFINITION = (ast.ClassDef, ast.FunctionDef)
FLAG = re.compile(r"--[a-z][a-z0-9_-]*")
# A field of SGLang without a flag, or with one that is in the code as a string.
OTHER_NAME = re.compile("no_cli=True|cli_name=")
GUARD = re.compile(r"""^if __name__ == ["']__main__["']""", re.MULTILINE)


def main(folder: Path) -> None:
    flags: dict[str, dict[str, list[str]]] = {f"dynamo.{name}": {} for name in MODULES}
    for release, versions in RELEASES.items():
        engines = {
            "vllm": _vllm(folder / f"vllm-{versions.vllm}"),
            "sglang": _sglang(folder / f"sglang-{versions.sglang}"),
        }
        for name in MODULES:
            wheel = folder / f"ai-dynamo-{versions.dynamo}" / "dynamo"
            dynamo = flags_of_files(wheel, _files(wheel / name))
            for flag in {*dynamo, *engines.get(name, ())}:
                flags[f"dynamo.{name}"].setdefault(flag, []).append(release)
    write_spans("tools/dump_flag_history.py", flags)


def write_spans(made_by: str, tables: Mapping[str, Mapping[str, list[str]]]) -> None:
    """The first and the last release of each name, one a line."""
    lines = []
    for title, table in tables.items():
        rows = [f'  "{name}": ["{seen[0]}", "{seen[-1]}"]' for name, seen in sorted(table.items())]
        lines.append(f' "{title}": {{\n' + ",\n".join(rows) + "\n }")
    print(f'{{\n "made_by": "{made_by}",\n' + ",\n".join(lines) + "\n}")


def flags_of(source: str) -> Iterator[str]:
    """The flags of the code: what it declares, and what it looks for before the parser does.

    A flag is a string of its own, so that messages, comments and docstrings do not count. A name
    that the code builds, as in `"--aic-" + field` or f"--aic-{field}", counts up to the last `-`.
    """
    nodes = list(ast.walk(ast.parse(source)))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    declared = [argument for call in calls if _declares(call) for argument in call.args]
    beginnings = [text.values[0] for text in declared if isinstance(text, ast.JoinedStr)]
    for node in (*(node for node in nodes if id(node) not in parts), *beginnings):
        if isinstance(node, ast.Constant) and FLAG.fullmatch(str(node.value)):
            yield str(node.value)


def _declares(call: ast.Call) -> bool:
    """Whether it is a call such as `group.add_argument("--flag")`."""
    return ast.unparse(call.func).rpartition(".")[2].startswith("add_")


def flags_of_files(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    """The flags of a module's files in a wheel, and of the shared code that they name."""
    sources = [path.read_text("utf-8") for path in paths]
    shared = [ast.parse(p.read_text("utf-8")) for s in SHARED for p in (root / s).rglob("*.py")]
    unused = [node for tree in shared for node in tree.body if isinstance(node, DEFINITION)]
    for source in sources:  # it grows: a definition may name others
        yield from flags_of(source)
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        sources += [ast.unparse(node) for node in unused if node.name in names]
        unused = [node for node in unused if node.name not in names]


def _files(folder: Path) -> Iterator[Path]:
    """Without the programs below the module: `vllm.omni` and `sglang.utils.clear_namespace`."""
    for path in folder.rglob("*.py"):
        parents = list(path.relative_to(folder).parents)[:-1]
        is_program = bool(parents) and GUARD.search(path.read_text("utf-8"))
        is_of_program = any((folder / parent / "__main__.py").exists() for parent in parents)
        if "tests" not in path.parts and not is_program and not is_of_program:
            yield path


def _vllm(root: Path) -> set[str]:
    source = (root / "vllm" / "engine" / "arg_utils.py").read_text("utf-8")
    return {_dashed(flag) for flag in flags_of(source)}


def _sglang(root: Path) -> set[str]:
    folder = root / "sglang" / "srt"
    paths = [folder / "server_args.py", *sorted((folder / "arg_groups").rglob("*.py"))]
    sources = [path.read_text("utf-8") for path in paths]
    return {_dashed(flag) for source in sources for flag in (*flags_of(source), *_fields(source))}


def _fields(source: str) -> Iterator[str]:
    """Since 0.5.14 SGLang makes flags of the fields `name: A[type, help]` of classes."""
    for node in ast.walk(ast.parse(source)):
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field in body:
            match field:
                case ast.AnnAssign(target=ast.Name(name), annotation=ast.Subscript() as kind):
                    text = ast.unparse(kind)
                    if text.startswith(("A[", "Annotated[")) and not OTHER_NAME.search(text):
                        yield f"--{name}"


def _dashed(flag: str) -> str:
    return flag.replace("_", "-")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
