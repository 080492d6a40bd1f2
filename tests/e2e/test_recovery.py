"""Faults from outside during requests: what hangs or vanishes comes back, and requests go on.

One graph serves the tests without a variant.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import rollouts
from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import Traffic
from penstock.errors import AlreadyUpError
from penstock.graph.edit import set_replicas
from penstock.local.discovery import TTL_S
from penstock.local.events import EventKind, read_events
from penstock.tokenizer import FOLDER
from tests.e2e.chats import chat
from tests.support.local_graphs import (
    QUICKSTART,
    replaced,
    running_graph,
    traffic_during,
)

pytestmark = pytest.mark.destroys_graph

SLOW_PREFILL = """
model: {id: openai/gpt-oss-20b, context_length: 32768}
engine: {kind: mocker, config: {engine: {speedup_ratio: 0.03, num_gpu_blocks: 4096}}}
frontend: {inactivity_timeout_s: 3}
worker: {replicas: 2}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GraphProcess]:
    """Two workers in each pool."""
    folder = tmp_path_factory.mktemp("recovery")
    path = folder / "graph.yaml"
    path.write_text(set_replicas(QUICKSTART.read_text(), {"decode": 2}))
    with running_graph(path, folder, "--port", "0") as graph:
        yield graph
        assert graph.stop() == 0


@pytest.fixture
def running(shared: GraphProcess) -> GraphProcess:
    """What the last test did may still have an effect: a process that did not respond for a while
    is replaced after it."""
    all_ready(shared)
    return shared


def all_ready(graph: GraphProcess) -> None:
    graph.wait_counts(frontend=1, prefill=2, decode=2)


def printed_during(graph: GraphProcess, fault: Callable[[], object]) -> tuple[Traffic, list[str]]:
    """The requests during the fault and for as long as it takes to be ready after it, and what
    `up` printed meanwhile."""
    printed = len(graph.log.read_text())
    traffic = traffic_during(graph, fault, partial(all_ready, graph))
    return traffic, graph.log.read_text()[printed:].splitlines()


@contextlib.contextmanager
def suspended(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it was replaced
                os.kill(pid, signal.SIGCONT)


def test_five_kills_of_a_decode_worker_lose_nothing(running: GraphProcess) -> None:
    traffic = traffic_during(running, *(partial(replaced, running, "decode") for _ in range(5)))
    assert traffic.failures == []


def test_a_decode_worker_that_hangs_is_replaced_and_its_streams_move(running: GraphProcess) -> None:
    victim = running.pids("decode")[0]

    def hang() -> None:
        with suspended(victim):
            running.wait_for(lambda s: victim not in {r["pid"] for r in s["replicas"]})

    traffic, messages = printed_during(running, hang)
    assert traffic.failures == []
    assert any("stopped responding" in line for line in messages)


def test_after_all_processes_were_suspended_requests_continue(running: GraphProcess) -> None:
    """For longer than a record of a worker is valid."""
    pids = [running.pid, *(int(r["pid"]) for r in running.state()["replicas"])]

    def suspend() -> None:
        with suspended(*pids):
            time.sleep(TTL_S + 1)
        running.wait_for(lambda s: "registered it again" in running.log.read_text())

    traffic, messages = printed_during(running, suspend)
    # A frontend can resume before the workers refresh their records. Until then it has no model:
    # 404 for 0.1 s in one of four suspensions.
    assert {result.error for result in traffic.failures} <= {"HTTP 404: b''"}
    assert not traffic.results[-1].error
    assert any("registered it again" in line for line in messages)
    assert set(pids[1:]) == {int(r["pid"]) for r in running.state()["replicas"]}


def test_a_worker_rejects_requests_that_a_stale_address_sends_to_it(running: GraphProcess) -> None:
    """As after a restart that reuses an address. In dynamo#13088, such requests hung."""
    folder = Path(running.state()["discovery"]["folder"]) / "v1" / "instances"
    stale, other = sorted(folder.glob("*%2Fbackend%2Fgenerate%2F*"))
    before, port = stale.read_text(), re.compile(r"(?<=:)\d+(?=/)")
    found = port.search(json.loads(other.read_text())["transport"]["tcp"])
    assert found

    def replace_address(text: str) -> None:
        draft = stale.with_name(".draft")
        draft.write_text(text)
        draft.replace(stale)

    replace_address(port.sub(found[0], before, count=1))
    try:
        with ThreadPoolExecutor(8) as pool:
            questions = [f"Question {number}" for number in range(24)]
            responses = list(pool.map(partial(chat, running, max_tokens=2), questions))
    finally:
        replace_address(before)
    assert {response.status_code for response in responses} == {200}
    logs = "".join(path.read_text() for path in folder.parents[3].glob("logs/decode.*.log"))
    assert "No handler found for endpoint" in logs


def test_a_removed_discovery_folder_is_restored(running: GraphProcess) -> None:
    # The only frontend does not see the new folder and restarts; later requests succeed.
    (frontend,) = running.pids("frontend")

    def remove() -> None:
        shutil.rmtree(running.state()["discovery"]["folder"], ignore_errors=True)
        running.wait_for(lambda s: frontend not in {r["pid"] for r in s["replicas"]})
        all_ready(running)

    traffic, messages = printed_during(running, remove)
    assert not traffic.results[-1].error
    # If a check ran while the folder was being removed, a worker's records return in two parts.
    restored = [line.split()[0] for line in messages if "registered it again" in line]
    assert set(restored) == {"prefill.0", "prefill.1", "decode.0", "decode.1"}, restored


def test_a_deleted_state_folder_is_made_again(running: GraphProcess) -> None:
    """The commands must know the graph, although its lock and state were deleted too."""
    old = {*running.pids("event-broker"), *running.pids("frontend")}
    (folder,) = Path(running.state()["discovery"]["folder"]).parents[1:2]

    def remove() -> None:
        # At once: processes write in the folder, which a deletion file by file may then not empty.
        shutil.rmtree(folder.rename(folder.with_suffix(".deleted")), ignore_errors=True)
        running.wait_for(lambda s: not old & {r["pid"] for r in s["replicas"]})
        all_ready(running)

    traffic, messages = printed_during(running, remove)
    assert not traffic.results[-1].error
    assert any(f"{folder} or a part of it was deleted while" in line for line in messages)
    assert "graph  ready" in running.penstock("ls").stdout
    again = running.penstock("up", str(running.graph))
    assert again.returncode == AlreadyUpError.exit_code, again.stderr


HANGS = """\
{% for message in messages %}{% if message.content == "hang" %}
{% for i in range(10000) %}{% for j in range(10000) %}{% for k in range(10000) %}
{% endfor %}{% endfor %}{% endfor %}
{% endif %}{{ message.content }}{% endfor %}
"""


def test_a_request_without_a_token_leaves_its_worker_and_then_ends(tmp_path: Path) -> None:
    """Its prefill takes longer than the limit on both workers; the next request is served."""
    path = tmp_path / "graph.yaml"
    path.write_text(SLOW_PREFILL)
    with GraphProcess(path, tmp_path, ("--port", "0")) as graph:
        graph.wait_ready()
        response = chat(graph, "word " * 20_000, max_tokens=2)
        assert response.status_code == 504
        assert response.json()["error"]["message"] == "Request deadline exceeded"
        # For some seconds, the frontend sends no requests to workers that did not respond.
        ends = time.monotonic() + 60
        while (status := chat(graph, "hello", max_tokens=2).status_code) == 503:
            assert time.monotonic() < ends
        assert status == 200
        (folder,) = tmp_path.glob("state/*")
        hangs = [event for event in read_events(folder) if event.kind is EventKind.HANG]
        assert {event.subject for event in hangs} <= {"worker.0", "worker.1"}
        assert hangs
        assert "stage: prefill or decode" in hangs[0].text


@pytest.mark.nightly
def test_a_frontend_whose_chat_template_hangs_is_replaced(tmp_path: Path) -> None:
    """Each rendering occupies a thread of Dynamo; with as many as it has, the frontend hangs."""
    model = shutil.copytree(FOLDER, tmp_path / "model")
    config = model / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": HANGS}))
    arguments = ["--port", "0", "--set", f"model.path={model}"]
    with GraphProcess(copy_graph("quickstart-simulated", tmp_path), tmp_path, arguments) as graph:
        graph.wait_ready()
        (frontend,) = graph.pids("frontend")

        def ask(content: str) -> int:
            return chat(graph, content, max_tokens=2).status_code

        requests = 4 * (os.cpu_count() or 1)
        with ThreadPoolExecutor(requests) as pool:
            hanging = [pool.submit(ask, "hang") for _ in range(requests)]
            graph.wait_for(lambda s: frontend not in {r["pid"] for r in s["replicas"]}, 90)
            assert {done.result() for done in hanging} == {503}
        graph.wait_counts(frontend=1)
        assert ask("hello") == 200
        assert "frontend.0 stopped responding and was killed" in graph.log.read_text()
        (log,) = tmp_path.glob("state/*/logs/frontend.0.log")
        assert "has no response after 20 s" in log.read_text()


@pytest.mark.nightly
@pytest.mark.needs("servers")
def test_with_etcd_a_suspended_graph_comes_back() -> None:
    case = rollouts.cases()["mockers, disaggregated, etcd and NATS"]
    result = rollouts.measure(replace(case, faults="suspend-all"), changes=1, seed=1)
    assert (result["changes"], result["lost"], result["not_recovered"]) == (1, 0, 0), result
