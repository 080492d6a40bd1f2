"""A graph that stands in a benchmark, as `penstock simulate` would replay it."""

from __future__ import annotations

from penstock.manifests.source import graph_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable


def deployed(text: str, name: str) -> Replayable:
    """``text`` is a graph YAML, ``name`` what the deployment is called."""
    return replayable(graph_source(text, f"{name}.yaml"), Hints())
