"""A pool with a limit: what it does not accept gets 429 at once, and the rest is served."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.support.local_graphs import Up

LIMIT, QUEUE, CLIENTS = 4, 2, 40


def test_requests_beyond_the_limit_are_refused_and_the_others_complete(
    up: Up, quickstart: Path
) -> None:
    sets = [f"decode.request_limit={LIMIT}", f"decode.queue_limit={QUEUE}"]
    graph = up(quickstart, *(part for item in sets for part in ("--set", item)))
    state = graph.state()
    # One client: to make one takes tens of milliseconds, in which requests complete.
    client = httpx.Client(timeout=60, limits=httpx.Limits(max_connections=CLIENTS))

    def ask(number: int) -> httpx.Response:
        body = {
            "model": state["models"][0],
            "messages": [{"role": "user", "content": f"Question {number}"}],
            "max_tokens": 400,  # longer than a busy machine takes to send all requests
            "ignore_eos": True,
        }
        return client.post(f"{state['endpoint']}/chat/completions", json=body)

    with client, ThreadPoolExecutor(CLIENTS) as pool:
        responses = list(pool.map(ask, range(CLIENTS)))
        again = ask(CLIENTS)
    statuses = Counter(response.status_code for response in responses)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= LIMIT + QUEUE
    assert statuses[429] >= CLIENTS // 4
    assert rejections(state["endpoint"]) == statuses[429]  # the alert's metric counts them
    assert again.status_code == 200  # normal again


def rejections(endpoint: str) -> int:
    metrics = httpx.get(f"{endpoint.removesuffix('/v1')}/metrics", timeout=10).text
    counts = re.findall(r"^dynamo_frontend_model_rejection_total{.*} (\d+)$", metrics, re.MULTILINE)
    return sum(map(int, counts))
