"""NVIDIA's agentic rows: the graphs, the workload, the figures and the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import published_agentic
from penstock.cli.main import main
from penstock.manifests.source import open_source
from penstock.simulate.window import ServedRequest
from published.agentic import MIX, ROWS, Row, figures, graph_of, workload_of
from published.agentic_page import FIGURES, with_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "published-agentic.md").read_text()
RESULT = json.loads((ROOT / "benchmarks" / "results" / "published_agentic.json").read_text())
BY_NAME = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@BY_NAME
def test_check_finds_no_error_and_no_warning(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", str(row.graph)]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


@pytest.mark.slow
@BY_NAME
def test_the_workers_run_with_the_published_limits(row: Row) -> None:
    components = open_source(row.graph, ()).deployment.components
    workers = [one for one in components if one.gpus]
    assert sum(one.gpus * one.replicas for one in workers) == row.gpus == 8
    graph = graph_of(row)
    for pool in graph.pools:
        engine = pool.engine["engine"]
        assert engine["max_num_batched_tokens"] == 32768
        assert engine["block_size"] == 64
        assert engine["aic_nextn"] == 3
        assert engine["aic_nextn_accept_rates"] == "0.747,0.747,0.747"
        if row.name != "b200-2p6d":
            assert engine["max_num_seqs"] == 256
    assert graph.context == 131072


def test_ninety_percent_of_the_input_is_shared() -> None:
    requests = workload_of(ROWS[0]).requests(0)
    blocks, known = 0, set[int]()
    for request in requests:
        blocks += sum(block in known for block in request.blocks)
        known.update(request.blocks)
    assert blocks * 64 / sum(one.input_tokens for one in requests) == pytest.approx(0.9, abs=0.005)
    assert {(one.input_tokens, one.output_tokens) for one in requests} == {(64_000, 400)}


@pytest.mark.slow
@BY_NAME
def test_the_part_of_the_twin_has_the_same_load_per_gpu(row: Row) -> None:
    part = workload_of(row, share=row.scaled.share).workload
    gpus = sum(pool.all_gpus for pool in graph_of(row, row.scaled.sets).pools)
    assert gpus == row.gpus * row.scaled.share
    assert part.concurrency * row.gpus == row.concurrency * gpus


def served(arrived: float, ttft: float, ended: float, tokens: int) -> ServedRequest:
    return ServedRequest(
        arrived_ms=arrived,
        first_ms=arrived + ttft,
        ended_ms=ended,
        tokens=tokens,
        ttft_ms=ttft,
        itl_ms=(ended - arrived - ttft) / (tokens - 1),
        prefill_queue_ms=0.0,
        decode_queue_ms=None,
        input_tokens=100,
        cached_tokens=90,
    )


def test_figures_cover_the_complete_run_and_are_means_over_requests() -> None:
    found = figures([served(0, 1000, 2000, 101), served(1000, 2000, 8000, 101)], 2)
    assert found["tokens_per_second_gpu"] == pytest.approx(202 / 8 / 2, rel=1e-3)
    assert found["tokens_per_second_user"] == pytest.approx((100 + 20) / 2)  # of ITL 10 and 50 ms
    assert found["ttft_mean_s"] == 1.5
    assert found["prefix_hit_rate"] == 0.9


def test_the_page_is_that_of_the_result_file() -> None:
    assert set(RESULT["rows"]) == {row.name for row in ROWS}
    assert published_agentic.report(check=True) == 0


def test_another_measurement_changes_the_page() -> None:
    changed = json.loads(json.dumps(RESULT["rows"]))
    changed["b200-agg"]["twin"]["measured"]["tokens_per_second_gpu"] = 123.0
    text = with_tables(PAGE, changed)
    assert text != PAGE
    assert "| 123 |" in text
    assert with_tables(text, RESULT["rows"]) == PAGE


@BY_NAME
def test_the_twin_served_all_requests(row: Row) -> None:
    twin = RESULT["rows"][row.name]["twin"]
    assert (twin["failed"], twin["unsent"], twin["interrupted"]) == (0, 0, "")
    assert twin["measured"]["requests"] == twin["predicted"]["requests"]


def test_the_page_on_accuracy_states_the_deviations() -> None:
    ratios = [
        row["predicted"]["tokens_per_second_gpu"] / row["published"]["tokens_per_second_gpu"]
        for row in RESULT["rows"].values()
    ]
    stated = f"{min(ratios):.2f} to {max(ratios):.2f} × the published one"
    assert stated in (ROOT / "docs" / "accuracy.md").read_text()


def test_the_text_states_figures_of_the_results() -> None:
    rows, flat = RESULT["rows"], " ".join(PAGE.split())
    slower = 1 - _rate(rows["b200-agg"]["variants"]["without EAGLE-3"]) / _rate(
        rows["b200-agg"]["predicted"]
    )
    assert f"the predicted throughput of the first row is {slower:.0%} lower" in flat
    twin = rows["b200-2p6d"]["twin"]
    measured, replayed = (twin[name]["prefix_hit_rate"] for name in ("measured", "predicted"))
    assert f"report {measured:.0%}, and the replay has {replayed:.0%}" in flat
    mixes = [rows[name]["variants"][MIX] for name in ("b200-agg", "h200-agg", "b200-2p6d")]
    shares = [
        [mix[key] / rows[name]["published"][key] for key in FIGURES]
        for name, mix in zip(("b200-agg", "h200-agg", "b200-2p6d"), mixes, strict=True)
    ]
    (b200, h200, pools) = shares
    assert all(abs(share - 1) < 0.2 for row in (b200, h200) for share in row[:2])
    assert f"{b200[0]:.2f} and {h200[0]:.2f} × the published throughput" in flat
    assert f"{b200[1]:.2f} and {h200[1]:.2f} × the speed per user" in flat
    assert f"TTFTs are {b200[2]:.2f} and {h200[2]:.1f} × the published ones" in flat
    assert f"2P6D is {pools[0]:.2f} × the published one, its TTFT {pools[2]:.1f} ×" in flat


def _rate(figures: Mapping[str, float]) -> float:
    return figures["tokens_per_second_gpu"]


@pytest.mark.parametrize(
    ("name", "tokens", "in_flight"), [("b200-agg", 906, 654), ("b200-2p6d", 1044, 399)]
)
def test_the_shortest_mean_output_follows_from_the_published_figures(
    name: str, tokens: int, in_flight: int
) -> None:
    """Little's law: concurrency = rate / tokens × (TTFT + tokens / speed)."""
    row = next(row for row in ROWS if row.name == name)
    rate, user, ttft = (row.published[key] for key in FIGURES)
    rate *= row.gpus
    assert round(rate * ttft / (row.concurrency - rate / user)) == tokens
    assert round(rate / 400 * (ttft + 400 / user)) == pytest.approx(in_flight, abs=1)
