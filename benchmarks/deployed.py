"""Makes a deployment that can be replayed from a graph in a benchmark script."""

from __future__ import annotations

from penstock.manifests.source import graph_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable


def deployed(text: str, name: str) -> Replayable:
    """``text``: a graph YAML; ``name``: of the deployment."""
    return replayable(graph_source(text, f"{name}.yaml"), Hints())
