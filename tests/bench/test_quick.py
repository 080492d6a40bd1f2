"""The quick calibration: its figures, and the factors from replays with hidden ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import quick
from penstock.bench.aiperf import Endpoint
from penstock.bench.calibration import quick_calibration_of
from penstock.bench.documents import quick_document
from penstock.bench.quick import Engines, Phase, QuickRun, phases
from penstock.bench.quick_report import report_of
from penstock.cli.main import main
from penstock.errors import BenchError
from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.calibration import Factors, corrected
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Cache, Job, Replays, as_trace
from penstock.simulate.replayable import replayable
from penstock.simulate.window import ServedRequest
from penstock.twin.twin import LiveClient
from tests.reports.read import text_of
from tests.support.completions_server import CompletionsServer, Response

GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
ENDPOINT = Endpoint(url="http://127.0.0.1:9", model="m", engine_is_substitute=True)
PROMPT_MS, STEP_MS, BATCH_STEP_MS = 200.0, 8.0, 10.0


def request(first_ms: float, ttft_ms: float, itl_ms: float, tokens: int) -> ServedRequest:
    return ServedRequest(
        arrived_ms=first_ms - ttft_ms,
        ended_ms=first_ms + itl_ms * (tokens - 1),
        first_ms=first_ms,
        tokens=tokens,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms if tokens > 1 else None,
        prefill_queue_ms=0.0,
        decode_queue_ms=None,
        input_tokens=1000,
        cached_tokens=0,
    )


def served(stalls: Sequence[int] = ()) -> list[list[ServedRequest]]:
    """``stalls``: prompts that take three times as long."""
    at, saturated = 0.0, []
    for number in range(24):
        at += PROMPT_MS * (3 if number in stalls else 1)
        saturated.append(request(at, 3 * PROMPT_MS, 0.0, 1))
    return [
        [request(400.0 * number, 30.0, STEP_MS, 33) for number in range(9)],
        saturated,
        [request(400.0 * number, 50.0, BATCH_STEP_MS, 33) for number in range(6 * 8)],
    ]


def run_of(phase_requests: Sequence[Sequence[ServedRequest]], engines: Engines) -> QuickRun:
    planned = phases(engines.chunk, engines)
    return quick.run_of(ENDPOINT, planned, phase_requests, engines, 60.0)


@pytest.mark.parametrize("stalls", [(), (5, 13, 14)])
def test_stalls_do_not_change_the_peak_throughput(stalls: tuple[int, ...]) -> None:
    figures = run_of(served(stalls), Engines(chunk=1000, workers=2)).figures
    assert figures.peak_prefill_throughput == pytest.approx(1000 / PROMPT_MS * 1000 / 2)
    assert (figures.step_ms, figures.batch_step_ms) == (STEP_MS, BATCH_STEP_MS)
    assert figures.step_repeatability == 0
    assert not stalls or figures.prefill_repeatability >= 0


def test_the_report_names_the_figures_and_the_mockers() -> None:
    text = text_of(report_of(run_of(served(), Engines(chunk=1000))))
    assert "mockers simulated it" in text
    assert "peak prefill throughput of a worker  5,000 tokens/s" in text
    assert "decode step with 8 requests" in text
    document = quick_document(run_of(served(), Engines(chunk=1000)))
    assert (document.kind, document.calibration) == ("quick-calibration", None)
    assert document.requests == 9 + 24 + 48


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("gpt-oss-120b-h100-latency", Factors(prefill_speed=0.7, step_time=1.3, fixed_ttft_ms=20)),
        ("gpt-oss-120b-h100-disagg", Factors(prefill_speed=1.4, step_time=0.8, fixed_ttft_ms=5)),
    ],
)
def test_hidden_factors_are_found(name: str, hidden: Factors) -> None:
    graph = replayable(open_source(GRAPHS / f"{name}.yaml", ("frontend.replicas=1",)), Hints())
    with Replays(Cache(None, "")) as replays:
        run = run_of(*replayed(graph, hidden, replays))
        entry = quick_calibration_of(run, graph, replays, "penstock bench")
    assert entry.prefill_speed == pytest.approx(hidden.prefill_speed, rel=0.01)
    assert entry.step_time == pytest.approx(hidden.step_time, rel=0.01)
    assert entry.fixed_ttft_ms == pytest.approx(hidden.fixed_ttft_ms, rel=0.02, abs=0.2)
    assert abs(entry.errors_after.ttft_p50) < 0.01 < abs(entry.errors_before.ttft_p50)
    assert entry.peak_prefill_throughput == pytest.approx(
        run.figures.peak_prefill_throughput, rel=1e-3
    )
    assert entry.load.workload == "the quick calibration"


def replayed(
    graph: Replayable, hidden: Factors, replays: Replays
) -> tuple[list[list[ServedRequest]], Engines]:
    engines = Engines.of(graph)
    jobs = [
        Job(
            replayable=corrected(graph, hidden),
            trace=as_trace(replace(phase, count=6 * phase.concurrency + 3).requests),
            concurrency=phase.concurrency,
            sample_ms=1000.0,
        )
        for phase in phases(engines.chunk, engines)
    ]
    results = [hidden.frontend_time.added_to(each) for each in replays.run(jobs)]
    return [served_requests(each) for each in results], engines


def test_a_rejected_prompt_is_halved() -> None:
    def script(tokens: int) -> Response:
        return Response(status=400) if tokens > 2100 else Response(first_s=0.0, gap_s=0.0)

    with CompletionsServer(script=script).running() as server:
        client = LiveClient(url=f"{server.url}/v1", model="scripted")

        def serve(phase: Phase, _: float) -> list[ServedRequest]:
            return asyncio.run(client.serve(phase.requests, concurrency=phase.concurrency))

        assert quick.fitting_prompt(8192, serve) == 2048


@pytest.mark.program
def test_without_a_graph_the_figures_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quick, "LIMITS_S", (4.0, 4.0, 8.0))
    script = Response(first_s=0.02, gap_s=0.002)
    with CompletionsServer(script=lambda _: script).running() as server:
        assert main(["bench", server.url, "--calibrate", "quick", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["prompt_tokens"] == quick.PROMPT
    assert document["step_ms"] > 1.8  # a late first token shortens the gaps after it
    assert document["peak_prefill_throughput"] > 0
    assert document["calibration"] is None


def test_a_slow_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "LIMITS_S", (0.0, 0.0, 0.0))
    with CompletionsServer(script=lambda _: Response()).running() as server:
        endpoint = Endpoint(url=server.url, model="scripted")
        with pytest.raises(BenchError, match="too few requests with up to 512 tokens"):
            quick.measure(endpoint, Engines(chunk=512), lambda *_: None)
