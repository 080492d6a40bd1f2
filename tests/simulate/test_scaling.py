"""Workers over time, compared with values computed by hand, and the fixed pools of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import SimulationError
from penstock.graph.slo import Slo
from penstock.manifests.source import Source, open_source
from penstock.reports.text import table_lines
from penstock.serving.understand import Hints
from penstock.simulate.documents import as_json
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import Planner, Replayable
from penstock.simulate.planner import KNOWN_TIMES, fixed_pools, with_planner
from penstock.simulate.replayable import replayable
from penstock.simulate.report import notes, table_of
from penstock.simulate.scaling import Event, Scaling, scaling_of
from penstock.simulate.study import Row
from penstock.workload import find_workload
from tests.simulate.test_metrics import answer, steady
from tests.simulate.test_replayable import of
from tests.support.outputs import read_output


def disagg() -> Replayable:
    """1 × 1 and 1 × 4 GPUs."""
    return of("gpt-oss-120b-b200-disagg", "prefill.replicas=1")


def planned() -> Replayable:
    return replace(
        disagg(),
        name="graph, planner",
        planner=Planner(config={}, startup_s=60.0, max_gpus=8),
        slo=Slo(ttft_ms=60),
    )


def change(at_s: float, active: int, starting: int = 0, draining: int = 0) -> dict[str, Any]:
    states = {"active": active, "starting": starting, "draining": draining}
    return {"at_ms": at_s * 1000, "pool": "prefill", **states}


def scaled() -> dict[str, Any]:
    """A second prefill worker that starts at 20 s, is ready at 50 s, stops at 80 s and is removed
    at 90 s of 100 s."""
    events = [
        {"at_s": 20.0, "component": "prefill", "from_count": 1, "to_count": 2},
        {"at_s": 80.0, "component": "prefill", "from_count": 2, "to_count": 1},
    ]
    changes = [
        change(20, 1, starting=1),
        change(50, 2),
        change(80, 1, draining=1),
        change(90, 1),
    ]
    result = steady()
    result["summary"]["duration_ms"] = 100_000.0
    return {**result, "scaling": {"events": events, "changes": changes}}


def test_a_worker_holds_its_gpus_from_the_decision_to_its_last_request() -> None:
    scaling = scaling_of(scaled(), planned())
    assert scaling.worker_ms == (170_000, 100_000)
    assert scaling.average == (1.7, 1.0)
    assert scaling.peak == (2, 1)
    assert scaling.gpus(planned()) == pytest.approx(1.7 * 1 + 1.0 * 4)
    assert [(s.at_ms, s.serving, s.allocated) for s in scaling.steps[0]] == [
        (0, 1, 1),
        (20_000, 1, 2),
        (50_000, 2, 2),
        (80_000, 1, 2),
        (90_000, 1, 1),
    ]
    assert scaling.events[0] == Event(at_s=20.0, pool="prefill", before=1, after=2)


def test_changes_after_the_end_do_not_count_and_the_last_of_one_time_does() -> None:
    late = scaled()
    late["scaling"]["changes"] = [change(30, 1, starting=4), change(30, 1), change(200, 9)]
    scaling = scaling_of(late, planned())
    assert scaling.worker_ms == (100_000, 100_000)
    assert [step.at_ms for step in scaling.steps[0]] == [0, 30_000, 200_000]


def test_an_aggregated_pool_is_found_by_the_planners_name() -> None:
    aggregated = of("gpt-oss-120b-b200-throughput", "worker.replicas=1")
    asked = scaled()
    for scaling_change in asked["scaling"]["changes"]:
        scaling_change["pool"] = "agg"
    for event in asked["scaling"]["events"]:
        event["component"] = "agg"
    scaling = scaling_of(asked, aggregated)
    assert scaling.worker_ms == (170_000,)
    assert {event.pool for event in scaling.events} == {"worker"}


def test_fixed_pools_allocate_all_their_workers() -> None:
    scaling = scaling_of(steady(), disagg())
    assert (scaling.events, scaling.peak, scaling.gpus(disagg())) == ((), (1, 1), 5)
    figures = replay_metrics(steady(), scaling.gpus(disagg()), Slo())
    assert figures.gpu_hours == pytest.approx(5 * scaling.end_ms / 3.6e6)


def flat(average: float, peak: int) -> Scaling:
    """A scaling of prefill, with one decode worker throughout."""
    asked = scaled()
    asked["scaling"]["changes"] = [change(0, 1), change(1, peak), change(2, 1)]
    scaling = scaling_of(asked, disagg())
    return replace(
        scaling, steps=tuple(scaling.steps), end_ms=(peak - 1) * 1000 / max(average - 1, 1e-9)
    )


def test_fixed_pools_have_the_rounded_average_and_the_peak() -> None:
    first, *rest = fixed_pools(disagg(), [flat(1.5, 4)])
    assert [tuple(p.replicas for p in pools_of.pools) for pools_of in (first, *rest)] == [
        (1, 1),
        (2, 1),
        (4, 1),
    ]
    assert [pools_of.gpus for pools_of in (first, *rest)] == [5, 6, 8]
    (line,) = first.unscaled
    assert line.endswith("the initial size, the planner's average, rounded down")
    assert rest[1].unscaled == ("the pools have a fixed size: the planner's peak",)
    assert rest[0].name == "gpt-oss-120b-b200-disagg, fixed 2+1"


def planned_row(asked: dict[str, Any]) -> Row:
    gpus = scaling_of(asked, planned()).gpus(planned())
    figures = replay_metrics(asked, gpus, planned().slo, counts_all_requests=True)
    return Row(replayable=planned(), metrics=(figures,), results=(asked,))


def test_scaling_events_and_gpu_hours_are_reported() -> None:
    row = planned_row(scaled())
    head, line = table_lines(table_of([row]))
    at = head.index("GPU-h")
    assert line[at:].startswith("0.158 ")  # 5.7 GPUs for 100 s
    assert " 5.7 " in line
    lines = list(notes([row], [None]))
    assert lines[0].startswith(
        "graph, planner: initially 1×1 prefill + 1×4 decode on b200, at most 8"
    )
    assert "  scaling events: 20 s prefill 1 → 2" in lines
    assert "    80 s prefill 2 → 1" in lines
    assert "all metrics include the start and the end of the workload" in lines
    document = read_output(
        "simulate", as_json([row], find_workload("short-chat"), [], [None], 0.95)
    )
    (scaling,) = document["graphs"][0]["scaling"]
    assert {step["serving"] for step in scaling["workers"]["prefill"]} == {1, 2}


def test_many_scaling_events_are_shortened_and_no_event_is_reported() -> None:
    many = scaled()
    many["scaling"]["events"] *= 20
    assert "    16 more events in the output of --json" in list(notes([planned_row(many)], [None]))
    none = scaled()
    none["scaling"] = {"events": [], "changes": []}
    assert "  scaling events: none" in list(notes([planned_row(none)], [None]))


def test_counting_all_requests_includes_the_start_and_the_end() -> None:
    slow = answer(
        *((100.0 * i, 100.0 * i + (900 if i < 10 else 50), 100.0 * i + 1000, 2) for i in range(60))
    )
    assert replay_metrics(slow, 1, Slo(ttft_ms=100)).goodput == 1.0
    complete = replay_metrics(slow, 1, Slo(ttft_ms=100), counts_all_requests=True)
    assert complete.requests == 60
    assert complete.goodput == pytest.approx(50 / 60)


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


def planner_of(name: str, *sets: str) -> Replayable:
    source = source_of(name, *sets)
    return with_planner(replayable(source, Hints()), source, Hints(), 60.0)


DISAGG, AGGREGATED = "gpt-oss-120b-b200-disagg", "gpt-oss-120b-b200-throughput"


@pytest.mark.slow
def test_the_rendered_configuration_is_replayed_without_servers_and_reports() -> None:
    deployment = planner_of(DISAGG, *planned_by("prefill", "decode"), "prefill.autoscaling.min=2")
    assert deployment.planner is not None
    assert (deployment.planner.startup_s, deployment.planner.max_gpus) == (60.0, 16)
    assert deployment.planner.config == {
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
    assert (deployment.shape, deployment.unscaled) == ("2×1 prefill + 1×4 decode", ())
    assert (
        "an added worker is ready 60 s after the planner's decision (--startup)"
        in deployment.assumed
    )
    assert KNOWN_TIMES in deployment.assumed


@pytest.mark.slow
def test_a_worker_has_a_startup_time_and_its_gpus() -> None:
    deployment = planner_of(DISAGG, *planned_by("prefill", "decode"))
    assert [p.engine["startup_time"] for p in deployment.pools] == [60.0, 60.0]
    assert [p.engine["tensor_parallel_size"] for p in deployment.pools] == [1, 4]
    wide = planner_of(AGGREGATED, *planned_by("worker"))  # two GPUs with attention data parallelism
    assert wide.pools[0].engine["dp_size"] * wide.pools[0].engine["tensor_parallel_size"] == 2


@pytest.mark.slow
def test_the_planners_target_latencies_are_the_slo_if_the_graph_has_none() -> None:
    deployment = planner_of(DISAGG, *planned_by("prefill", "decode"))
    assert (deployment.slo.ttft_ms, deployment.slo.itl_ms) == (500, 20)
    with_slo = planner_of(DISAGG, *planned_by("prefill", "decode"), "slo.ttft_ms=300")
    assert (with_slo.slo.ttft_ms, with_slo.slo.itl_ms) == (300, None)


@pytest.mark.slow
def test_settings_that_need_a_cluster_are_removed_and_reported() -> None:
    deployment = planner_of(
        DISAGG,
        *planned_by("prefill", "decode"),
        "planner.config.load_predictor_warmup_trace=/trace.jsonl",
        "planner.config.advisory=true",
        "planner.config.scheduling.gateway.enabled=true",
        "planner.config.log_dir=/logs",
    )
    assert deployment.planner is not None
    assert deployment.planner.config["scheduling"] == {}
    assert not {"load_predictor_warmup_trace", "advisory", "log_dir"} & set(
        deployment.planner.config
    )
    assert any("warm-up trace" in what for what in deployment.not_simulated)
    assert any("advisory is off" in what for what in deployment.assumed)


@pytest.mark.slow
def test_another_spelling_of_a_field_is_the_same_field() -> None:
    deployment = planner_of(
        DISAGG,
        *planned_by("prefill", "decode")[:-2],
        "planner.config.ttft=500",
        "planner.config.ttft_ms=500",
        "planner.config.itl_ms=20",
    )
    assert deployment.planner is not None
    assert "ttft" not in deployment.planner.config


@pytest.mark.slow
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
        planner_of(name, *sets)
    assert caught.value.problems[0].place == place
    assert caught.value.problems[0].fix


@pytest.mark.slow
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
