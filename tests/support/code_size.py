"""Counts the code of the package or the tests: what the budgets of tests/test_code_size.py limit.

python -m tests.support.code_size [CHECKOUT]    prints a table per package

A line of code carries at least one token that is neither a comment nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = Path("components") / "src"
VAGUE_NAMES = frozenset({"one", "found", "own", "some", "made", "given", "others", "shown"})
GENERIC_NAMES = ("item", "result", "value", "data")
SMALL_LINES = 60
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class ModuleSize:
    """One file; ``names`` counts each name that it assigns or takes as a parameter."""

    path: Path
    lines: int
    code: int
    comments: int
    names: Counter[str]
    functions: Mapping[tuple[str, int], int]
    """Name and first line → lines."""


@dataclass(frozen=True, kw_only=True)
class FolderSize:
    files: int
    lines: int
    code: int
    comments: int
    names: Counter[str]

    @property
    def vague(self) -> float:
        """The share of assigned names that say nothing, 0 to 1."""
        return sum(self.names[name] for name in VAGUE_NAMES) / max(1, self.names.total())

    @property
    def comments_per_100(self) -> float:
        return 100 * self.comments / max(1, self.code)


@cache
def module_size(path: Path) -> ModuleSize:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    docstrings = {line for node in ast.walk(tree) for line in docstring_lines(node)}
    code, comments = set[int](), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comments += token.type == tokenize.COMMENT
        if token.type not in NOT_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return ModuleSize(
        path=path,
        lines=len(text.splitlines()),
        code=len(code - docstrings),
        comments=comments,
        names=Counter(assigned_names(tree)),
        functions={
            (node.name, node.lineno): (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        },
    )


def docstring_lines(node: ast.AST) -> range:
    if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
        return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    return range(0)


def assigned_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def folder_size(modules: list[ModuleSize]) -> FolderSize:
    return FolderSize(
        files=len(modules),
        lines=sum(module.lines for module in modules),
        code=sum(module.code for module in modules),
        comments=sum(module.comments for module in modules),
        names=sum((module.names for module in modules), Counter[str]()),
    )


def sizes_by_folder(root: Path) -> dict[str, FolderSize]:
    """The sizes of the folders directly below ``root``; "." is the files next to them."""
    folders: defaultdict[str, list[ModuleSize]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        folders[parts[0] if len(parts) > 1 else "."].append(module_size(path))
    return {name: folder_size(modules) for name, modules in sorted(folders.items())}


def small_modules_of_one_importer(source: Path) -> list[str]:
    """Modules of at most SMALL_LINES that exactly one other module of the package imports."""
    files = {module_name(path, source): path for path in (source / "penstock").rglob("*.py")}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in files.items():
        for imported in imported_modules(path, files):
            importers[imported].add(name)
    return sorted(
        name
        for name, path in files.items()
        if path.name != "__init__.py"
        and len(path.read_text("utf-8").splitlines()) <= SMALL_LINES
        and len(importers[name] - {name}) == 1
    )


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, files: dict[str, Path]) -> set[str]:
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # `from package import module` imports the module, `from module import name` its owner.
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= members & files.keys() or {node.module}
    return names & files.keys()


def main() -> int:
    checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for root in (checkout / SOURCE / "penstock", checkout / "tests"):
        sizes = sizes_by_folder(root)
        total = folder_size([module_size(path) for path in root.rglob("*.py")])
        print(f"{root.name:16} {'files':>6} {'lines':>7} {'code':>7} {'vague':>7} comments/100")
        for name, size in (*sizes.items(), ("total", total)):
            print(
                f"{name:16} {size.files:6} {size.lines:7} {size.code:7} {size.vague:7.1%}"
                f" {size.comments_per_100:6.1f}"
            )
        shares = [f"{n} {total.names[n] / total.names.total():.2%}" for n in GENERIC_NAMES]
        print("share of all assigned names:", ", ".join(shares))
    small = small_modules_of_one_importer(checkout / SOURCE)
    print(f"modules with one importer and at most {SMALL_LINES} lines: {len(small)}")
    print(*(f"  {name}" for name in small), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
