"""Random changes of a release: what serves meanwhile, and whether the frontends route to all
workers when penstock reports readiness. `benchmarks/histories.py` records longer ones."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

from tests.support.emulated_cluster.histories import REPLICAS, History
from tests.support.emulated_cluster.released import Cluster

SEED = 48
# On the operator, what replaces no generation. In an update, it stops old workers when new ones are
# ready, each pool on its own, as in the recordings `config-change` and `revert-late-by-upgrade` of
# ../shared/real-cluster/rollouts: for a time, no generation may have a worker of each pool.
OF_PENSTOCK = ("scale", "drain", "frontend_edit")
# With `platform: plain`, a drain evicts pods by their readiness alone: of 61 changes, one left a
# ready frontend without a route for one second.
DRAIN_S = 1


@pytest.mark.parametrize("platform", ["dynamo", "plain"])
@pytest.mark.parametrize("changes", [8, pytest.param(60, marks=pytest.mark.nightly)])
def test_no_change_leaves_too_few_workers(fresh: Cluster, platform: str, changes: int) -> None:
    fresh.install(platform=platform, **{name: {"replicas": n} for name, n in REPLICAS.items()})
    history = History(fresh, Random(SEED))
    history.run(changes)
    report = {kind: asdict(figures) for kind, figures in history.figures.items()}
    if path := os.environ.get("PENSTOCK_HISTORIES"):
        (Path(path) / f"{platform}.json").write_text(json.dumps(report))
    assert history.changes >= changes
    for kind, figures in history.figures.items():
        # A disruption budget permits one pod less.
        assert figures.missing_replicas <= ("drain" in kind), report
        if platform == "plain" or kind in OF_PENSTOCK:
            assert figures.seconds_without_route <= DRAIN_S * ("drain" in kind), report
    assert set(history.unlisted) == {0}
