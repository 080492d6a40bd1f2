"""KV transfers with NIXL between processes: equal bytes, and peers that die, stop or lie."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.environments import environments_root
from tests.support.waiting import wait_for

CHILD = Path(__file__).with_name("nixl_child.py")
SIZE = 3_000_001  # of several messages of UCX, and not a multiple of anything
STALLED = "did not send the KV within"
SENT = {"seed": 1, "size": SIZE, "now": 0.0}

pytestmark = [pytest.mark.needs("llamacpp-nixl"), pytest.mark.timeout(120)]


class Child:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, **asked: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextmanager
def child(role: str) -> Iterator[Child]:
    packages = next((environments_root() / "llamacpp-nixl").glob("lib/python*/site-packages"))
    env = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "UCX_NET_DEVICES": "lo",
        "UCX_LOG_FILE": "stderr",
    }
    with subprocess.Popen(
        [sys.executable, str(CHILD), role],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        made = Child(process)
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[Child, ...]]:
    """A decode worker and three prefill workers, started at the same time."""
    with ExitStack() as stack:
        started = [stack.enter_context(child(role)) for role in ("receive", *["send"] * 3)]
        names = [worker.answer() for worker in started]
        assert len({*names}) == len(names)
        yield tuple(started)


@pytest.fixture
def decode(workers: tuple[Child, ...]) -> Child:
    return workers[0]


@pytest.fixture
def prefill(workers: tuple[Child, ...]) -> Child:
    return workers[1]


def received(decode: Child, handle: dict[str, Any], **sent: Any) -> str:
    """The error; empty if the bytes are equal."""
    answer = decode(handle=handle, **{**SENT, **sent})
    assert answer["equal"] is not bool(answer["error"])
    return str(answer["error"])


def wait_until_read(prefill: Child) -> None:
    """Until the notifications about all KV have arrived."""
    wait_for(lambda: prefill(drop=0.0) == 0, "the notifications about all KV")


def test_the_bytes_are_equal_and_the_buffer_is_used_again(decode: Child, prefill: Child) -> None:
    addresses, files = set(), set()
    for seed in range(20):
        handle = prefill(**{**SENT, "seed": seed})
        assert prefill(drop=0.0) == 1
        answer = decode(handle=handle, seed=seed, size=SIZE)
        assert answer["equal"], answer["error"]
        wait_until_read(prefill)
        addresses.add(handle["address"])
        files.add(answer["files"])
    assert len(addresses) == 1
    assert len([*files][-10:]) == 1, "no descriptor stays open"


def test_concurrent_caches_have_buffers_of_their_own(decode: Child, prefill: Child) -> None:
    sizes = [1, 4095, 4096, SIZE, 2 * SIZE]
    handles = [prefill(seed=9, size=size, now=0.0) for size in sizes]
    assert len({handle["address"] for handle in handles}) == len(sizes)
    for handle, size in zip(reversed(handles), reversed(sizes), strict=True):
        assert received(decode, handle, seed=9, size=size) == ""
    wait_until_read(prefill)


def test_kv_that_is_not_needed_is_freed(decode: Child, prefill: Child) -> None:
    handle = prefill(**SENT)
    assert decode(discard=handle) is None
    wait_until_read(prefill)


def test_a_cancelled_transfer_leaves_nothing_open(decode: Child, prefill: Child) -> None:
    before = decode(handle=prefill(**SENT), **SENT)["files"]
    assert [decode(cancel=prefill(**SENT)) for _ in range(5)] == [before] * 5
    assert received(decode, prefill(**SENT)) == ""
    wait_until_read(prefill)


def test_kv_that_expired_is_recognized(decode: Child, prefill: Child) -> None:
    handle = prefill(**SENT)
    assert prefill(drop=60.5) == 0
    assert "has dropped the KV" in received(decode, handle)


def test_a_buffer_is_used_again_only_after_a_read_that_may_run(prefill: Child) -> None:
    size = 9 * 2**20
    first = prefill(seed=1, size=size, now=0.0)
    prefill(drop=61.0)
    assert prefill(seed=1, size=size, now=62.0)["address"] != first["address"]
    prefill(drop=72.0)
    assert prefill(seed=1, size=size, now=72.0)["address"] == first["address"]
    prefill(drop=200.0)


def test_kv_of_another_request_at_the_same_address_is_not_taken(
    decode: Child, prefill: Child
) -> None:
    old = prefill(**SENT)
    assert received(decode, old) == ""
    wait_until_read(prefill)
    new = prefill(**{**SENT, "seed": 2})
    assert new["address"] == old["address"]
    assert "has dropped the KV" in received(decode, old)
    assert received(decode, new, seed=2) == "", "the wrong handle did not free it"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"bytes": 2**30}, "NIXL: "),
        ({"bytes": 2**62}, "no memory for "),
        ({"bytes": 0}, "invalid handle"),
        ({"bytes": -5}, "invalid handle"),
        ({"address": 4096}, "NIXL: "),
        ({"key": "00"}, "invalid handle"),
        ({"key": "00" * 16}, "has dropped the KV"),
        ({"metadata": "eA=="}, "NIXL: "),
        ({"metadata": None}, "invalid handle"),
        ({"agent": "another"}, "not of another"),
        ({"backend": "shared_memory"}, "sent with shared_memory, not nixl"),
    ],
)
def test_a_wrong_handle_is_an_error(
    decode: Child, workers: tuple[Child, ...], changed: dict[str, Any], words: str
) -> None:
    prefill = workers[3]
    handle = prefill(**SENT)
    error = received(decode, {**handle, **changed})
    assert words in error
    assert received(decode, handle) == "" or "key" in changed, "the peer can still be read"


def stop(pid: int) -> None:
    """Stop a process, and wait until each of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)

    def is_stopped() -> bool:
        states = [f.read_text() for f in Path(f"/proc/{pid}/task").glob("*/stat")]
        return all(state.rpartition(")")[2].split()[0] == "T" for state in states)

    wait_for(is_stopped, f"process {pid} to stop")


def test_a_stopped_worker_delays_one_transfer_and_no_other_worker(
    decode: Child, workers: tuple[Child, ...]
) -> None:
    stopped, other = workers[2], workers[1]
    assert received(decode, stopped(**SENT)) == ""
    handles = [stopped(**SENT) for _ in range(3)]
    stop(stopped.process.pid)
    try:
        answer = decode(handle=handles[0], limit_s=0.1, **SENT)
        assert (STALLED in answer["error"], answer["stalled"]) == (True, 1)
        assert "has not ended" in received(decode, handles[1])
        assert received(decode, other(**SENT)) == ""
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    wait_for(lambda: decode(stalled=True) == 0, "the READ of the stopped worker to end")
    assert received(decode, handles[2]) == ""


def test_workers_that_die_are_errors_and_leave_nothing(
    decode: Child, workers: tuple[Child, ...]
) -> None:
    """One was connected when it died, and the other one was not: UCX keeps one socket of its."""

    def error_of(handle: dict[str, Any]) -> str:
        error = received(decode, handle)
        assert error
        return error

    dying = workers[2]
    assert received(decode, dying(**SENT)) == ""
    handles = [dying(**SENT) for _ in range(3)]
    before = decode(handle=workers[1](**SENT), **SENT)["files"]
    dying.kill()
    for handle in handles:
        assert STALLED not in error_of(handle)
    with child("send") as unknown:
        unknown.answer()
        handles = [unknown(**SENT) for _ in range(3)]
    for handle in handles:
        assert STALLED not in error_of(handle)
    after = decode(handle=workers[1](**SENT), **SENT)
    assert (after["equal"], after["stalled"]) == (True, 0)
    assert after["files"] <= before + 1
