"""Router modes that cannot be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.simulate.replayable import require_replayed_mode
from tests.simulate.test_replayable import of

pytestmark = pytest.mark.slow  # renders production graphs

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = "gpt-oss-120b-b200-disagg"


@pytest.mark.parametrize(
    "mode", ["random", "power-of-two", "least-loaded", "direct", "device-aware-weighted"]
)
def test_other_modes_are_refused_with_the_value_and_a_fix(mode: str) -> None:
    source = open_source(GRAPHS / f"{DISAGG}.yaml")
    with pytest.raises(SimulationError) as error:
        require_replayed_mode(of(DISAGG, f"router.mode={mode}"), source)
    text = str(error.value)
    assert f"router.mode: {mode} cannot be replayed" in text
    assert text.endswith("Fix: Set the router mode to kv or round-robin.")


def test_kv_round_robin_and_a_single_worker_are_replayed() -> None:
    source = open_source(GRAPHS / f"{DISAGG}.yaml")
    require_replayed_mode(of(DISAGG), source)
    require_replayed_mode(of(DISAGG, "router.mode=round-robin"), source)
    single = "gpt-oss-120b-b200-latency-eagle3"  # least-loaded
    require_replayed_mode(of(single), open_source(GRAPHS / f"{single}.yaml"))
    two = of(single, "worker.replicas=2")
    with pytest.raises(SimulationError, match="least-loaded cannot be replayed"):
        require_replayed_mode(two, source)
