"""Prediction intervals from the nearest measured points, and their text."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from penstock.graph.slo import Slo
from penstock.simulate.acceptance import Acceptance
from penstock.simulate.accuracy import accuracy_line, conditions_of, evidence, row_intervals, span
from penstock.simulate.interval import (
    ELSEWHERE,
    FEWEST,
    NARROWEST,
    NEAREST,
    Conditions,
    Interval,
    MeasuredPoint,
    calibrated_points,
    elsewhere,
    family,
    idle,
    interval,
    layout_of,
    measured_points,
)
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import Replayable
from penstock.simulate.study import Row
from tests.simulate.test_metrics import steady
from tests.simulate.test_replayable import of

HERE = Conditions(
    engine="vllm",
    gpu="h100",
    model="gpt-oss-120b",
    layout="tp",
    is_recent=True,
    gpus=2,
    batch=16,
    input_tokens=1024,
    output_tokens=1024,
)


def points(*ratios: float, where: Conditions = HERE) -> list[MeasuredPoint]:
    return [MeasuredPoint(conditions=where, ratios={"itl": ratio}) for ratio in ratios]


def test_the_interval_includes_the_nearest_points_and_the_prediction() -> None:
    near = points(*(exp(0.01 * step) for step in range(4, 4 + NEAREST - 1)), exp(0.2))
    far = points(*[3.0] * NEAREST, where=replace(HERE, batch=512))
    nearest = interval(HERE, "itl", [*far, *near])
    assert nearest is not None
    assert nearest.points == NEAREST
    assert nearest.high == pytest.approx(exp(0.2))  # as 12 of 12 are 90% of 13
    assert nearest.low == pytest.approx(exp(-0.2))


def test_points_of_another_model_engine_or_gpu_make_no_interval() -> None:
    for name in ("model", "engine", "gpu"):
        unrelated = points(*[1.0] * NEAREST, where=replace(HERE, **{name: "other"}))
        assert interval(HERE, "itl", unrelated) is None
    assert interval(HERE, "itl", points(*[1.0] * (FEWEST - 1))) is None
    assert interval(HERE, "itl", points(*[1.0] * FEWEST)) is not None
    assert interval(HERE, "ttft", points(*[1.0] * FEWEST)) is None


def test_the_interval_is_wider_far_from_every_point() -> None:
    known = points(*[0.9, 1.0, 1.1] * 4)
    intervals = [interval(replace(HERE, batch=batch), "itl", known) for batch in (16, 64, 1024)]
    widths = [each.high / each.low for each in intervals if each is not None]
    assert widths[0] == widths[1] < widths[2]


@pytest.mark.parametrize("change", [{"layout": "attention-dp"}, {"is_recent": False}])
def test_points_of_the_same_parallelism_and_software_are_nearer(change: dict[str, object]) -> None:
    unlike = points(*[2.0] * NEAREST, where=replace(HERE, **change))  # type: ignore[arg-type]
    alike = points(*[1.0] * NEAREST, where=replace(HERE, batch=32))
    nearest = interval(HERE, "itl", [*unlike, *alike])
    assert nearest is not None
    assert nearest.high == pytest.approx(exp(NARROWEST))


def test_ttft_of_idle_requests_has_an_interval_of_its_own() -> None:
    idle_place = replace(HERE, batch=1, is_idle=True)
    places = {HERE: 2.0, idle_place: 1.1}
    known = [
        MeasuredPoint(conditions=where, ratios={"ttft": ratio, "itl": 1.0})
        for where, ratio in places.items()
        for _ in range(NEAREST)
    ]
    for where, ratio in places.items():
        found = interval(where, "ttft", known)
        assert found is not None
        assert found.high == pytest.approx(ratio)
        steps = interval(where, "itl", known)
        assert steps is not None
        assert steps.points == NEAREST
    assert [idle(1, 0), idle(1, 0.5), idle(8, 0)] == [True, False, False]


def test_an_interval_is_not_narrower_than_the_errors_on_other_clusters() -> None:
    narrow, wide = (Interval(low=1 / high, high=high, points=12) for high in (1.1, 2.0))
    for metric in ("itl", "rate", "ttft"):
        alone = elsewhere(None, HERE, metric)
        assert alone is not None
        assert (alone.high, alone.points) == (pytest.approx(exp(ELSEWHERE[metric])), 0)
        assert elsewhere(narrow, HERE, metric) == replace(alone, points=12)
    assert elsewhere(wide, HERE, "itl") == wide
    less = elsewhere(None, HERE, "itl", coverage=0.5)
    assert less is not None
    assert 1 < less.high < exp(ELSEWHERE["itl"] / 2)


def test_other_clusters_say_nothing_about_idle_requests_and_other_hardware() -> None:
    narrow = Interval(low=0.9, high=1.1, points=12)
    assert elsewhere(narrow, replace(HERE, is_idle=True), "ttft") == narrow
    for change in ({"engine": "sglang"}, {"gpu": "gb300"}):
        assert elsewhere(None, replace(HERE, **change), "itl") is None


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "Llama-70B fp8"),
        ("/models/Meta-Llama-3.1-70B-NVFP4/", "Llama-70B nvfp4"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "Llama-70B nvfp4"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-V3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3-235B-A22B fp8"),
    ],
)
def test_the_family_of_a_model_is_its_layers_and_quantization(model: str, name: str) -> None:
    assert family(model) == name


def test_the_kinds_of_parallelism() -> None:
    assert [layout_of(1, 1), layout_of(1, 4), layout_of(4, 4)] == ["tp", "tp-ep", "attention-dp"]


def test_the_package_has_points_of_the_main_engines_and_gpus() -> None:
    groups = {point.conditions.group[:2] for point in measured_points()}
    assert {("trtllm", "b200"), ("trtllm", "h200"), ("vllm", "h100"), ("vllm", "h200")} <= groups


def row(deployment: Replayable) -> Row:
    result = steady()
    metrics = replay_metrics(result, deployment.gpus, Slo())
    return Row(replayable=deployment, metrics=(metrics,), results=(result,), is_closed_loop=True)


@pytest.mark.slow
def test_a_row_has_an_interval_from_its_own_conditions() -> None:
    measured_row = row(of("gpt-oss-120b-b200-throughput"))
    conditions = conditions_of(measured_row)
    assert conditions is not None
    assert conditions.group == ("trtllm", "b200", "gpt-oss-120b")
    assert (conditions.layout, conditions.gpus) == ("attention-dp", 2)
    assert (conditions.input_tokens, conditions.output_tokens) == (100, 11)
    line = accuracy_line(measured_row)
    assert line.startswith("90% interval: ITL p50 ")
    assert line.endswith(f" ({NEAREST} measured points of gpt-oss-120b, trtllm, b200)")
    factors = row_intervals(measured_row)
    assert set(factors) == {"itl", "ttft", "rate"}
    assert "tok/s/GPU" in line
    assert f"ITL p50 {span(10, factors['itl'])}" in line


@pytest.mark.slow
def test_the_rate_of_arrivals_has_no_interval() -> None:
    open_loop = replace(row(of("gpt-oss-120b-b200-throughput")), is_closed_loop=False)
    assert set(row_intervals(open_loop)) == {"itl", "ttft"}
    assert "tok/s/GPU" not in accuracy_line(open_loop)


@pytest.mark.slow
def test_what_was_never_measured_is_named() -> None:
    disaggregated = row(of("gpt-oss-120b-b200-disagg"))
    assert accuracy_line(disaggregated) == "no measured point for a disaggregated graph"
    assert row_intervals(disaggregated) == {}
    other = row(of("gpt-oss-120b-h200-sglang"))
    assert accuracy_line(other) == "no measured point for gpt-oss-120b, sglang, h200"
    draft = of("gpt-oss-120b-b200-latency-eagle3", acceptance=Acceptance((0.7,)))
    assert accuracy_line(row(draft)) == "no measured point for speculative decoding"


@pytest.mark.parametrize("metric", ["itl", "ttft", "rate"])
def test_calibrated_measurements_are_in_their_intervals(metric: str) -> None:
    """Without the measurements of the same deployment."""
    points = [point for point in calibrated_points() if metric in point.ratios]
    inside = []
    for point in points:
        others = [other for other in points if other.deployment != point.deployment]
        if found := interval(point.conditions, metric, others):
            inside.append(found.low <= point.ratios[metric] <= found.high)
    assert len(inside) > 300
    assert sum(inside) / len(inside) > 0.9


def test_the_error_of_the_calibration_widens_the_interval() -> None:
    point = next(p for p in calibrated_points() if p.conditions.gpu == "h100")
    exact = interval(point.conditions, "rate", calibrated_points())
    uncertain = interval(point.conditions, "rate", calibrated_points(), error=0.2)
    assert exact is not None
    assert uncertain is not None
    assert uncertain.half_width > max(0.2, exact.half_width)


@pytest.mark.slow
def test_evidence_without_a_replay_is_the_range_of_all_points() -> None:
    text = evidence(of("gpt-oss-120b-b200-throughput"))
    assert "measured points of gpt-oss-120b, trtllm, b200 is 0." in text
    assert text.endswith(" times the predicted one")
    assert evidence(of("gpt-oss-120b-b200-disagg")).startswith("no measured point for a disagg")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.8, 1.2, "80 to 120"),
        (0.5, 1.5, "50 to 150"),
        (0.5, 1.6, "not known"),
    ],
)
def test_an_interval_wider_than_a_factor_of_3_is_not_known(
    low: float, high: float, text: str
) -> None:
    assert span(100.0, Interval(low=low, high=high, points=12)) == text
