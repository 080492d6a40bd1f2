"""The measured points in benchmarks/points: complete, plausible, unique and split by source."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from measured import FIT, FIXED, HELD_OUT, can_be_replayed, half, read
from tests.support.documents import PAGES

HEADER = """source source_group url date engine engine_version model precision kv_dtype gpu gpus
nodes mode prefill_tp prefill_pp prefill_dp prefill_ep prefill_replicas decode_tp decode_pp
decode_dp decode_ep decode_replicas isl osl length_spread load concurrency rate requests prefix_hit
speculative engine_limits ttft_ms_mean ttft_ms_p50 ttft_ms_p99 tpot_ms_mean tpot_ms_p50
output_tok_s_gpu total_tok_s_gpu tok_s_user request_rate split note"""
COLUMNS = HEADER.split()
FIGURES = COLUMNS[COLUMNS.index("ttft_ms_mean") : COLUMNS.index("split")]
VALUES = {
    "engine": {"trtllm", "vllm", "sglang"},
    "gpu": {"h100", "h200", "b200", "b300", "gb200", "gb300"},
    "mode": {"aggregated", "disaggregated", ""},
    "precision": {"mxfp4", "fp4", "fp8", "bf16", ""},
    "load": {"concurrency", "poisson", "offline", "burst", "ramp"},
    "speculative": {"none", "eagle3", "mtp", ""},
    "split": {FIT, HELD_OUT},
}
# Lowest and highest plausible figure. Requests that are all sent at once wait for minutes.
RANGES = {
    "ttft_ms": (5, 1.2e6),
    "tpot_ms": (1, 1500),
    "output_tok_s_gpu": (1, 80_000),
    "total_tok_s_gpu": (10, 150_000),
    "tok_s_user": (1, 1000),
    "request_rate": (0.01, 50_000),
}
POINTS = read()


def number(point: dict[str, str], column: str) -> float:
    return float(point[column] or 1)


def name(point: dict[str, str]) -> str:
    return f"{point['source']}: {point['url']} {point['isl']}/{point['osl']} {point['concurrency']}"


def test_the_columns_and_sources_are_those_of_the_page() -> None:
    assert list(POINTS[0]) == COLUMNS
    page = PAGES["docs/measured-points.md"]
    assert [c for c in COLUMNS if f"`{c}`" not in page] == []
    groups = {p["source_group"] for p in POINTS}
    assert [g for g in sorted(groups) if f"`{g}`" not in page] == []


def test_there_are_enough_points_of_enough_sources() -> None:
    assert 200 <= len(POINTS) <= 1500
    assert len({p["source_group"] for p in POINTS}) >= 6


@pytest.mark.parametrize("column", VALUES)
def test_a_cell_has_one_of_the_documented_values(column: str) -> None:
    assert {p[column] for p in POINTS} <= VALUES[column]


def test_each_point_has_a_source_and_a_figure() -> None:
    for point in POINTS:
        assert point["source"], point
        assert point["url"].startswith("https://"), name(point)
        assert any(point[figure] for figure in FIGURES), name(point)
        assert point["load"] != "concurrency" or point["concurrency"], name(point)


def test_figures_are_plausible() -> None:
    for point in POINTS:
        for figure in FIGURES:
            if point[figure]:
                low, high = next(r for prefix, r in RANGES.items() if figure.startswith(prefix))
                assert low <= float(point[figure]) <= high, (name(point), figure)
        assert not point["prefix_hit"] or 0 <= float(point["prefix_hit"]) <= 1, name(point)


def test_figures_of_a_point_agree_with_each_other() -> None:
    for point in POINTS:
        if point["tok_s_user"] and point["tpot_ms_mean"]:
            ratio = number(point, "tok_s_user") * number(point, "tpot_ms_mean") / 1000
            assert 0.7 <= ratio <= 1.3, name(point)
        if all(point[c] for c in ("output_tok_s_gpu", "request_rate", "osl", "gpus")):
            tokens = number(point, "output_tok_s_gpu") * number(point, "gpus")
            ratio = tokens / number(point, "request_rate") / number(point, "osl")
            assert 0.8 <= ratio <= 1.25, name(point)


def test_the_concurrency_agrees_with_littles_law() -> None:
    columns = ("concurrency", "ttft_ms_mean", "tpot_ms_mean", "output_tok_s_gpu", "osl", "gpus")
    checked = [p for p in POINTS if all(p[c] for c in columns)]
    assert len(checked) >= 80
    for point in checked:
        osl = number(point, "osl")
        seconds = (number(point, "ttft_ms_mean") + osl * number(point, "tpot_ms_mean")) / 1000
        rate = number(point, "output_tok_s_gpu") * number(point, "gpus") / osl
        assert 0.75 <= rate * seconds / number(point, "concurrency") <= 1.15, name(point)


def test_the_layout_uses_all_gpus() -> None:
    for point in POINTS:
        if not (point["gpus"] and point["decode_tp"] and point["decode_replicas"]):
            continue
        pools = [pool for pool in ("prefill", "decode") if point[f"{pool}_tp"]]
        assert (len(pools) == 2) == (point["mode"] == "disaggregated"), name(point)
        gpus = 0.0
        for pool in pools:
            tp, pp, dp = (number(point, f"{pool}_{degree}") for degree in ("tp", "pp", "dp"))
            gpus += tp * pp * dp * number(point, f"{pool}_replicas")
        assert gpus == number(point, "gpus"), name(point)


def test_no_point_occurs_twice() -> None:
    configuration = [c for c in COLUMNS if c not in {*FIGURES, "url", "split"}]
    counts = Counter(tuple(p[c] for c in configuration) for p in POINTS)
    assert [key for key, n in counts.items() if n > 1] == []


def test_the_split_is_that_of_the_rule() -> None:
    assert [name(p) for p in POINTS if p["split"] != half(p["source_group"])] == []
    assert {p["source_group"] for p in POINTS} >= set(FIXED)
    counts = Counter(p["split"] for p in POINTS)
    assert 0.4 <= counts[HELD_OUT] / len(POINTS) <= 0.6


@pytest.mark.parametrize(
    ("engine", "gpus"),
    [("trtllm", {"b200"}), ("trtllm", {"h200"}), ("vllm", {"h100"}), ("vllm", {"h200"})],
)
def test_the_required_groups_are_in_both_halves_with_itl(engine: str, gpus: set[str]) -> None:
    sources = defaultdict(set)
    itl = Counter[str]()
    for point in POINTS:
        if point["engine"] == engine and point["gpu"] in gpus and can_be_replayed(point):
            sources[point["split"]].add(point["source_group"])
            itl[point["split"]] += bool(point["tpot_ms_mean"])
    assert sources[FIT]
    assert sources[HELD_OUT] - {"inferencex-others"}, "no independent source is held out"
    assert min(itl[FIT], itl[HELD_OUT]) >= 20
