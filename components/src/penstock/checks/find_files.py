"""The graphs and manifests below a folder; other YAML files are skipped."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.graph.foreign import REQUIRED, SIMILAR
from penstock.manifests.source import MOST_BYTES
from penstock.text.names import nearest

SUFFIXES = (".yaml", ".yml")
MANIFEST = re.compile(
    r"(?:^|[{,])\s*(?:- )?[\"']?kind[\"']?\s*:\s*[\"']?DynamoGraphDeployment\b", re.MULTILINE
)
KIND = re.compile(r"^kind\s*:\s*[\"']?(\w+)", re.MULTILINE)
# A line that is not empty, a comment or a marker; its indentation is that of the top-level keys.
CONTENT = re.compile(r"^(?!---|%|\.\.\.)([ \t]*)[^\s#]", re.MULTILINE)
# Of a Helm chart: its YAML files are templates and values, of which only the output is checked.
CHART = "Chart.yaml"


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    files: tuple[Path, ...]
    # The other YAML files of folders.
    skipped: tuple[SkippedFile, ...]


def found_files(paths: Iterable[Path]) -> FoundFiles:
    """The files of ``paths``, with folders replaced by what is in them, each file once."""
    files: dict[Path, Path] = {}
    skipped: dict[Path, SkippedFile] = {}
    for path in paths:
        below = list(_yaml_files(path)) if path.is_dir() else []
        charts = tuple(file.parent for file in below if file.name == CHART)
        reasons = {file: _why_skipped(file, charts) for file in below}
        for file, reason in reasons.items():
            if reason:
                skipped[file.absolute()] = SkippedFile(path=file, reason=reason)
        # A folder with nothing to check is a finding.
        for file in [file for file in below if not reasons[file]] or [path]:
            files.setdefault(file.absolute(), file)
    return FoundFiles(
        files=tuple(files.values()),
        skipped=tuple(file for path, file in skipped.items() if path not in files),
    )


def _why_skipped(path: Path, charts: Iterable[Path]) -> str:
    """Why a file of a folder is not checked; empty if it is."""
    return "part of a Helm chart" if _is_in(path, charts) else why_skipped(path)


def why_skipped(path: Path) -> str:
    """Empty if a file contains a DynamoGraphDeployment or has the keys of a graph."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ""  # `check` says why it cannot be read
    if MANIFEST.search(text):
        return ""
    first = CONTENT.search(text)
    if first is None:
        return "empty"
    if _is_graph(_keys(text, first)):
        return ""
    kind = KIND.search(text)
    return f"kind: {kind[1]}" if kind else "no `model` and `engine` as in a graph"


def _keys(text: str, first: re.Match[str]) -> set[str]:
    """The top-level keys in lower case; of a file in braces, all keys."""
    before = r"[{,]\s*" if text[first.end() - 1] == "{" else f"^{first[1]}"
    found = re.finditer(rf"{before}[\"']?(\w+)[\"']?\s*:", text, re.MULTILINE)
    return {match[1].lower() for match in found}


def _is_graph(keys: set[str]) -> bool:
    """Whether ``keys`` are those of a graph, some perhaps mistyped.

    Programs of other kinds have a `mode`: without `model` or `engine` as such, more must agree.
    """
    required = {nearest(key, REQUIRED, SIMILAR) for key in keys} - {""}
    if not required:
        return False
    # Imported here: pydantic takes longer to import than a manifest takes to check.
    from penstock.graph.model import Graph

    similar = {nearest(key, Graph.model_fields, SIMILAR) for key in keys} - {""}
    is_sure = not keys.isdisjoint(REQUIRED) or len(required) == len(REQUIRED)
    return len(similar) >= (2 if is_sure else 3)


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _yaml_files(folder: Path) -> Iterator[Path]:
    """In the order of their names, without hidden folders; symbolic links are not followed."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield Path(parent) / name
