"""`penstock up --gateway`: keys and limits in front of a real graph, and their edits.

The tests share one graph and run in this order; each leaves it serving.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from penstock.drill.graph_process import GraphProcess
from tests.support.local_graphs import QUICKSTART, left, listening, running_graph
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.destroys_graph]

GATEWAY_HOST = "127.0.0.2"  # what is not for clients stays on 127.0.0.1
ALICE, BOB, CAROL = (f"planted-key-of-{name}-0123456789" for name in ("alice", "bob", "carol"))
SECTION = """
gateway:
  rate_limit: {requests: 100, unit: second}
  max_request_kib: 64
"""


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A graph behind its gateway."""

    process: GraphProcess
    graph: Path
    keys: Path

    @property
    def url(self) -> str:
        return str(self.process.state()["gateway"]["url"])

    def client(self, key: str, retries: int = 0) -> openai.OpenAI:
        http = httpx.Client(trust_env=False, timeout=30)
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=retries, http_client=http)

    def model(self) -> str:
        return str(self.process.state()["models"][0])

    def is_accepted(self, key: str) -> bool:
        try:
            self.client(key).models.list()
        except openai.AuthenticationError:
            return False
        return True

    def write_keys(self, **keys: str) -> None:
        self.keys.write_text("".join(f"{client}={key}\n" for client, key in keys.items()))

    def edit(self, before: str, after: str) -> None:
        text = self.graph.read_text()
        assert before in text
        self.graph.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    graph, keys = folder / "graph.yaml", folder / "keys.env"
    graph.write_text(QUICKSTART.read_text() + SECTION)
    keys.touch(mode=0o600)
    keys.write_text(f"alice={ALICE}\nbob={BOB}\n")
    argv = ("--host", GATEWAY_HOST, "--port", "0", "--gateway", str(keys))
    with running_graph(graph, folder, *argv, env={}) as process:
        yield Guarded(process=process, graph=graph, keys=keys)
        assert_no_key_is_shown(folder)
    assert_no_key_is_shown(folder)


def assert_no_key_is_shown(folder: Path) -> None:
    """Not in a command line, an environment, a log, a state file or a rendered file."""
    for process in left(folder):
        texts = [*process.cmdline(), *process.environ().values()]
        assert not any("planted-key" in text for text in texts)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "keys.env"]
    assert len(files) > 1
    for path in files:
        assert b"planted-key" not in path.read_bytes(), path


def until(condition: Callable[[], bool]) -> None:
    wait_for(condition, "the graph follows", look_s=0.05)


def arrivals_of(guarded: Guarded, key: str, tokens: int) -> Iterator[float]:
    """The arrival time of each chunk of a streamed completion."""
    chunks = guarded.client(key).chat.completions.create(
        model=guarded.model(),
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=tokens,
        stream=True,
    )
    return (time.monotonic() for _ in chunks)


def test_a_request_needs_a_key_and_a_stream_is_not_buffered(guarded: Guarded) -> None:
    assert guarded.is_accepted(ALICE)
    assert not guarded.is_accepted(CAROL)
    with pytest.raises(openai.APIStatusError) as large:
        guarded.client(ALICE).completions.create(model="m", prompt="x" * 70_000)
    assert large.value.status_code == 413
    assert "64 KiB" in str(large.value)
    begun = time.monotonic()
    times = list(arrivals_of(guarded, ALICE, 600))
    assert len(times) >= 590
    # A client needs 0.1 s to read 600 tokens that arrive together; to generate them takes 1.5 s.
    assert times[-1] - times[0] > (times[-1] - begun) / 4


def test_the_other_commands_work_behind_the_gateway(guarded: Guarded) -> None:
    graph, run = str(guarded.graph), guarded.process.penstock
    state = guarded.process.state()
    assert state["gateway"]["clients"] == ["alice", "bob"]
    assert guarded.url.startswith(f"http://{GATEWAY_HOST}:")
    assert state["endpoint"].startswith("http://127.0.0.1:")
    assert "API keys of 2 clients, 100 requests per second each" in run("status", graph).stdout
    assert json.loads(run("ls", "--json").stdout)[0]["url"] == guarded.url
    verified = run("verify", graph, "--only", "models", "--only", "cancel")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert listening(guarded.process.log.parent) == {"127.0.0.1", GATEWAY_HOST}


def test_an_edit_of_the_keys_is_applied_and_a_stream_continues(guarded: Guarded) -> None:
    arrivals = arrivals_of(guarded, BOB, 600)
    next(arrivals)
    guarded.write_keys(alice=ALICE, carol=CAROL)
    until(lambda: guarded.is_accepted(CAROL))
    assert not guarded.is_accepted(BOB)
    assert len(list(arrivals)) >= 590
    assert guarded.is_accepted(ALICE)


def test_a_connection_that_is_open_follows_the_new_keys(guarded: Guarded) -> None:
    client = guarded.client(CAROL)
    client.models.list()
    guarded.write_keys(alice=ALICE)
    until(lambda: not guarded.is_accepted(CAROL))
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_wrong_keys_are_rejected_and_the_previous_ones_stay(guarded: Guarded) -> None:
    guarded.keys.write_text(f"alice={ALICE}\nbob\n")
    until(lambda: bool(guarded.process.state()["gateway"]["rejected_keys"]))
    assert guarded.is_accepted(ALICE)
    (line,) = guarded.process.state()["gateway"]["rejected_keys"]
    assert "keys.env:2: is not CLIENT=KEY" in line
    guarded.write_keys(alice=ALICE)
    until(lambda: not guarded.process.state()["gateway"]["rejected_keys"])


def test_an_edit_of_the_limits_is_applied(guarded: Guarded) -> None:
    guarded.edit("{requests: 100, unit: second}", "{requests: 2, unit: minute}")
    until(lambda: "2 requests per minute" in guarded.process.state()["gateway"]["summary"])

    def statuses() -> list[int]:
        headers = {"Authorization": f"Bearer {ALICE}"}
        url = f"{guarded.url}/models"
        answers = [httpx.get(url, headers=headers, trust_env=False) for _ in range(4)]
        assert answers[-1].headers["retry-after"] == "30"
        message = answers[-1].json()["error"]["message"]
        assert message == "Rate limit reached: 2 requests per minute."
        return [answer.status_code for answer in answers]

    assert statuses() == [200, 200, 429, 429]
    guarded.edit("  rate_limit: {requests: 2, unit: minute}\n", "")
    until(lambda: "no rate limit" in guarded.process.state()["gateway"]["summary"])
    assert all(guarded.is_accepted(ALICE) for _ in range(5))


def test_an_edit_that_needs_a_restart_is_refused(guarded: Guarded) -> None:
    guarded.edit("max_request_kib: 64", "timeouts: {connect_s: 9}")
    until(lambda: bool(guarded.process.state()["rejected_edit"]))
    (line,) = guarded.process.state()["rejected_edit"]
    assert line.startswith("gateway.timeouts.connect_s cannot change while the graph is up. Fix: ")
    guarded.edit("timeouts: {connect_s: 9}", "max_request_kib: 32")
    until(lambda: "32 KiB" in guarded.process.state()["gateway"]["summary"])
    assert guarded.process.state()["rejected_edit"] == []


def test_a_gateway_that_dies_is_restarted_with_its_keys(guarded: Guarded) -> None:
    os.kill(guarded.process.state()["gateway"]["pid"], signal.SIGKILL)
    until(lambda: guarded.process.state()["gateway"]["restarts"] == 1)
    until(lambda: bool(guarded.process.state()["gateway"]["is_running"]))
    assert guarded.client(ALICE, retries=5).models.list().data
    assert not guarded.is_accepted(BOB)


def test_a_gateway_that_is_sent_sigterm_finishes_its_streams(guarded: Guarded) -> None:
    before = guarded.process.state()["gateway"]["pid"]
    arrivals = arrivals_of(guarded, ALICE, 600)
    next(arrivals)
    os.kill(before, signal.SIGTERM)
    until(lambda: guarded.process.state()["gateway"]["pid"] != before)
    assert guarded.is_accepted(ALICE)  # by either of them
    assert len(list(arrivals)) >= 590
    until(lambda: before not in {process.pid for process in left(guarded.process.log.parent)})
    assert guarded.is_accepted(ALICE)


def test_after_its_folder_was_deleted_a_gateway_follows_edits(guarded: Guarded) -> None:
    """Envoy watches the deleted folder for new routes, so it must be replaced."""
    before = guarded.process.state()["gateway"]["pid"]
    (files,) = guarded.process.log.parent.glob("state/*/run/files")
    shutil.rmtree(files.rename(files.with_suffix(".deleted")), ignore_errors=True)
    until(lambda: guarded.process.state()["gateway"]["pid"] not in (0, before))
    until(lambda: "or a part of it was deleted while" in guarded.process.log.read_text())
    assert guarded.client(ALICE, retries=5).models.list().data
    guarded.write_keys(carol=CAROL)
    until(lambda: guarded.is_accepted(CAROL))
    assert not guarded.is_accepted(ALICE)
