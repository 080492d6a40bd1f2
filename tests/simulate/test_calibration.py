"""Correction factors: their file, and their use in replays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import GraphError, InputError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.accuracy import OTHER_RUNS, accuracy_line
from penstock.simulate.calibration import (
    Calibration,
    CalibrationFile,
    Calibrations,
    Errors,
    Factors,
    Load,
    calibrations_text,
    corrected,
    existing_calibrations,
    group_of,
    load_calibrations,
    with_entry,
)
from penstock.simulate.frontend import FrontendTime
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Study
from penstock.workload.load import parse_workload

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
AGGREGATED, DISAGGREGATED = "gpt-oss-120b-h100-latency", "gpt-oss-120b-h100-disagg"
ERRORS = Errors(ttft_p50=0.5, ttft_p90=0.4, itl_p50=0.1, itl_p90=0.1)
FACTORS = Factors(prefill_speed=0.5, step_time=1.25, fixed_ttft_ms=40.0)
ENTRY = Calibration(
    model="gpt-oss-120b",
    gpu="h100",
    engine="trtllm",
    prefill_speed=0.5,
    step_time=1.25,
    fixed_ttft_ms=40.0,
    requests=180,
    prefill_speed_interval=(0.48, 0.52),
    step_time_interval=(1.2, 1.3),
    fixed_ttft_interval_ms=(35.0, 45.0),
    errors_before=ERRORS,
    errors_after=ERRORS,
    load=Load(
        workload="1e3",
        request_rate=2.0,
        concurrency=1.5,
        uncached_input_tokens=(100.0, 900.0),
        output_tokens=(10.0, 90.0),
    ),
    shape="1×8 worker",
    measured_at="2026-11-26",
    versions={"client": "AIPerf"},
    command="penstock bench …",
)


def file_of(*entries: Calibration) -> CalibrationFile:
    return CalibrationFile(
        name="c.yaml", content=Calibrations(penstock_calibration=1, entries=entries)
    )


def graph(name: str, *sets: str, acceptance: Acceptance | None = None) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints(), acceptance)


def ratios(deployment: Replayable) -> dict[str, tuple[float | None, float | None]]:
    return {
        str(pool.role): (
            pool.engine["engine"].get("speedup_ratio"),
            pool.engine["engine"].get("decode_speedup_ratio"),
        )
        for pool in deployment.pools
    }


@pytest.mark.slow
def test_the_factors_scale_the_steps_of_each_role() -> None:
    assert ratios(corrected(graph(AGGREGATED), FACTORS)) == {"worker": (0.5, 1.6)}
    by_role = ratios(corrected(graph(DISAGGREGATED), FACTORS))
    assert by_role == {"prefill": (0.5, None), "decode": (0.8, None)}


def test_a_deployment_has_the_entry_of_its_model_gpu_and_engine() -> None:
    deployment = graph(AGGREGATED)
    assert group_of(deployment) == ENTRY.key
    calibrated = file_of(ENTRY).calibrated(deployment)
    assert calibrated.calibration == ENTRY
    assert calibrated.frontend_time == FrontendTime(fixed_ms=40.0)
    expected = (
        "calibration of c.yaml: prefill speed × 0.5, step time × 1.25, TTFT + 40 ms "
        "(180 requests of 1e3, 1×8 worker)"
    )
    assert calibrated.assumed[-1] == expected


def test_a_calibration_replaces_the_usual_step_time() -> None:
    deployment = graph("gpt-oss-120b-b200-vllm", "hardware.gpu=h100")
    assert "decode steps take 1.07 times" in " ".join(deployment.assumed)
    calibrated = file_of(ENTRY.model_copy(update={"engine": "vllm"})).calibrated(deployment)
    assert calibrated.calibration is not None
    assert "decode steps take" not in " ".join(calibrated.assumed)


def test_other_deployments_stay_as_they_are_and_a_note_says_so() -> None:
    deployment = graph(AGGREGATED)
    calibrated = file_of(ENTRY.model_copy(update={"gpu": "b200"})).calibrated(deployment)
    assert calibrated.calibration is None
    assert calibrated.pools == deployment.pools
    assert calibrated.frontend_time == deployment.frontend_time
    assert calibrated.assumed[-1] == (
        "step times without calibration, as c.yaml has no entry for gpt-oss-120b, h100, trtllm; "
        "its entries are for gpt-oss-120b, b200, trtllm"
    )


def test_aggregated_workers_with_speculation_stay_as_they_are() -> None:
    name, rates = "gpt-oss-120b-h100-latency-eagle3", Acceptance((0.8, 0.6, 0.5))
    calibrated = file_of(ENTRY).calibrated(graph(name, acceptance=rates))
    assert calibrated.calibration is None
    assert "speculative decoding separately" in calibrated.assumed[-1]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    other = ENTRY.model_copy(update={"gpu": "b200"})
    path = tmp_path / "c.yaml"
    assert existing_calibrations(path).entries == ()
    file = with_entry(existing_calibrations(path), ENTRY)
    path.write_text(calibrations_text(with_entry(file, other)))
    assert load_calibrations(path).entries == (other, ENTRY)
    newer = ENTRY.model_copy(update={"requests": 50})
    assert with_entry(load_calibrations(path), newer).entries == (other, newer)


def test_another_kind_of_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text("name: a-graph\n")
    with pytest.raises(InputError, match="already exists, and is not a calibration file"):
        existing_calibrations(path)
    path.write_text("penstock_calibration: 1\nentries: 5\n")
    with pytest.raises(GraphError, match="entries"):
        existing_calibrations(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("penstock_calibration: 1", "penstock_calibration: 2", "penstock_calibration"),
        ("prefill_speed: 0.5", "prefill_speed: 0", "prefill_speed"),
        ("step_time: 1.25", "step_time: .nan", "step_time"),
        ("fixed_ttft_ms: 40.0", "fixed_ttft_ms: -1.0", "fixed_ttft_ms"),
        ("requests: 180", "request: 180", "request"),
        ("[0.48, 0.52]", "[0.52, 0.48]", "the lower limit 0.52 is above the upper limit 0.48"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    text = calibrations_text(file_of(ENTRY).content)
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(GraphError, match=message):
        load_calibrations(path)


def test_two_entries_for_the_same_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(calibrations_text(file_of(ENTRY, ENTRY).content))
    with pytest.raises(GraphError, match="gpt-oss-120b, h100, trtllm has two entries"):
        load_calibrations(path)


@pytest.mark.needs("sim")
def test_a_replay_with_factors_takes_as_much_longer() -> None:
    alone = "requests: 8\ninput: {mean: 4000}\noutput: {mean: 50}\narrival: {constant: 0.5}\n"
    workload = parse_workload(alone, "w.yaml")
    deployment = graph(AGGREGATED)
    with Replays(Cache(None, "")) as replays:
        study = Study(workload=workload, replays=replays, seeds=1)
        before, after = study.rows([deployment, file_of(ENTRY).calibrated(deployment)], None)
        alone = replace(deployment, frontend_time=FrontendTime())
        (replayed,) = study.rows([alone], None)
        assert replays.replayed == 2  # the time of the frontend is no part of a replay
    first, second = replayed.metrics[0], after.metrics[0]
    assert second.ttft_p50_ms == pytest.approx(2 * first.ttft_p50_ms + 40, rel=0.01)
    assert first.itl_p50_ms is not None
    assert second.itl_p50_ms == pytest.approx(1.25 * first.itl_p50_ms, rel=0.01)
    added = deployment.frontend_time.ms(4000)
    assert before.metrics[0].ttft_p50_ms == pytest.approx(first.ttft_p50_ms + added)
    assert accuracy_line(before).endswith(f"({OTHER_RUNS})")
    line = accuracy_line(after)
    assert line.startswith("90% interval, without → with the calibration: ITL p50 ")
    assert "(±32% → ±" in line
