"""The graphs and manifests below a folder; other YAML files are counted and not checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.manifests.source import MOST_BYTES

SUFFIXES = (".yaml", ".yml")
MANIFEST = re.compile(r"^\s*(- )?kind\s*:\s*[\"']?DynamoGraphDeployment\b", re.MULTILINE)
KEY = re.compile(r"^([a-z_]+)\s*:", re.MULTILINE)
# Of a Helm chart: its YAML files are templates and values, of which only the output is checked.
CHART = "Chart.yaml"


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    files: tuple[Path, ...]
    # Number of other YAML files.
    skipped: int


def found_files(paths: Iterable[Path]) -> FoundFiles:
    """The files of ``paths``, with folders replaced by what is in them, each file once."""
    files: dict[Path, Path] = {}
    skipped = 0
    for path in paths:
        below = list(_yaml_files(path)) if path.is_dir() else []
        charts = tuple(one.parent for one in below if one.name == CHART)
        chosen = [one for one in below if is_checked(one) and not _is_in(one, charts)]
        skipped += len(below) - len(chosen)
        for one in chosen or [path]:  # a folder with nothing to check is a finding
            files.setdefault(one.absolute(), one)
    return FoundFiles(files=tuple(files.values()), skipped=skipped)


def is_checked(path: Path) -> bool:
    """Whether a file contains a DynamoGraphDeployment or has the keys of a graph."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return True  # `check` says why it cannot be read
    if MANIFEST.search(text):
        return True
    keys = {match[1] for match in KEY.finditer(text)}
    if not keys & {"model", "engine"}:
        return False
    # Imported here: pydantic takes longer to import than a manifest takes to check.
    from penstock.graph.model import Graph

    return len(keys & set(Graph.model_fields)) > 1


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _yaml_files(folder: Path) -> Iterator[Path]:
    """In the order of their names, without hidden folders; symbolic links are not followed."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(SUFFIXES) and not name.startswith("."):
                yield Path(parent) / name
