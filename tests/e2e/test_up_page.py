"""`penstock up --page`: the page starts with the graph, and ends with it."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest

from penstock.local.state import StateDir
from tests.support.local_graphs import QUICKSTART, Up, left
from tests.support.processes import command_of, is_alive
from tests.support.waiting import wait_for

ADDRESS = re.compile(r"page: (http://127\.0\.0\.1:\d+/)")
BOUND_S = 90.0  # of the start of the page on a busy machine

pytestmark = pytest.mark.needs("page")


@pytest.mark.destroys_graph
@pytest.mark.parametrize(
    "is_down",
    [pytest.param(False, id="ctrl-c"), pytest.param(True, id="down", marks=pytest.mark.nightly)],
)
def test_the_page_responds_on_loopback_and_ends_with_the_graph(
    up: Up, tmp_path: Path, *, is_down: bool
) -> None:
    graph = up(QUICKSTART, "--engine", "mocker", "--page", envoy=True)
    # `up` prints it after the graph is ready.
    printed = wait_for(lambda: ADDRESS.search(graph.log.read_text()), "page", limit_s=BOUND_S)
    assert printed is not None
    url = printed[1]
    found = httpx.get(url, timeout=30)
    assert (found.status_code, "Processes" in found.text) == (200, True)
    children = psutil.Process(graph.pid).children(recursive=True)
    pages = [p for p in children if {"--web", "--allow-edit"} & set(command_of(p))]
    servers = [p for p in children if any(w.endswith("page/child.py") for w in command_of(p))]
    assert (len(pages), len(servers)) == (1, 1)
    port = httpx.URL(url).port
    sockets = [c.laddr for c in servers[0].net_connections("tcp") if c.status == "LISTEN"]
    assert [(one.ip, one.port) for one in sockets] == [("127.0.0.1", port)]
    assert httpx.post(f"{url}api/scale", json={"pool": "decode", "replicas": 2}).status_code == 403
    if is_down:
        done = graph.penstock("down", str(QUICKSTART))
        assert done.returncode == 0, done.stderr
        graph.wait_ended()
    else:
        assert graph.stop(signal.SIGINT) == 130
    assert [process for process in children if is_alive(process)] == []
    assert left(tmp_path) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_a_used_page_port_is_an_error_before_anything_starts(up: Up, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        graph = up(QUICKSTART, "--page", "--page-port", port, envoy=True, wait=False)
        graph.wait_ended(BOUND_S)
    assert graph.stop() == 9
    message = graph.log.read_text("utf-8")
    assert f"--page-port: cannot listen on 127.0.0.1:{port}" in message
    assert "Choose another port" in message
    folder = StateDir(QUICKSTART, tmp_path / "state")
    assert not folder.path.exists()  # no lock, no log, no process
