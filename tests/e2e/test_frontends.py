"""Two frontends: with Envoy one endpoint in front of both, without it the first frontend."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from penstock.drill.traffic import Traffic
from tests.support.local_graphs import Up, listening


def test_without_envoy_the_first_frontend_is_the_endpoint_and_a_note_says_so(
    up: Up, quickstart: Path
) -> None:
    graph = up(quickstart, "--set", "frontend.replicas=2")
    assert "env install envoy" in graph.log.read_text()
    rows = [r for r in graph.state()["replicas"] if r["program"] == "frontend"]
    assert len({r["port"] for r in rows}) == 2
    for row in rows:
        models = httpx.get(f"http://127.0.0.1:{row['port']}/v1/models").json()["data"]
        assert [m["id"] for m in models] == graph.state()["models"]


@pytest.mark.needs("envoy")
def test_a_frontend_that_stops_behind_envoy_breaks_no_stream(up: Up, quickstart: Path) -> None:
    text = quickstart.read_text() + "\nfrontend:\n  replicas: 2\n"
    quickstart.write_text(text)
    graph = up(quickstart, envoy=True)
    url = str(graph.state()["endpoint"])
    model = graph.state()["models"][0]
    traffic = Traffic(url, model, requests=400, concurrency=16, tokens=60)

    async def scale_down_under_load() -> None:
        task = asyncio.create_task(traffic.run())
        while len(traffic.results) < 60:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(graph.penstock, "scale", str(quickstart), "frontend=1")
        await asyncio.to_thread(graph.wait_counts, frontend=1)
        await asyncio.to_thread(graph.penstock, "scale", str(quickstart), "frontend=2")
        await asyncio.to_thread(graph.wait_counts, frontend=2)
        os.kill(graph.pids("frontend")[0], signal.SIGTERM)
        await task

    asyncio.run(scale_down_under_load())
    assert traffic.failures == []


@pytest.mark.needs("envoy")
def test_envoy_listens_only_on_loopback(up: Up, quickstart: Path, tmp_path: Path) -> None:
    graph = up(quickstart, envoy=True)
    assert graph.state()["envoy"]
    assert listening(tmp_path) == {"127.0.0.1"}


@pytest.mark.needs("envoy")
def test_the_endpoint_of_envoy_may_have_another_address(up: Up, quickstart: Path) -> None:
    graph = up(quickstart, "--host", "127.0.0.2", envoy=True)
    url = str(graph.state()["endpoint"])
    assert url.startswith("http://127.0.0.2:")
    assert httpx.get(f"{url}/models").json()["data"]
