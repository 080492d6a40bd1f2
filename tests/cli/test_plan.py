"""`penstock plan` as a user calls it."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.checks.finding import tally
from penstock.checks.run import check_file
from penstock.cli.main import main
from penstock.graph.load import load_graph
from penstock.plan.no_plan import SHORTEST
from penstock.serving.understand import Hints
from tests.reports.read import charts_of, names_of, page_of
from tests.support.command_line import error_of, output_of
from tests.support.outputs import read_output
from tests.support.waiting import wait_for

WORKLOAD = """\
requests: 60
input: {mean: 2000, cv: 0.3}
output: {mean: 60, cv: 0.3}
arrival: {poisson: 10}
"""
LOOSE = ("--ttft", "1s", "--itl", "30ms")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of replays, which several tests read."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def asked(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    path = tmp_path / "small.yaml"
    path.write_text(WORKLOAD)
    words = ["plan", "--model", "gpt-oss-120b", "--hardware", "b200", "--workload", str(path)]
    return [*words, "--replays", "20"]


@pytest.mark.needs("sim")
def test_a_plan_writes_a_graph_with_its_reasons(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "planned.yaml"
    output = output_of([*asked, "--gpus", "2", *LOOSE, "-o", str(path)])
    assert output.startswith(
        "openai/gpt-oss-120b on up to 2 × b200, small (Poisson, 10 requests/s)"
    )
    for word in (
        "SLO: TTFT ≤ 1000 ms, ITL ≤ 30 ms for 95% of requests",
        "recommended: ",
        "headroom:",
        "router: Dynamo's default settings: no pool has two workers",
    ):
        assert word in output
    assert "sensitivity, input length × 2:" in output
    assert "sensitivity, scale × 1.5:" in output
    assert "no shared prefixes" not in output  # there are none
    assert "disaggregation: " in output
    assert re.search(r"accuracy, .+: 90% interval: ITL p50 [0-9.]+ to [0-9.]+ ms, ", output)
    assert "availability: one worker: no redundancy. Plan with --min-replicas 2" in output
    assert re.search(r"scale × 1.5: (only )?[0-9.]+% of requests meet the SLO", output)
    before, _, steps = output.partition(f"wrote {path}\n")[2].partition("\nnext steps:\n")
    assert before.startswith("\nbefore you install it on a cluster:\n  set model.cache.pvc to ")
    assert "  set model.token_secret to a Secret with HF_TOKEN (now: hf-token-secret)" in before
    assert steps.startswith(f"  penstock check {path}\n")
    loaded = load_graph(path)
    assert loaded.text.startswith("# openai/gpt-oss-120b on up to 2 × b200")
    assert "# Recommended: " in loaded.text
    assert "# Router: Dynamo's default settings: no pool has two workers" in loaded.text
    assert "# Accuracy: 90% interval: ITL p50 " in loaded.text
    assert loaded.graph.slo.ttft_ms == 1000
    counts = tally(check_file(path, Hints()))
    assert (counts.errors, counts.warnings) == (0, 0)
    simulated = output_of(["simulate", str(path), "--workload", asked[6]])
    assert " 100.0%" in simulated
    assert "not steady" not in simulated


@pytest.mark.needs("sim")
def test_an_existing_file_is_replaced_only_if_forced(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "planned.yaml"
    path.write_text("edited")
    words = [*asked, "--gpus", "1", *LOOSE, "-o", str(path)]
    error = error_of(words, 3)
    assert f"{path}: already exists. Fix: Name another file, or add --force" in error
    assert path.read_text() == "edited"
    assert main([*words, "--force", "--replays", "10"]) == 0
    assert "Recommended" in path.read_text()


@pytest.mark.needs("sim")
def test_a_report_shows_the_recommendation_and_all_replays(
    asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.html"
    words = [*asked, "--gpus", "2", *LOOSE, "--gpu-hour-price", "3", "--report", str(path)]
    document = read_output("plan", output_of([*words, "--json"]))
    text = path.read_text("utf-8")
    page, charts = html.unescape(page_of(text)), charts_of(text)
    assert f"<span>Recommended: {document['recommended']}: " in page
    assert "SLO: TTFT ≤ 1000 ms, ITL ≤ 30 ms for 95% of requests" in page
    for line in document["headroom"]:
        assert line in page
    heads = [
        f"<h2>{head}</h2>"
        for head in (
            "Throughput and cost of all replayed graphs",
            "Sensitivity and loss of a worker",
            "Neighbors of the recommended graph",
        )
    ]
    assert [head for head in heads if head not in page] == []
    pareto, cost = charts.values()
    kinds = {"aggregated, meets the SLO", "disaggregated, meets the SLO", "recommended graph"}
    assert {*kinds, "Pareto front"} <= set(names_of(pareto))
    assert kinds <= set(names_of(cost))
    assert cost["layout"]["yaxis"]["title"]["text"] == "cost per million tokens"
    assert all(f"<td>{change}</td>" in page for change in document["sensitivity"])
    assert re.search("<td>(step|replicas)</td>", page)  # what a neighbor differs in
    best = page.partition("<h2>Best graphs</h2>")[2].partition("<h2>")[0]
    counts = re.findall("<tr><td[^>]*>[^<]*</td><td>([0-9,]+)</td>", best)
    assert counts
    assert [c.replace(",", "") for c in counts] == re.findall("in the figures: ([0-9]+)", page)
    assert not re.search("(src|href)=", page)
    assert f"{path}: already exists. Fix: Name another file, or add --force" in (error_of(words, 3))


@pytest.mark.needs("sim")
def test_a_report_without_a_recommendation_shows_the_closest_graph(
    asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.html"
    path.write_text("old")
    slo = ("--ttft", "5ms", "--itl", "30ms")
    words = [*asked, "--gpus", "1", *slo, "--report", str(path), "--force"]
    error = error_of(words, 17)
    text = path.read_text("utf-8")
    page = html.unescape(page_of(text))
    assert f"No recommendation: {error.partition('penstock plan: ')[2].strip()}" in page
    assert "<h2>Closest graph: 1 × TP1 aggregated" in page
    pareto, cost = charts_of(text).values()
    assert "aggregated, misses the SLO" in names_of(pareto)
    assert cost["layout"]["yaxis"]["title"]["text"] == "GPU-seconds per million tokens"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--report", "."], "--report: . is a folder. Fix: Name a file in it."),
        (["--report", "no/x.html"], "--report: there is no folder no. Fix: Create the folder"),
        (
            ["-o", "planned.yaml", "--report", "planned.yaml"],
            "--report: planned.yaml is also the file of -o. Fix: Name another file.",
        ),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_the_search(
    more: list[str], message: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))  # none is needed
    assert message in error_of([*asked, "--gpus", "1", *LOOSE, *more], 2)


@pytest.mark.needs("sim")
@pytest.mark.nightly
def test_every_pool_gets_the_minimum_of_replicas(asked: list[str]) -> None:
    words = [*asked, "--gpus", "2", *LOOSE, "--min-replicas"]
    output = output_of([*words, "2", "--replays", "10"])
    assert "recommended: 2 × TP1 aggregated" in output
    assert "no redundancy" not in output
    line = r"^availability: with one worker fewer: (only )?[0-9.]+% of requests meet the SLO"
    assert re.search(line, output, re.MULTILINE)
    assert "--min-replicas: 3 replicas need more than 2 GPUs" in error_of([*words, "3"], 2)


@pytest.mark.needs("sim")
def test_with_n_minus_one_the_graph_has_a_worker_to_lose(asked: list[str]) -> None:
    words = [*asked, "--gpus", "2", *LOOSE, "--n-minus-one"]
    output = output_of(words)
    assert "also with one worker fewer; objective" in output
    assert "recommended: 2 × TP1 aggregated" in output
    assert "--n-minus-one: 2 replicas need more than 1 GPU." in error_of(
        [*asked, "--gpus", "1", *LOOSE, "--n-minus-one"], 2
    )


@pytest.mark.needs("sim")
@pytest.mark.nightly
def test_eagle3_is_considered_with_acceptance_rates(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "drafts.yaml"
    more = ["--objective", "interactivity", "--acceptance", "0.8,0.6"]
    output = output_of([*asked, "--gpus", "1", *LOOSE, *more, "-o", str(path)])
    assert "speculation: EAGLE-3 (draft model nvidia/gpt-oss-120b-Eagle3-v3, assumed" in output
    assert "acceptance rates 0.8, 0.6); the best replayed graph without EAGLE-3 (1 × TP1" in output
    assert "draft_tokens: 2\n" in path.read_text()
    assert main(["check", str(path)]) == 0


@pytest.mark.needs("sim")
@pytest.mark.parametrize("objective", ["cost", "interactivity", "throughput"])
@pytest.mark.nightly  # two searches each
def test_the_same_request_gives_the_same_graph(objective: str, asked: list[str]) -> None:
    words = ["--gpus", "1", *LOOSE, "--objective", objective, "--replays", "10"]
    question = [*asked, *words, "--no-cache", "--json"]
    graphs = []
    for _ in range(2):
        graphs.append(read_output("plan", output_of(question)))
    first, second = graphs
    assert first["recommended"] == second["recommended"]
    assert first["graph"].partition("\nmodel:")[2] == second["graph"].partition("\nmodel:")[2]
    # In addition to the search: two rows of the sensitivity analysis, one after a loss.
    assert first["replays"] <= 10 + 3 * 3 + 6  # with those that confirm the best graphs
    assert first["best_aggregated"]


@pytest.mark.needs("sim")
def test_an_slo_that_no_graph_meets_reports_the_closest_and_alternatives(
    asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "planned.yaml"
    output = error_of(
        [*asked, "--gpus", "1", "--ttft", "5ms", "--itl", "30ms", "-o", str(path)], 17
    )
    assert "no replayed graph with up to 1 × b200 met TTFT ≤ 5 ms, ITL ≤ 30 ms" in output
    assert "closest: 1 × TP1 aggregated" in output
    assert not path.exists()
    json_words = [*asked, "--gpus", "1", "--ttft", "5ms", "--itl", "30ms", "--json"]
    document = read_output("plan", output_of(json_words, 17))
    assert document["recommended"] is None
    assert f"{document['reason']}. Fix: {document['fix']}" in output
    closest = document["graphs"][0]
    assert f"closest: {closest['graph']}" in document["reason"]
    assert len(document["graphs"]) <= document["replayed"]
    use, *flags = output.partition("Fix: ")[2].partition(",")[0].split()
    assert (use, flags[0]) == ("Use", "--ttft")
    assert main([*asked, "--gpus", "1", *flags, "-o", str(path)]) == 0
    assert path.exists()


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--hardware", "a100", "--gpus", "1", *LOOSE], 2, "--gpu: a100 was not measured"),
        (["--model", "gpt-oss-12b", "--gpus", "1", *LOOSE], 3, "Did you mean"),
        (["--gpus", "1"], 2, "a plan needs an SLO. Fix: Add --ttft"),
        (
            ["--gpus", "65", *LOOSE],
            2,
            "65 is more than the limit of 64. Fix: Divide --scale and --gpus by the same number.",
        ),
        (["--gpus", "1", *LOOSE, "--trace", "x"], 3, "reads no trace"),
        (
            ["--model", "gpt-oss-20b", "--gpus", "1", *LOOSE, "--acceptance", "chat"],
            2,
            "no draft model is known for openai/gpt-oss-20b. Fix: Name one with --draft-model ID.",
        ),
        (
            ["--gpus", "1", *LOOSE, "--acceptance", "chat", "--confidence", "0.9"],
            2,
            "no measured points of speculative decoding",
        ),
        (["--gpus", "1", *LOOSE, "--draft-model", "a/b"], 2, "Add --acceptance RATES, such as"),
        (["--gpus", "1", *LOOSE, "-o", "/"], 2, "-o: / is a folder. Fix: Name a file in it."),
        (
            ["--gpus", "1", *LOOSE, "-o", "no/x.yaml"],
            2,
            "-o: there is no folder no. Fix: Create the folder, or name another file.",
        ),
        (["--gpus", "1", *LOOSE, "-o", "My_Graph.yaml"], 4, "my-graph.yaml"),
        (["--gpus", "1", *LOOSE, "-o", "-", "--json"], 2, "both write to the standard output"),
        (
            ["--gpus", "1", *LOOSE, "--scale", "1e6"],
            17,
            "Divide --scale and --gpus by the same number.",
        ),
        (
            ["--model", "deepseek-ai/DeepSeek-R1", "--gpus", "1", *LOOSE],
            17,
            "no worker of deepseek-ai/DeepSeek-R1",
        ),
    ],
)
def test_a_plan_that_is_not_possible_is_refused(
    more: list[str], code: int, message: str, asked: list[str]
) -> None:
    assert message in error_of([*asked, *more], code)


@pytest.mark.parametrize(
    "more",
    [
        ["--gpus", "0"],
        ["--gpus", "two"],
        ["--gpus", "2", "--ttft", "500"],
        ["--gpus", "2", "--objective", "speed"],
        ["--gpus", "2", "--replays", "9"],
        ["--gpus", "2", "--attain", "1.5"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(more: list[str], asked: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*asked, *more])
    assert ended.value.code == 2


@pytest.mark.needs("sim")
@pytest.mark.nightly  # 60 replays
def test_the_suggested_scale_includes_the_requested_scale(asked: list[str]) -> None:
    slo = ("--ttft", "1s", "--itl", "8ms", "--replays", "30")
    output = error_of([*asked, "--gpus", "1", *slo, "--scale", "3"], 17)
    (load,) = re.findall(r"--scale ([0-9.]+), at which the closest graph meets the SLO", output)
    assert main([*asked, "--gpus", "1", *slo, "--scale", load]) == 0


@pytest.mark.needs("sim")
def test_throughput_of_conversations_is_refused(tmp_path: Path) -> None:
    words = ["plan", "--model", "gpt-oss-20b", "--hardware", "h200", "--workload", "agentic"]
    assert "Use --objective cost or interactivity." in error_of(
        [*words, "--gpus", "2", *LOOSE, "--objective", "throughput"], 2
    )


@pytest.mark.needs("sim")
def test_ctrl_c_prints_the_best_graphs_so_far_and_leaves_no_process(
    asked: list[str], tmp_path: Path
) -> None:
    path, page = tmp_path / "planned.yaml", tmp_path / "plan.html"
    # The search for the highest interactivity takes minutes.
    words = [*asked, "--gpus", "2", *LOOSE, "--objective", "interactivity", "--quiet"]
    words += ["--replays", "2000", "-o", str(path), "--report", str(page)]
    argv = [sys.executable, "-m", "penstock.cli.main", *words]
    cache = tmp_path / "own"
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    # More than the processes replay at once, so at least one candidate was measured.
    wait_for(lambda: len(list(cache.rglob("*.gz"))) > (os.cpu_count() or 1), "replayed candidates")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert output.startswith("partial result: interrupted after ")
    assert "best first; further replays may change the order" in output
    assert "interrupted; nothing was written" in error
    assert not path.exists()
    assert not page.exists()
    assert psutil.wait_procs(children, timeout=10)[1] == []


@pytest.mark.needs("sim")
def test_a_time_limit_ends_the_search_with_what_was_measured(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--gpus", "2", *LOOSE, "--no-cache", "--time-limit", "1ms"]) == 17
    done = capsys.readouterr()
    assert "partial result: time limit reached after 0 candidates" in done.out
    assert "0 replays cannot decide" in done.err
    assert f"Fix: {SHORTEST}" in done.err
    words = [*asked, "--gpus", "2", *LOOSE, "--no-cache", "--time-limit", "1ms", "--json"]
    document = read_output("plan", output_of(words, 17))
    assert (document["graphs"], document["fix"]) == ([], SHORTEST)
