"""The planner's configuration in a replay: the rendered one without what needs a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from penstock.errors import SimulationError
from penstock.manifests.source import Source, open_source
from penstock.serving.understand import Hints
from penstock.simulate.model import Replayable
from penstock.simulate.planner import KNOWN_TIMES, with_planner
from penstock.simulate.replayable import replayable

pytestmark = pytest.mark.slow  # renders and checks production graphs

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
LATENCIES = ("planner.config.ttft_ms=500", "planner.config.itl_ms=20")


def planned_by(*names: str) -> tuple[str, ...]:
    pools = [
        text
        for name in names
        for text in (f"{name}.replicas=null", f"{name}.autoscaling.owner=planner")
    ]
    return (*pools, "planner.max_gpus=16", *LATENCIES)


def source_of(name: str, *sets: str) -> Source:
    return open_source(GRAPHS / f"{name}.yaml", sets)


def of(name: str, *sets: str) -> Replayable:
    source = source_of(name, *sets)
    return with_planner(replayable(source, Hints()), source, Hints(), 60.0)


DISAGG, AGGREGATED = "gpt-oss-120b-b200-disagg", "gpt-oss-120b-b200-throughput"


def test_the_rendered_configuration_is_replayed_without_servers_and_reports() -> None:
    found = of(DISAGG, *planned_by("prefill", "decode"), "prefill.autoscaling.min=2")
    assert found.planner is not None
    assert (found.planner.startup_s, found.planner.max_gpus) == (60.0, 16)
    assert found.planner.config == {
        "backend": "trtllm",
        "mode": "disagg",
        "optimization_target": "sla",
        "enable_load_scaling": True,
        "enable_throughput_scaling": True,
        "ttft_ms": 500,
        "itl_ms": 20,
        "max_gpu_budget": 16,
        "prefill_min_endpoint": 2,
        "decode_min_endpoint": 1,
        "control_api_port": 0,
        "live_dashboard_port": 0,
        "report_interval_hours": None,
    }
    assert (found.shape, found.unscaled) == ("2×1 prefill + 1×4 decode", ())
    assert "an added worker is ready 60 s after the planner's decision (--startup)" in found.assumed
    assert KNOWN_TIMES in found.assumed


def test_a_worker_has_a_startup_time_and_its_gpus() -> None:
    found = of(DISAGG, *planned_by("prefill", "decode"))
    assert [p.engine["startup_time"] for p in found.pools] == [60.0, 60.0]
    assert [p.engine["tensor_parallel_size"] for p in found.pools] == [1, 4]
    wide = of(AGGREGATED, *planned_by("worker"))  # two GPUs with attention data parallelism
    assert wide.pools[0].engine["dp_size"] * wide.pools[0].engine["tensor_parallel_size"] == 2


def test_replays_with_a_planner_are_random_even_with_one_worker() -> None:
    found = of(DISAGG, *planned_by("prefill", "decode"))
    assert found.is_random
    assert not of(DISAGG, *planned_by("prefill", "decode"), "router.mode=round-robin").is_random


def test_the_planners_target_latencies_are_the_slo_if_the_graph_has_none() -> None:
    found = of(DISAGG, *planned_by("prefill", "decode"))
    assert (found.slo.ttft_ms, found.slo.itl_ms) == (500, 20)
    own = of(DISAGG, *planned_by("prefill", "decode"), "slo.ttft_ms=300")
    assert (own.slo.ttft_ms, own.slo.itl_ms) == (300, None)


def test_settings_that_need_a_cluster_are_removed_and_reported() -> None:
    found = of(
        DISAGG,
        *planned_by("prefill", "decode"),
        "planner.config.load_predictor_warmup_trace=/trace.jsonl",
        "planner.config.advisory=true",
        "planner.config.scheduling.gateway.enabled=true",
        "planner.config.log_dir=/logs",
    )
    assert found.planner is not None
    assert found.planner.config["scheduling"] == {}
    assert not {"load_predictor_warmup_trace", "advisory", "log_dir"} & set(found.planner.config)
    assert any("warm-up trace" in what for what in found.not_simulated)
    assert any("advisory is off" in what for what in found.assumed)


def test_another_spelling_of_a_field_is_the_same_field() -> None:
    found = of(
        DISAGG,
        *planned_by("prefill", "decode")[:-2],
        "planner.config.ttft=500",
        "planner.config.ttft_ms=500",
        "planner.config.itl_ms=20",
    )
    assert found.planner is not None
    assert "ttft" not in found.planner.config


@pytest.mark.parametrize(
    ("name", "sets", "place", "words"),
    [
        (DISAGG, (), "planner", "has no running planner"),
        (DISAGG, planned_by("prefill"), "decode", "the planner does not set its replicas"),
        (
            AGGREGATED,
            (*planned_by("worker"), "planner.config.load_predictor=guess"),
            "planner.config",
            "load_predictor",
        ),
        (
            AGGREGATED,
            ("planner.max_gpus=8", *LATENCIES),
            "planner",  # it exists with 0 replicas
            "has no running planner",
        ),
    ],
)
def test_a_planner_that_cannot_be_replayed_is_refused_with_a_fix(
    name: str, sets: tuple[str, ...], place: str, words: str
) -> None:
    with pytest.raises(SimulationError, match=words) as caught:
        of(name, *sets)
    assert caught.value.problems[0].place == place
    assert caught.value.problems[0].fix


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"max_gpu_budget":16',
            '"max_gpu_budget":4',
            "is 4, but the minimum endpoints of the pools need 5 GPUs",
        ),
        ('{"backend"', '/etc/planner.yaml {"backend"', "is not part of the manifest"),
    ],
)
def test_a_manifest_is_checked_as_the_planner_does(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    text = source_of(DISAGG, *planned_by("prefill", "decode")).text
    lines = json.dumps(list(yaml.safe_load_all(text)), ensure_ascii=False)
    quoted = json.dumps(old)[1:-1]
    assert lines.count(quoted) == 1
    changed = json.loads(lines.replace(quoted, json.dumps(new)[1:-1]))
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump_all(changed))
    source = open_source(path)
    with pytest.raises(SimulationError, match=words):
        with_planner(replayable(source, Hints()), source, Hints(), 60.0)
