"""From replayed engines to live ones, without the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable
from penstock.twin.twin import live_engine, notes, replayed_engines, require_all

pytestmark = pytest.mark.slow

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = GRAPHS / "gpt-oss-120b-b200-disagg.yaml"


def of(path: Path, *sets: str) -> Replayable:
    return replayable(open_source(path, sets), Hints())


def test_a_live_engine_adds_only_what_a_server_needs() -> None:
    found = of(DISAGG)
    engines = replayed_engines(found, whole_experts=False)
    assert list(engines) == ["prefill", "decode"]
    for pool in found.pools:
        live = live_engine(engines[pool.names[0]], found.context, 0.5)
        added = {"max_model_len": 131072, "speedup_ratio": 0.5, "kv_transfer_bandwidth": 50}
        assert live["engine"] == {**pool.engine["engine"], **added}
        assert live["dp_size"] == pool.engine["dp_size"]
        assert live["dynamo"] == {"enable_local_indexer": True}


def test_a_mocker_has_the_data_parallel_ranks_of_its_worker() -> None:
    found = of(GRAPHS / "gpt-oss-120b-b200-throughput.yaml")
    (engine,) = replayed_engines(found, whole_experts=False).values()
    assert live_engine(engine, found.context, 1.0)["dp_size"] == 2


def test_whole_experts_of_the_replay_are_used_and_the_pool_is_unchanged() -> None:
    found = of(DISAGG)
    decode = replayed_engines(found, whole_experts=True)["decode"]
    config = decode["engine"]["timing_model"]["config"]
    assert (config["moe_tp_size"], config["moe_ep_size"]) == (1, 4)
    kept = found.pools[1].engine["engine"]["timing_model"]["config"]
    assert (kept["moe_tp_size"], kept["moe_ep_size"]) == (4, 1)


def test_a_prompt_longer_than_a_step_is_chunked_with_a_note() -> None:
    found = of(DISAGG, "engine.config.enable_chunked_prefill=false")
    engines = replayed_engines(found, whole_experts=False)
    assert engines["prefill"]["engine"]["enable_chunked_prefill"] is False
    live = live_engine(engines["prefill"], found.context, 1.0)
    assert live["engine"]["enable_chunked_prefill"] is True
    lines = list(notes(found, engines, 1.0, whole_experts=False))
    assert "prefill: long prompts are chunked although chunked prefill is off" in lines


def test_notes_name_the_assumptions_and_the_speed() -> None:
    found = of(DISAGG)
    engines = replayed_engines(found, whole_experts=False)
    lines = list(notes(found, engines, 0.5, whole_experts=True))
    evidence = "no measured point for a disaggregated graph"
    assert lines[0] == f"step times are predicted, not measured; {evidence}"
    assert "simulation speed 0.5: 2 s of real time is 1 s of simulated time" in lines
    assert "assumed: KV transfer at 100 GB/s (ib, line rate)" in lines
    assert sum("expert parallelism instead of" in line for line in lines) == 1
    assert not any(
        "simulation speed" in line for line in notes(found, engines, 1.0, whole_experts=False)
    )


def test_limits_of_the_replayed_router_are_not_reported_for_the_live_frontend() -> None:
    found = of(GRAPHS / "gpt-oss-120b-b200-latency-eagle3.yaml")
    engines = replayed_engines(found, whole_experts=False)
    lines = list(notes(found, engines, 1.0, whole_experts=False))
    mode = "router mode least-loaded: using round robin instead"
    assert f"not in the compared replay: {mode}" in lines
    assert f"not simulated: {mode}" not in lines
    assert "not simulated: speculative decoding, as --acceptance is not set (worker)" in lines


def test_a_pool_without_replicas_is_an_error_that_names_it() -> None:
    deployment = open_source(DISAGG, ()).deployment
    require_all(deployment, replayed_engines(of(DISAGG), whole_experts=False))
    with pytest.raises(SimulationError, match="decode has no replica"):
        require_all(deployment, {"prefill": {}})
