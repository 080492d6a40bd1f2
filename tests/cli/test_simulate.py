"""`penstock simulate` as a user calls it."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.cli.main import main
from penstock.cli.replaying import add_acceptance
from penstock.simulate.acceptance import PUBLISHED
from tests.reports.read import charts_of, names_of, page_of
from tests.support.command_line import error_of, output_of
from tests.support.outputs import read_output
from tests.support.waiting import wait_for

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = str(GRAPHS / "gpt-oss-120b-b200-disagg.yaml")
AGGREGATED = str(GRAPHS / "gpt-oss-120b-b200-throughput.yaml")
WORKLOAD = """\
requests: 60
input: {mean: 800, cv: 0.3}
output: {mean: 60, cv: 0.3}
arrival: {poisson: 20}
"""


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "small.yaml"
    path.write_text(WORKLOAD)
    return str(path)


@pytest.mark.needs("sim")
def test_too_little_cpu_of_the_frontends_is_a_warning(workload: str) -> None:
    argv = ["simulate", AGGREGATED, "--workload", workload, "--set", "frontend.resources.cpu=50m"]
    output = output_of(argv)
    assert re.search(r"warning: requests may queue .* 2 frontends with 0\.05 each\. Set `", output)


@pytest.mark.needs("sim")
def test_the_table_has_one_row_per_graph(workload: str) -> None:
    argv = [
        "simulate",
        DISAGG,
        AGGREGATED,
        "--workload",
        workload,
        "--gpu-hour-price",
        "4",
        "--wide",
    ]
    output = output_of([*argv, "--ttft", "500ms", "--itl", "0.02s"])
    assert output.startswith("small: Poisson, 20 requests/s; simulated, not measured\n")
    assert re.search(r"^gpt-oss-120b-b200-disagg +✓ met +8 .* 100\.0% ", output, re.MULTILINE)
    assert "4×1 prefill + 1×4 decode on b200, router kv" in output
    assert "SLO: TTFT ≤ 500 ms, ITL ≤ 20 ms" in output
    assert "range over 3 seeds" in output
    assert "assumed: KV transfer at 100 GB/s (ib, line rate)" in output
    assert "not simulated in any graph: queues in the frontends" in output
    assert "ms before the engine: 8.3 ms + 0.18 ms per 1,000 input tokens" in output
    assert "warning" not in output
    assert "cost/Mtok" in output


@pytest.mark.needs("sim")
def test_a_router_mode_that_the_replay_does_not_have_is_refused(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "ours.yaml"
    graph.write_text(Path(AGGREGATED).read_text() + "router:\n  mode: least-loaded\n")
    line = len(graph.read_text().splitlines())
    argv = ["simulate", str(graph), "--workload", workload]
    assert main(argv) == 17
    where = f"{graph}:{line} router.mode: least-loaded cannot be replayed"
    assert where in capsys.readouterr().err
    # One worker: every mode selects it.
    assert main([*argv, "--seeds", "1", "--set", "worker.replicas=1"]) == 17  # ranks of two GPUs
    words = [*argv, "--seeds", "1", "--set", "worker.replicas=1"]
    assert main([*words, "--set", "engine.config.enable_attention_dp=false"]) == 0


@pytest.mark.needs("sim")
def test_each_stage_of_a_ladder_has_a_row_in_the_table_and_in_the_json(
    workload: str, tmp_path: Path
) -> None:
    ladder = tmp_path / "ladder.yaml"
    stages = "ladder: {rates: [2, 20], seconds: 5, pause: 5}"
    text = WORKLOAD.replace("requests: 60\n", "").replace("poisson: 20", stages)
    ladder.write_text(text)
    argv = ["simulate", DISAGG, "--workload", str(ladder), "--seeds", "1", "--ttft", "500ms"]
    output = output_of(argv)
    assert "ladder: 2, 20 requests/s for 5 s each, with pauses of 5 s" in output
    name = "gpt-oss-120b-b200-disagg"
    assert re.findall(rf"^({name}, [0-9]+/s)$", output, re.MULTILINE) == [
        f"{name}, 2/s",
        f"{name}, 20/s",
    ]
    assert output.count("assumed: KV transfer") == 1
    graphs = read_output("simulate", output_of([*argv, "--json"]))["graphs"]
    assert [(graph["graph"], graph["stage_rate"]) for graph in graphs] == [(name, 2), (name, 20)]
    rates = [graph["figures"]["request_rate"]["median"] for graph in graphs]
    assert rates == [pytest.approx(2, rel=0.6), pytest.approx(20, rel=0.3)]


@pytest.mark.needs("sim")
def test_json_and_page(workload: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    argv = ["simulate", DISAGG, "--workload", workload, "--seeds", "1", "--itl", "20ms"]
    output = read_output(
        "simulate", output_of([*argv, "--json", "--report", str(page), "--gpu-hour-price", "2"])
    )
    assert output["schema_version"] == 1
    (graph,) = output["graphs"]
    figures = graph["figures"]
    assert graph["shape"] == "4×1 prefill + 1×4 decode"
    assert figures["goodput"]["median"] == 1.0
    hours = figures["gpu_hours_per_million"]["median"]
    assert graph["cost_per_million"] == pytest.approx(2 * hours)
    text = page.read_text("utf-8")
    assert list(charts_of(text)) == [
        "Distribution of TTFT",
        "Distribution of ITL (mean of a request)",
        "Distribution of end-to-end latency",
        "Running and waiting requests",
        "KV cache in use",
    ]
    assert f": {figures['goodput']['median']:.1%} of requests within" in text
    assert not re.search("(src|href)=", page_of(text))
    assert "there is no folder" in error_of(
        [*argv, "--report", str(tmp_path / "no" / "page.html")], 2
    )
    assert main([*argv, "--report", str(page)]) == 0  # a report replaces a report
    assert "is a folder. Fix: Name a file in it." in error_of([*argv, "--report", str(tmp_path)], 2)


@pytest.mark.needs("sim")
def test_the_highest_scale_at_which_a_graph_meets_the_slo(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.simulate.study.BISECTIONS", 2)
    monkeypatch.setattr("penstock.simulate.study.DOUBLINGS", 4)
    argv = ["simulate", AGGREGATED, "--workload", workload, "--seeds", "1", "--until-slo-breaks"]
    output = read_output(
        "simulate", output_of([*argv, "--ttft", "60ms", "--set", "worker.replicas=1", "--json"])
    )
    (graph,), (sustained,) = output["graphs"], output["sustained"]
    assert graph["figures"]["goodput"]["median"] >= 0.95
    held = graph["scale"]
    assert sustained["highest_scale"] == held < sustained["lowest_failing_scale"]
    over = ["--scale", str(held * 1.5), "--ttft", "60ms", "--set", "worker.replicas=1", "--json"]
    (graph,) = read_output("simulate", output_of([*argv[:-1], *over]))["graphs"]
    assert graph["figures"]["goodput"]["median"] < 0.95
    monkeypatch.setattr("penstock.simulate.study.DOUBLINGS", 1)
    assert "misses the SLO even at scale × " in output_of([*argv, "--ttft", "1ms"])


@pytest.mark.needs("sim")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_replays_too(number: signal.Signals, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "penstock.cli.main", "simulate", DISAGG]
    process = subprocess.Popen(
        [*argv, "--workload", "long-context", "--no-cache", "--seeds", "9"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(lambda: list(tmp_path.glob("*/*.jsonl")), "a replay that has started")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (130, "penstock simulate: interrupted\n")
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.needs("sim")
def test_requests_that_no_engine_takes_are_rejected_and_miss_the_slo(workload: str) -> None:
    argv = ["simulate", AGGREGATED, "--workload", workload, "--seeds", "1", "--ttft", "10s"]
    (graph,) = read_output(
        "simulate", output_of([*argv, "--set", "model.context_length=900", "--json"])
    )["graphs"]
    assert 5 < graph["too_long"] < 55
    share = graph["figures"]["goodput"]["median"]
    assert share == pytest.approx(1 - graph["too_long"] / 60)
    assert "every request is longer than the 100 tokens" in error_of(
        [*argv, "--set", "model.context_length=100"], 3
    )


@pytest.mark.needs("sim")
def test_inputs_beyond_a_step_are_rejected_before_the_replay(workload: str) -> None:
    sets = ["engine.config.enable_chunked_prefill=false", "prefill.config.max_num_tokens=800"]
    argv = ["simulate", DISAGG, "--workload", workload, "--seeds", "1", "--ttft", "10s", "--wide"]
    for text in sets:
        argv += ["--set", text]
    output = output_of(argv)
    limit = r"input longer than 800 tokens, the maximum per step of prefill"
    assert re.search(rf"  rejected requests: [0-9]+ \({limit}", output)
    assert "decode queue p99" in output


GRAPH_WITH_PLANNER = """\
model: {id: openai/gpt-oss-120b, context_length: 32768}
hardware: {gpu: b200, fabric: ib}
engine: {kind: trtllm, config: {enable_chunked_prefill: true}}
router: {mode: round-robin}
prefill: {gpus: 1, autoscaling: {owner: planner}}
decode: {gpus: 1, autoscaling: {owner: planner}}
planner: {max_gpus: 8, config: {ttft_ms: 1000, itl_ms: 20}}
"""
TARGET_LATENCY = GRAPH_WITH_PLANNER.replace(
    "ttft_ms: 1000, itl_ms: 20", "optimization_target: latency"
)
RAMP = "input: 14000\noutput: 20\narrival: {ramp: {start: 2, end: 14, seconds: 150}}\n"


@pytest.mark.needs("sim")
@pytest.mark.nightly  # tests/simulate/test_scaling.py has the planner's decisions
def test_the_planner_scales_and_is_compared_with_fixed_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    graph, ramp, page = (tmp_path / name for name in ("ours.yaml", "ramp.yaml", "page.html"))
    graph.write_text(GRAPH_WITH_PLANNER)
    ramp.write_text(RAMP)
    argv = ["simulate", str(graph), "--workload", str(ramp), "--planner", "--seeds", "1"]
    start, planner, *fixed = read_output(
        "simulate", output_of([*argv, "--startup", "20s", "--json", "--report", str(page)])
    )["graphs"]
    assert [row["graph"] for row in (start, planner)] == ["ours, fixed 1+1", "ours, planner"]
    (scaling,) = planner["scaling"]
    (first, *_) = scaling["events"]
    assert (first["pool"], first["before"], first["after"]) == ("prefill", 1, 2)
    workers = scaling["workers"]["prefill"]
    assert workers[1] == {"at_s": first["at_s"], "serving": 1, "allocated": 2}
    assert workers[2]["at_s"] >= first["at_s"] + 5  # a tick
    hours = {
        row["graph"]: row["figures"]["gpu_hours"]["median"] for row in (start, planner, *fixed)
    }
    assert hours["ours, fixed 1+1"] < hours["ours, planner"] < max(hours.values())
    shares = [row["figures"]["goodput"]["median"] for row in (start, planner, *fixed)]
    assert shares[0] < shares[1] <= shares[-1]
    workers_chart = charts_of(page.read_text("utf-8"))["Workers"]
    assert "prefill, allocated" in names_of(workers_chart)
    # The same job comes from the cache; another start-up time is another job.
    output = output_of([*argv, "--startup", "20s"])
    assert "scaling events: " in output
    assert "an added worker is ready 20 s after" in output
    later = read_output("simulate", output_of([*argv, "--startup", "100s", "--json"]))["graphs"][1]
    assert later["scaling"] != planner["scaling"]


@pytest.mark.needs("sim")
def test_a_planner_needs_one_in_the_graph(workload: str, tmp_path: Path) -> None:
    argv = ["simulate", DISAGG, "--workload", workload]
    output = error_of([*argv, "--planner"], 17)
    assert "gpt-oss-120b-b200-disagg has no running planner" in output
    assert "Fix: Add `planner` with `max_gpus`" in output
    assert main([*argv, "--planner", "--until-slo-breaks", "--ttft", "1s"]) == 2
    path = tmp_path / "ours.yaml"
    path.write_text(TARGET_LATENCY)
    assert "--planner: needs an SLO" in error_of(
        ["simulate", str(path), "--workload", workload, "--planner"], 2
    )
    assert "Add --planner." in error_of([*argv, "--startup", "60s"], 2)


@pytest.mark.needs("sim")
def test_the_planner_needs_a_router_mode_that_can_be_replayed(
    tmp_path: Path, workload: str
) -> None:
    graph = tmp_path / "ours.yaml"
    graph.write_text(GRAPH_WITH_PLANNER.replace("round-robin", "power-of-two"))
    argv = ["simulate", str(graph), "--workload", workload, "--seeds", "1"]
    assert main(argv) == 0
    message = error_of([*argv, "--planner"], 17)
    assert "power-of-two cannot be replayed: the replay has kv, round-robin, random" in message
    assert message.endswith("Fix: Set the router mode to kv, round-robin or random.\n")


@pytest.mark.needs("sim")
def test_requests_that_arrive_at_once_have_no_highest_scale(tmp_path: Path) -> None:
    trace = tmp_path / "same.jsonl"
    trace.write_text('{"timestamp": 7, "input_length": 9, "output_length": 9}\n' * 3)
    argv = ["simulate", AGGREGATED, "--workload", "conversation", "--trace", str(trace)]
    output = error_of([*argv, "--until-slo-breaks", "--ttft", "1s"], 2)
    assert f"--until-slo-breaks: all requests of {trace} arrive at once, so there is no" in output
    assert "Fix: Remove --until-slo-breaks." in output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.yaml"], 3, "no such file"),
        ([DISAGG, "--workload", "short-chta"], 3, "Did you mean `short-chat"),
        ([DISAGG, "--workload", "conversation"], 3, "needs a recorded trace"),
        ([DISAGG, "--until-slo-breaks"], 2, "needs an SLO"),
        ([DISAGG, "--set", "decode.replicas=0"], 17, "no decode worker"),
        ([str(GRAPHS / "quickstart-simulated.yaml")], 17, "runs the mocker"),
    ],
)
@pytest.mark.needs("sim")
def test_bad_input(arguments: list[str], code: int, words: str, workload: str) -> None:
    extra = [] if "--workload" in arguments else ["--workload", workload]
    assert words in error_of(["simulate", *arguments, *extra], code)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ttft", "500"], "write it as 500ms or 30m"),
        (["--ttft", "0ms"], "is not a duration"),
        (["--scale", "0"], "not a number above 0"),
        (["--scale", "nan"], "not a number above 0"),
        (["--attain", "95"], "write 95% as 0.95"),
        (["--seeds", "0"], "from 1 to 100"),
        (["--acceptance", "1.2"], "from 0 to 1"),
        (["--acceptance", "a"], "neither a list of rates"),
        (["--acceptance", "0.8,a"], "not a number"),
        (["--acceptance", ""], "not a list of up to five rates"),
        (["--acceptance", "0.9,,0.5"], "not a list of up to five rates"),
        ([], "required: --workload"),
    ],
)
def test_bad_arguments(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--workload", "short-chat"] if arguments else []
    with pytest.raises(SystemExit) as caught:
        main(["simulate", DISAGG, *extra, *arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_acceptance_takes_the_name_of_published_rates() -> None:
    parser = argparse.ArgumentParser()
    add_acceptance(parser)
    args = parser.parse_args(["--acceptance", "code"])
    assert args.acceptance == PUBLISHED["code"].rates


def test_without_the_environment_it_says_what_to_install(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path / "none"))
    output = error_of(["simulate", DISAGG, "--workload", workload], 8).strip()
    assert output.endswith("Fix: Run `penstock tools env install sim` (1.2 GB, once).")
    assert "\n" not in output
