"""Recognize a file that `up` cannot run because of its kind, for verbs of running graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.errors import (
    GraphError,
    InputError,
    ManifestError,
    NotUpError,
    Problem,
    ProblemKind,
)
from penstock.graph.load import read_draft
from penstock.graph.text_file import read_text_file
from penstock.manifests.read import read_manifests
from penstock.manifests.source import MOST_BYTES, is_manifest
from penstock.text.names import nearest

LIST_GRAPHS = "Run `penstock ls`, which lists the graphs that are up."
OTHER_KINDS = (ProblemKind.NOTHING_TO_READ, ProblemKind.OTHER_FILE)


def _fix_of_missing(path: Path) -> str:
    """The fix for a file that does not exist: the YAML file next to it that was probably meant."""
    near = nearest(path.name, (file.name for file in path.parent.glob("*.y*ml")))
    return f"Did you mean {path.with_name(near)}? {LIST_GRAPHS}" if near else LIST_GRAPHS


def not_up_error(path: Path, message: str, fix: str, *, has_run: bool = True) -> NotUpError:
    """Of a command for a running graph; a file that is missing, or of another kind, is the cause.

    ``has_run``: whether the command also works after the graph went down.
    """
    if not path.exists():
        never = "was ever up" if has_run else "is up"
        message, fix = f"no such file, and no graph of this name {never}", _fix_of_missing(path)
        return NotUpError(message, file=str(path), fix=fix)
    return NotUpError(_not_servable(path) or Problem(file=str(path), message=message, fix=fix))


def _not_servable(path: Path) -> Problem | None:
    """What the file is; None for a graph or a manifest of one, which may be invalid."""
    try:
        text = read_text_file(path, MOST_BYTES)
        if is_manifest(text):
            read_manifests(text, str(path))
        else:
            read_draft(text, str(path))
    except InputError as error:
        return error.problems[0]
    except (GraphError, ManifestError) as error:
        problem = next((p for p in error.problems if p.kind in OTHER_KINDS), None)
        return replace(problem, fix=LIST_GRAPHS) if problem else None
    return None
