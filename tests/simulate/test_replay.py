"""Replay processes: real ones, and ones that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from penstock.errors import MissingToolError, SimulationError
from penstock.graph.slo import Slo
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.metrics import replay_metrics
from penstock.simulate.model import Replayable
from penstock.simulate.replay import CHILD, SCHEMA, Cache, Job, Replays, as_trace
from penstock.simulate.replayable import replayable
from penstock.simulate.scaling import scaling_of
from penstock.workload import BLOCK_TOKENS, Request, sample
from penstock.workload.load import parse_workload
from tests.simulate.test_scaling import planned_by, planner_of
from tests.support.processes import command_of
from tests.support.replays import kept_pid, real_replay_processes

__all__ = ["real_replay_processes"]

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
NO_CACHE = Cache(None, "")
SHORT = "requests: 60\ninput: {mean: 800, cv: 0.3}\noutput: {mean: 60, cv: 0.3}\n"


def graph(name: str, *sets: str) -> Replayable:
    return replayable(open_source(GRAPHS / f"{name}.yaml", sets), Hints())


def job(deployment: Replayable, arrival: str = "poisson: 20", seed: int = 0) -> Job:
    text = f"{SHORT}arrival: {{{arrival}}}\n"
    loaded = parse_workload(text, "w.yaml").workload
    assert loaded.arrival is not None
    trace = as_trace(sample(loaded, seed))
    users = loaded.arrival.concurrency
    return Job(replayable=deployment, trace=trace, concurrency=users, sample_ms=500, seed=seed)


def environment(folder: Path, script: str) -> None:
    """An environment whose Python is a shell script."""
    home = folder / "sim"
    (home / "bin").mkdir(parents=True)
    (home / "installed.txt").write_text("")
    python = home / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def versions(schema: int) -> str:
    names = {"aisimulate": "0.14.0", "ai-dynamo": "1.6.1", "ai-dynamo-runtime": "1.6.1"}
    return f"echo '{json.dumps({'schema': schema, 'versions': names})}'"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_ENVIRONMENTS", str(tmp_path))
    return tmp_path


def children() -> list[psutil.Process]:
    """Replays of this process that are to end with the test."""
    processes = psutil.Process().children(recursive=True)
    replays = [process for process in processes if CHILD.name in " ".join(command_of(process))]
    return [process for process in replays if process.pid != kept_pid()]


def test_as_trace_keeps_sessions_and_gives_blocks_to_those_without() -> None:
    first = Request(at_ms=5.0, session="a", input_tokens=100, output_tokens=3, blocks=(1, 2))
    turn = Request(
        at_ms=None, think_ms=50, session="a", input_tokens=130, output_tokens=4, blocks=(1, 3, 4)
    )
    alone = Request(at_ms=9.0, input_tokens=BLOCK_TOKENS * 2, output_tokens=1, blocks=())
    rows = [json.loads(line) for line in as_trace((first, turn, alone)).splitlines()]
    assert [row["hash_ids"] for row in rows] == [[1, 2], [1, 3, 4], [5, 6]]
    assert [row.get("timestamp") for row in rows] == [5.0, None, 9.0]
    assert [row.get("delay") for row in rows] == [None, 50, None]
    assert [row.get("session_id") for row in rows] == ["a", "a", None]


def test_without_the_environment_one_line_says_what_to_install(folder: Path) -> None:
    with (
        pytest.raises(
            MissingToolError, match=r"Run `penstock tools env install sim` \(1\.2 GB, once\)\.$"
        ),
        Replays(NO_CACHE),
    ):
        pass


@pytest.mark.program
def test_a_schema_mismatch_names_both_versions(folder: Path) -> None:
    environment(folder, versions(SCHEMA + 1))
    with (
        Replays(NO_CACHE) as replays,
        pytest.raises(MissingToolError) as caught,
    ):
        replays.run([job(graph("gpt-oss-120b-b200-disagg"))])
    message = str(caught.value)
    assert f"aisimulate 0.14.0 has engine-spec schema {SCHEMA + 1}" in message
    assert f"ai-dynamo-runtime 1.6.1 reads {SCHEMA}" in message
    assert not children()


@pytest.mark.program
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'no such module' >&2; exit 3", "exited with code 3: no such module"),
        (f"{versions(SCHEMA)}; read line; exit 9", "exited with code 9: no output"),
        (f'{versions(SCHEMA)}; read line; echo \'{{"error": "X: odd"}}\'', "failed: X: odd"),
        (
            f'{versions(SCHEMA)}; read line; echo \'{{"error": "MoE data missing for K"}}\'',
            "no measured kernels for this: MoE data missing for K",
        ),
        (
            f'{versions(SCHEMA)}; read line; echo \'{{"error": "rank 0: perf database error: MLA '
            "data missing\"}'",
            r"no measured kernels for this: MLA data missing\. Fix: Choose another .* GPU\.$",
        ),
    ],
)
def test_a_replay_that_fails_is_an_error_and_leaves_nothing_running(
    folder: Path, script: str, words: str
) -> None:
    environment(folder, script)
    with Replays(NO_CACHE, processes=1) as replays, pytest.raises(SimulationError, match=words):
        replays.run([job(graph("gpt-oss-120b-b200-disagg"))] * 3)
    assert not children()


@pytest.mark.program
def test_a_replay_is_ended_at_the_time_limit_and_none_starts_after_it(folder: Path) -> None:
    environment(folder, f"{versions(SCHEMA)}; read line; exec sleep 600")
    left = iter([1.0, 0.1, 0.0])
    with Replays(NO_CACHE, processes=1, left_s=lambda: next(left)) as replays:
        for _ in range(2):
            with pytest.raises(SimulationError, match="the replay was ended at the time limit"):
                replays.run([job(graph("gpt-oss-120b-b200-disagg"))])
    assert not children()


@pytest.mark.needs("sim")
@pytest.mark.usefixtures("real_replay_processes")
def test_a_disaggregated_graph_is_replayed(tmp_path: Path) -> None:
    deployment = graph("gpt-oss-120b-b200-disagg")
    cache = Cache(tmp_path, "1")
    reported: list[tuple[int, int]] = []
    with Replays(cache) as replays:
        answers = replays.run(
            [job(deployment), job(deployment, seed=1)], lambda done, of: reported.append((done, of))
        )
        assert replays.replayed == 2
    assert [counts for counts in dict.fromkeys(reported) if counts[0]] == [(1, 2), (2, 2)]
    figures = replay_metrics(answers[0], deployment.gpus, Slo(ttft_ms=1000, itl_ms=50))
    assert figures.unfinished == 0
    assert 5 < figures.ttft_p50_ms < 200
    assert 1 < figures.itl_p50_ms < 10
    assert figures.goodput == 1.0
    pools = {
        pool: {s[pool]["workers"] for s in answers[0]["samples"]} for pool in ("prefill", "decode")
    }
    assert pools == {"prefill": {4}, "decode": {1}}
    with Replays(cache) as replays:
        assert replays.run([job(deployment)]) == answers[:1]
        assert replays.replayed == 0
    assert Cache(tmp_path, "2").get(job(deployment).key) is None  # other packages
    assert not children()


@pytest.mark.program
def test_a_long_replay_reports_progress_before_it_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.simulate.replay.PROGRESS_S", 0.01)
    gate = folder / "gate"
    environment(
        folder,
        f"{versions(SCHEMA)}; read line; until [ -e {gate} ]; do sleep 0.01; done; echo '{{}}'",
    )
    reported: list[tuple[int, int]] = []

    def report(done: int, of: int) -> None:
        reported.append((done, of))
        if len(reported) == 3:
            gate.write_text("")

    with Replays(NO_CACHE, processes=1) as replays:
        replays.run([job(graph("gpt-oss-120b-b200-disagg"))], report)
    assert reported[:3] == [(0, 1)] * 3
    assert reported[-1] == (1, 1)


@pytest.mark.needs("sim")
def test_the_decode_queue_is_measured() -> None:
    narrow = graph("gpt-oss-120b-b200-disagg", "decode.config.max_batch_size=1")
    with Replays(NO_CACHE, processes=1) as replays:
        (answer,) = replays.run([job(narrow)])
    figures = replay_metrics(answer, narrow.gpus, Slo())
    assert figures.decode_queue_p99_ms is not None
    assert figures.decode_queue_p99_ms > 500
    assert figures.prefill_queue_p99_ms < 100


@pytest.mark.needs("sim")
def test_allocated_workers_match_the_worker_seconds_of_the_replay() -> None:
    planned = planner_of(
        "gpt-oss-120b-b200-disagg",
        *planned_by("prefill", "decode"),
        "router.mode=round-robin",
        "planner.config.ttft_ms=100",
    )
    text = "input: 16000\noutput: 30\narrival: {ramp: {start: 2, end: 12, seconds: 200}}\n"
    trace = as_trace(sample(parse_workload(text, "w.yaml").workload, 0))
    asked = Job(replayable=planned, trace=trace, concurrency=None, sample_ms=5000)
    assert asked.key != replace(asked, replayable=replace(planned, planner=None)).key
    with Replays(NO_CACHE, processes=1) as replays:
        (answer,) = replays.run([asked])
    scaling = scaling_of(answer, planned)
    assert scaling.events
    counted = [answer["summary"][f"{pool}_worker_seconds"] for pool in ("prefill", "decode")]
    assert [held / 1000 for held in scaling.worker_ms] == pytest.approx(counted)
    assert sum(p.gpus * n for p, n in zip(planned.pools, scaling.peak, strict=True)) <= 16


@pytest.mark.needs("sim")
def test_closed_loop_clients_wait_and_round_robin_repeats_exactly() -> None:
    deployment = graph("gpt-oss-120b-b200-throughput", "router.mode=round-robin")
    asked = job(deployment, "concurrency: 6")
    with Replays(NO_CACHE) as replays:
        first, two = replays.run([asked, asked])
    assert first["requests"] == two["requests"]
    busy = [s["decode"]["running"] + s["decode"]["waiting"] for s in first["samples"]]
    assert 0 < max(busy) <= 6


@pytest.mark.needs("sim")
@pytest.mark.usefixtures("real_replay_processes")
def test_experts_that_were_not_measured_are_replayed_with_expert_parallelism_or_refused() -> None:
    cut = graph(
        "gpt-oss-120b-h200-disagg", "decode.gpus=2", "decode.config.moe_expert_parallel_size=1"
    )
    with Replays(NO_CACHE, processes=1) as replays:
        (answer,) = replays.run([job(cut)])
        assert answer["whole_experts"] is True
        engine = dict(cut.pools[0].engine["engine"])
        timing = dict(engine["timing_model"]["config"]) | {"moe_quant_mode": "w4a8_mxfp4_mxfp8"}
        model = {**engine["timing_model"], "config": timing}
        outer = {**cut.pools[0].engine, "engine": {**engine, "timing_model": model}}
        pool = replace(cut.pools[0], engine=outer)
        with pytest.raises(SimulationError, match="no measured kernels"):
            replays.run([job(replace(cut, pools=(pool, *cut.pools[1:])))])
        # The process that failed is used again.
        replays.run([job(cut, seed=1)])
        assert len(children()) == 1


def test_a_broken_cache_file_is_ignored(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "1")
    cache.put("question", {"a": 1})
    assert cache.get("question") == {"a": 1}
    (file,) = tmp_path.glob("*.gz")
    file.write_bytes(file.read_bytes()[:5])
    assert cache.get("question") is None
    assert cache.get("another") is None
    locked = Cache(tmp_path / "file" / "below", "1")
    (tmp_path / "file").write_text("")
    locked.put("question", {"a": 1})
    assert locked.get("question") is None
