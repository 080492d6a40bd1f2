"""Changes the replicas of a running graph, as `penstock scale` does: in its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import GraphError, Problem
from penstock.graph.edit import edit_replicas
from penstock.graph.text_file import read_text_file
from penstock.local.control import edited, require_not_overridden
from penstock.manifests.source import is_manifest


def scale(path: Path, changes: Mapping[str, int]) -> None:
    """Return once `up` has taken the edit over. ``changes``: replicas by pool.

    GraphError if the graph would be invalid, if a `--set` of `up` overrides the change, or if the
    file is a DGD manifest; the file is then unchanged.
    """
    require_not_overridden(path, changes)
    if is_manifest(read_text_file(path)):
        fix = "Edit its replicas; a running `up` applies the change."
        raise GraphError(Problem(file=str(path), message="is a DGD manifest", fix=fix))
    edited(path, lambda: edit_replicas(path, changes), changes)
