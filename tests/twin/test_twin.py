"""The twin of `up`, with a fake environment or the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import replayable
from penstock.simulate.window import ServedRequest
from penstock.twin.twin import (
    REQUESTS,
    Twin,
    comparison_line,
    comparison_requests,
    latency_percentiles,
    live_engine,
    notes,
    replayed_engines,
    require_all,
)
from tests.bench.hand_written import served

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = GRAPHS / "gpt-oss-120b-b200-disagg.yaml"
UNREACHABLE = "http://127.0.0.1:9/v1"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "penstock" / "simulate"


def test_an_endpoint_that_does_not_respond_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "installed.txt").write_text("uvloop==0.23.0\n")
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    lines: list[str] = []
    asyncio.run(Twin(1.0, Hints()).compare(UNREACHABLE, "m", lines.append))
    (line,) = lines
    assert line.startswith("twin: comparison with the replay failed: ConnectError")


@pytest.mark.needs("sim")
def test_each_pool_has_its_engine_and_an_edit_of_replicas_needs_no_new_replay(cache: Path) -> None:
    twin = Twin(0.5, Hints())
    first = twin.timed(open_source(DISAGG, ("prefill.replicas=1",)))
    assert set(first.engines) == {"prefill", "decode"}
    assert first.engines["decode"]["engine"]["speedup_ratio"] == 0.5
    assert any(note.startswith("step times are predicted") for note in first.notes)
    more = twin.timed(open_source(DISAGG, ("prefill.replicas=3",)))
    assert more.engines == first.engines
    assert len(list(cache.glob("*.gz"))) == 1


@pytest.mark.needs("sim")
def test_experts_without_measured_sharding_are_whole_in_the_mocker_too(cache: Path) -> None:
    sets = ("decode.gpus=2", "decode.config.moe_expert_parallel_size=1")
    source = open_source(GRAPHS / "gpt-oss-120b-h200-disagg.yaml", sets)
    timed = Twin(1.0, Hints()).timed(source)
    config = timed.engines["decode"]["engine"]["timing_model"]["config"]
    assert (config["moe_tp_size"], config["moe_ep_size"]) == (1, 2)
    assert any("expert parallelism instead of" in note for note in timed.notes)


@pytest.mark.needs("sim")
def test_a_graph_that_cannot_be_replayed_has_no_twin(cache: Path) -> None:
    with pytest.raises(SimulationError, match="whose step times were not measured"):
        Twin(1.0, Hints()).timed(open_source(GRAPHS / "quickstart-simulated.yaml", ()))


def of(path: Path, *sets: str) -> Replayable:
    return replayable(open_source(path, sets), Hints())


@pytest.mark.slow
def test_a_live_engine_adds_only_what_a_server_needs() -> None:
    deployment = of(DISAGG)
    engines = replayed_engines(deployment, whole_experts=False)
    assert list(engines) == ["prefill", "decode"]
    for pool in deployment.pools:
        live = live_engine(engines[pool.names[0]], deployment.context, 0.5)
        added = {"max_model_len": 131072, "speedup_ratio": 0.5, "kv_transfer_bandwidth": 50}
        assert live["engine"] == {**pool.engine["engine"], **added}
        assert live["dp_size"] == pool.engine["dp_size"]
        assert live["dynamo"] == {"enable_local_indexer": True}


@pytest.mark.slow
def test_a_mocker_has_the_data_parallel_ranks_of_its_worker() -> None:
    deployment = of(GRAPHS / "gpt-oss-120b-b200-throughput.yaml")
    (engine,) = replayed_engines(deployment, whole_experts=False).values()
    assert live_engine(engine, deployment.context, 1.0)["dp_size"] == 2


@pytest.mark.slow
def test_whole_experts_of_the_replay_are_used_and_the_pool_is_unchanged() -> None:
    deployment = of(DISAGG)
    decode = replayed_engines(deployment, whole_experts=True)["decode"]
    config = decode["engine"]["timing_model"]["config"]
    assert (config["moe_tp_size"], config["moe_ep_size"]) == (1, 4)
    kept = deployment.pools[1].engine["engine"]["timing_model"]["config"]
    assert (kept["moe_tp_size"], kept["moe_ep_size"]) == (4, 1)


@pytest.mark.slow
def test_a_prompt_longer_than_a_step_is_chunked_with_a_note() -> None:
    deployment = of(DISAGG, "engine.config.enable_chunked_prefill=false")
    engines = replayed_engines(deployment, whole_experts=False)
    assert engines["prefill"]["engine"]["enable_chunked_prefill"] is False
    live = live_engine(engines["prefill"], deployment.context, 1.0)
    assert live["engine"]["enable_chunked_prefill"] is True
    lines = list(notes(deployment, engines, 1.0, whole_experts=False))
    assert "prefill: long prompts are chunked although chunked prefill is off" in lines


@pytest.mark.slow
def test_notes_name_the_assumptions_and_the_speed() -> None:
    deployment = of(DISAGG)
    engines = replayed_engines(deployment, whole_experts=False)
    lines = list(notes(deployment, engines, 0.5, whole_experts=True))
    evidence = "no measured point for a disaggregated graph"
    assert lines[0] == f"step times are predicted, not measured; {evidence}"
    assert "simulation speed 0.5: 2 s of real time is 1 s of simulated time" in lines
    assert "assumed: KV transfer at 100 GB/s (ib, line rate)" in lines
    assert sum("expert parallelism instead of" in line for line in lines) == 1
    assert not any(
        "simulation speed" in line for line in notes(deployment, engines, 1.0, whole_experts=False)
    )


@pytest.mark.slow
def test_limits_of_the_replayed_router_are_not_reported_for_the_live_frontend() -> None:
    deployment = of(GRAPHS / "gpt-oss-120b-b200-latency-eagle3.yaml")
    engines = replayed_engines(deployment, whole_experts=False)
    lines = list(notes(deployment, engines, 1.0, whole_experts=False))
    mode = "router mode least-loaded: using round robin instead"
    assert f"not in the compared replay: {mode}" in lines
    assert f"not simulated: {mode}" not in lines
    assert "not simulated: speculative decoding, as --acceptance is not set (worker)" in lines


@pytest.mark.slow
def test_a_pool_without_replicas_is_an_error_that_names_it() -> None:
    deployment = open_source(DISAGG, ()).deployment
    require_all(deployment, replayed_engines(of(DISAGG), whole_experts=False))
    with pytest.raises(SimulationError, match="decode has no replica"):
        require_all(deployment, {"prefill": {}})


def request(ttft_ms: float, itl_ms: float | None) -> ServedRequest:
    tokens = 1 if itl_ms is None else 64
    return served(ttft_ms, ttft_ms + (itl_ms or 0.0) * (tokens - 1), tokens)


def test_the_requests_are_the_same_each_time_and_fit_a_short_context() -> None:
    assert comparison_requests(131072, 1.0) == comparison_requests(131072, 0.5)
    assert len(comparison_requests(131072, 1.0)) == REQUESTS
    short = comparison_requests(512, 1.0)
    assert max(r.input_tokens + r.output_tokens for r in short) <= 512


def test_twice_the_speed_does_not_raise_the_real_request_rate() -> None:
    real, fast = (comparison_requests(131072, speed)[-1].at_ms or 0 for speed in (1.0, 2.0))
    assert round(fast / real, 6) == 2


def test_a_request_of_one_token_has_no_itl() -> None:
    latencies = latency_percentiles([request(50, None), request(60, 5.0), request(70, 6.0)])
    assert (latencies.ttft_p50, latencies.itl_p50) == (60, pytest.approx(5.0))


def test_the_line_has_both_latencies_and_suggests_a_lower_speed() -> None:
    near = comparison_line([request(52, 5.1)], [request(50, 5.0)], 1.0)
    assert near.startswith("twin: 1 requests, live / simulated: TTFT p50 52 / 50 ms")
    assert "ITL p50 5.1 / 5 ms" in near
    assert "--speed" not in near
    far = comparison_line([request(70, 5.1)], [request(50, 5.0)], 0.5)
    assert "in simulated time at 0.5 × speed" in far
    assert far.endswith("; --speed 0.25 halves its weight)")
