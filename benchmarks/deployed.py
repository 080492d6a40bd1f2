"""A graph that stands in a benchmark, as `penstock simulate` would replay it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from penstock.checks.subject_of import Given
from penstock.manifests.source import open_source
from penstock.simulate.replayable import Replayable, replayable


def deployed(text: str, name: str) -> Replayable:
    """``text`` is a graph YAML, ``name`` what the deployment is called."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text)
        return replayable(open_source(path), Given())
