"""The twin of `up`, with a fake environment or the real one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import SimulationError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.twin.twin import Twin

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
