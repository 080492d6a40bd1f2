"""A drill of an endpoint that it did not start: commands as faults."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar

import pytest

from penstock.drill import run
from penstock.drill.inject import choose
from penstock.drill.report import report_of
from penstock.drill.run import SAMPLE, DrillOptions, DrillResult, Pace, drill_endpoint
from penstock.drill.targets import CommandFault, RemoteEndpoint, load_faults, possible
from penstock.errors import DrillError, GraphError, UsageError
from tests.support.local_graphs import ROOT
from tests.support.scripted_http import begin_chunked, body_of, respond, send_part, serving

pytestmark = pytest.mark.program

HEADERS = {"Authorization": "Bearer key"}
STREAMS = 2
FOREVER_S = 10_000.0  # longer than any test may take
AUTOSCALED = r"\1  autoscaling: {owner: external}"


class Endpoint:
    """Serves a model, except while ``down`` exists."""

    down: ClassVar[Path]
    stalled: ClassVar[Path]  # if it exists, streams stop after their first token
    streams: ClassVar[int]
    has_stalled: ClassVar[Event]  # a stream has
    ended: ClassVar[Event]  # from then on, no stream stalls
    keys: ClassVar[set[str | None]] = set()

    @classmethod
    def handle(cls, request: BaseHTTPRequestHandler) -> None:
        content = body_of(request)
        if request.command == "GET":
            respond(request, b'{"data": [{"id": "m"}]}')
        elif content:  # else the client was canceled after it had sent the headers
            body = json.loads(content)
            cls.keys.add(request.headers["authorization"])
            if cls.down.exists() or not body.get("stream"):
                respond(request, b"{}", 400 if cls.down.exists() else 200)
            else:
                cls._stream(request, body["max_tokens"])

    @classmethod
    def _stream(cls, request: BaseHTTPRequestHandler, tokens: int) -> None:
        chunk = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
        usage = {"choices": [], "usage": {"completion_tokens": tokens}}
        cls.streams += 1
        # One of the drill's first streams is complete: each client sends them one after another.
        has_result = cls.streams > SAMPLE + STREAMS
        if cls.stalled.exists() and has_result:
            begin_chunked(request)
            send_part(request, f"data: {json.dumps(chunk)}\n\n".encode())
            cls.has_stalled.set()
            cls.ended.wait()
            request.close_connection = True
            return
        events = [json.dumps(chunk)] * tokens + [json.dumps(usage), "[DONE]"]
        respond(request, "".join(f"data: {event}\n\n" for event in events).encode())


# The test endpoint fails and recovers immediately.
QUICK = Pace(warm_up_s=0.05, steady_s=0.05, poll_s=0.01)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    Endpoint.down, Endpoint.stalled = tmp_path / "down", tmp_path / "stalled"
    Endpoint.streams, Endpoint.has_stalled, Endpoint.ended = 0, Event(), Event()
    with serving(Endpoint.handle) as address:
        yield f"{address}/v1"
        Endpoint.ended.set()


def fault(down: Path, **more: object) -> CommandFault:
    values: dict[str, object] = {"name": "down", "command": ["touch", str(down)]}
    return CommandFault.model_validate(values | {"undo": ["rm", str(down)], "lasts_s": 0.5} | more)


def run_drill(
    url: str,
    *faults: CommandFault,
    count: int = 1,
    pace: Pace = QUICK,
    say: Callable[[str], None] = lambda line: None,
) -> DrillResult:
    endpoint = RemoteEndpoint(url, None, faults, 1, HEADERS, pause_s=0.01)
    options = DrillOptions(count=count, seed=1, streams=STREAMS, tokens=4, pace=pace)
    return drill_endpoint(endpoint, options, HEADERS, say)


def drill(url: str, *faults: CommandFault, count: int = 1) -> dict[str, int]:
    result = run_drill(url, *faults, count=count)
    assert len(result.faults) == count
    assert all(f.recovered_s is not None for f in result.faults)
    return {row.kind: sum(row.failed.values()) for row in result.evaluation.rows}


def test_failures_are_those_of_the_command_that_caused_them(url: str, tmp_path: Path) -> None:
    harmless = fault(tmp_path / "other", name="harmless", lasts_s=0.1)
    outcome = drill(url, fault(tmp_path / "down"), harmless, count=2)
    assert outcome["down"] > 0
    assert outcome["harmless"] == 0
    assert Endpoint.keys == {"Bearer key"}
    assert not (tmp_path / "down").exists()  # undone


def test_without_a_survivor_failures_are_unavoidable(url: str, tmp_path: Path) -> None:
    evaluation = run_drill(url, fault(tmp_path / "down", survivor=False)).evaluation
    assert evaluation.failures
    assert evaluation.passes


def test_a_command_that_fails_is_undone(url: str, tmp_path: Path) -> None:
    down = tmp_path / "down"
    with pytest.raises(DrillError, match="exited with 1"):
        drill(url, fault(down, command=["sh", "-c", f"touch {down}; exit 1"]))
    assert not down.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["false"], "exited with 1"),
        (["/no/such/program"], "No such file"),
        (["sh", "-c", "echo reason >&2; exit 3"], "exited with 3: reason"),
    ],
)
def test_a_command_that_fails_ends_the_drill(url: str, command: list[str], message: str) -> None:
    with pytest.raises(DrillError, match=message):
        drill(url, fault(Path("unused"), command=command, undo=[]))


def test_the_example_is_a_valid_file() -> None:
    names = [each.name for each in load_faults(ROOT / "k8s" / "drill.yaml").faults]
    assert len(names) == len(set(names)) == 3


def test_two_faults_need_two_names(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("faults:\n" + "  - {name: a, command: [b]}\n" * 2)
    with pytest.raises(GraphError, match=r"faults\[1\].name: 'a' is given twice"):
        load_faults(file)


def test_an_endpoint_without_a_model_is_an_error() -> None:
    with pytest.raises(DrillError, match="cannot list the models"):
        RemoteEndpoint("http://127.0.0.1:9/v1", None, (), 1, {})


def test_an_invalid_url_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"'http://\[::1' is not a URL"):
        RemoteEndpoint("http://[::1", None, [], 1, HEADERS)


def test_an_interrupted_drill_has_the_result_so_far(url: str, tmp_path: Path) -> None:

    def interrupt(line: str) -> None:
        if line.startswith("1: down"):
            os.kill(os.getpid(), signal.SIGINT)

    result = run_drill(url, fault(tmp_path / "down", lasts_s=0.1), count=50, say=interrupt)
    assert result.was_interrupted
    assert len(result.faults) in (1, 2)
    assert result.evaluation.requests > 0
    assert result.evaluation.not_recovered == ()
    assert not (tmp_path / "down").exists()


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupted_drill_does_not_wait_for_stalled_requests(
    signals: int, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The requests of this endpoint stall once the fault has begun; its undo command still runs.

    After one signal they have a moment to end; after two they have none.
    """
    undone = tmp_path / "undone"
    command = {"command": ["touch", str(Endpoint.stalled)], "undo": ["touch", str(undone)]}
    stalls = fault(tmp_path / "down", name="stall", lasts_s=FOREVER_S, **command)
    pace = replace(QUICK, interrupted_s=0.05 if signals == 1 else FOREVER_S)
    lines: list[str] = []
    is_interrupted, returned = Event(), Event()

    def say(line: str) -> None:
        lines.append(line)
        if line.startswith("interrupted"):
            is_interrupted.set()

    def interrupt() -> None:
        for before in (Endpoint.has_stalled, is_interrupted)[:signals]:
            before.wait()
            if not returned.is_set():  # a late signal would end the test run
                os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    thread = Thread(target=interrupt)
    thread.start()
    try:
        result = run_drill(url, stalls, count=50, pace=pace, say=say)
    finally:
        for event in (returned, Endpoint.has_stalled, is_interrupted):
            event.set()
        thread.join()
    assert lines[-1] == "interrupted: stopping the drill"
    assert undone.exists()
    assert result.was_interrupted
    assert result.evaluation.failures == ()  # those of the interrupted fault are left out
    first, second = report_of("g.yaml", result).verdicts
    assert first.text == "partial result: the drill was interrupted"
    assert second.text.startswith("passed until then: 0 faults")
    assert capfd.readouterr().err == ""  # no traceback of asyncio
    assert signal.getsignal(signal.SIGINT) is handler


def test_replicas_of_an_autoscaled_graph_are_not_edited() -> None:
    graph = (ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text("utf-8")
    chosen = choose("kill,scale")
    assert possible(chosen, graph) == chosen
    for pool, count in (("prefill", 2), ("decode", 1)):
        graph = re.sub(rf"({pool}:(?:\n  #.*)*\n)  replicas: {count}", AUTOSCALED, graph)
    assert [choice.kind.name for choice in possible(chosen, graph)] == ["kill"]


def test_set_of_replicas_is_written_to_the_copy() -> None:
    """As an override of `up`, it would undo the edits of replicas."""
    assert run._replicas(["decode.replicas=2", "decode.gpus=1", "x-y.replicas=3"]) == (
        {"decode": 2, "x-y": 3},
        ["decode.gpus=1"],
    )
