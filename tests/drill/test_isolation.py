"""Faults of the network and the disk in namespaces of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.drill import isolation

pytestmark = pytest.mark.program

INSIDE = """
import errno, os, socket, sys, time
from pathlib import Path
from penstock.drill import isolation

assert isolation.is_inside()
isolation.start_loopback()
listener = socket.create_server(("127.0.0.1", 0))
address = listener.getsockname()

def connects(timeout):
    try:
        socket.create_connection(address, timeout=timeout).close()
    except TimeoutError:
        return False
    return True

assert connects(5)
with isolation.partitioned([os.getpid()]):
    assert not connects(0.5)
assert connects(5)
with isolation.lost_packets(99):
    assert not connects(0.5)
assert connects(5)

def seconds_to_send(count):
    begun = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as other:
            for _ in range(count):
                rest = 20_000
                client.sendall(bytes(rest))
                while rest:
                    rest -= len(other.recv(rest))
    return time.monotonic() - begun

with isolation.slow_network(1000, 5):
    slow = seconds_to_send(10)
assert slow > 0.9  # 200 kB, of which 70 kB pass at once and the rest at 125 kB/s
assert seconds_to_send(10) < slow

with isolation.disk(Path(sys.argv[1])) as disk:
    file = disk / "file"
    file.write_bytes(b"x" * 10_000)
    with isolation.full_disk(disk):
        try:
            file.write_bytes(b"y" * 1_000_000)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            raise AssertionError("the disk was not full")
    file.write_bytes(b"z" * 1_000_000)
print("passed")
"""


@pytest.mark.needs("nftables")
def test_packets_are_lost_and_the_disk_is_full_only_inside(tmp_path: Path) -> None:
    namespaces = isolation.prefix()
    if namespaces is None:
        pytest.skip("this machine permits no namespaces")
    outside = isolation._network()
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    env = os.environ | {isolation.INSIDE: outside, "PATH": path}
    done = subprocess.run(
        [*namespaces, sys.executable, "-c", INSIDE, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "passed\n", done.stderr
    assert list((tmp_path / "disk").iterdir()) == []  # the tmpfs was mounted only inside


def test_a_variable_alone_does_not_mean_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isolation.is_inside()
    monkeypatch.setenv(isolation.INSIDE, isolation._network())
    assert not isolation.is_inside()


def test_without_the_tools_there_is_no_isolation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(isolation, "_path", lambda: str(tmp_path))
    assert isolation.prefix() is None
