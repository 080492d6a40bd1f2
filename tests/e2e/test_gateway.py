"""Envoy with the generated configuration, in front of two local graphs.

The counts of requests are the frontends' own metrics. The tests share two graphs; the last test
kills the candidate. For the median latency with a killed shadow see benchmarks/shadow.py.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from penstock.drill.graph_process import GraphProcess
from shadow import (
    GATEWAY,
    KEY,
    GatewayProcess,
    Response,
    body,
    graph_in,
    hanging,
    load,
    send,
    served,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.needs("envoy")

ONE = "backends: [{release: stable, weight: 100}]\n"
FIFTH = ONE + "shadow: {release: candidate, percent: 20}\n"
ALL = ONE + "shadow: {release: candidate, percent: 100}\n"
CANARY = "backends: [{{release: stable, weight: {}}}, {{release: candidate, weight: {}}}]\n"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
STARTED = "requests_started_total"
JSON = AUTHORIZED | {"Content-Type": "application/json"}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two graphs: ``stable`` serves clients, ``candidate`` is the canary or the shadow."""

    stable: str
    candidate: str
    model: str
    folder: Path  # of the candidate

    @contextmanager
    def behind(self, rest: str, folder: Path) -> Iterator[GatewayProcess]:
        shadow = self.candidate if "shadow:" in rest else None
        backends = {"stable": self.stable}
        backends |= {"candidate": self.candidate} if "release: candidate, weight" in rest else {}
        with GatewayProcess(folder, rest, backends, shadow) as gateway:
            yield gateway

    def counts(self) -> tuple[int, int]:
        return served(self.stable), served(self.candidate)

    def ask_one(self, gateway: GatewayProcess, tokens: int) -> Response:
        (response,) = asyncio.run(load(gateway.url, self.model, 1, 1, tokens))
        return response

    def ask(self, gateway: GatewayProcess, requests: int, concurrency: int = 8) -> list[Response]:
        return asyncio.run(load(gateway.url, self.model, requests, concurrency, 4))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("gateway")
    # A context for which requests of 8 MB are accepted; no check, as the model supports less.
    long = ("--set", "model.context_length=524288", "--skip-check")
    stable, candidate = (graph_in(folder / n, 0, *long) for n in ("stable", "candidate"))
    try:
        stable.start()
        candidate.start()
        yield Pair(
            stable=stable.wait_ready(120),
            candidate=candidate.wait_ready(120),
            model=str(stable.state()["models"][0]),
            folder=folder / "candidate",
        )
    finally:
        end(stable, candidate)
        send(signal.SIGKILL, folder)  # what a killed `penstock up` left behind


def end(*graphs: GraphProcess) -> None:
    for graph in graphs:
        graph.stop()


def copied(pair: Pair, before: tuple[int, int], at_least: int) -> tuple[int, int]:
    """Requests that each served since ``before``; waits for copies, which end after responses."""
    deadline = time.monotonic() + 30
    while served(pair.candidate) - before[1] < at_least and time.monotonic() < deadline:
        time.sleep(0.05)
    counts, (stable, candidate) = None, pair.counts()
    while counts != (stable, candidate):  # until no more copies arrive
        time.sleep(0.3)
        counts, (stable, candidate) = (stable, candidate), pair.counts()
    return stable - before[0], candidate - before[1]


def failed(answers: list[Response]) -> list[Response]:
    return [a for a in answers if a.status != 200]


def test_requests_without_a_valid_key_or_over_the_limit_reach_no_frontend(
    pair: Pair, tmp_path: Path
) -> None:
    before = pair.counts()
    with pair.behind(ALL + "rate_limit: {requests: 5, unit: hour}\n", tmp_path) as gateway:
        post = f"{gateway.url}/chat/completions"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {KEY}x"}):
            content = body(pair.model, 0, 4)
            assert httpx.post(post, json=content, headers=headers).status_code == 401
        statuses = [a.status for a in pair.ask(gateway, 12, concurrency=1)]
    assert statuses == [200] * 5 + [429] * 7
    assert copied(pair, before, 5) == (5, 5)
    assert KEY not in gateway.log.read_text()


def test_the_primary_serves_everything_while_a_fifth_is_mirrored(
    pair: Pair, tmp_path: Path
) -> None:
    before = pair.counts()
    with pair.behind(FIFTH, tmp_path) as gateway:
        assert failed(pair.ask(gateway, 250)) == []
    stable, candidate = copied(pair, before, 25)
    assert stable == 250
    assert 25 <= candidate <= 75  # 50 ± 4 standard deviations


@pytest.mark.parametrize(("signals", "is_of_envoy"), [(1, False), (1, True), (2, False)])
def test_a_signal_ends_the_gateway_after_its_open_requests_and_a_second_one_at_once(
    pair: Pair, tmp_path: Path, signals: int, is_of_envoy: bool
) -> None:
    content = body(pair.model, 0, 400) | {"stream": True}
    last = ""
    with pair.behind(ONE, tmp_path) as gateway, httpx.Client(headers=AUTHORIZED) as client:
        url = f"{gateway.url}/chat/completions"
        with client.stream("POST", url, json=content, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            (envoy,) = psutil.Process(gateway.pid).children()
            os.kill(envoy.pid if is_of_envoy else gateway.pid, signal.SIGTERM)
            wait_for(lambda: refuses(gateway.url), "the gateway accepts no connection")
            if signals == 2:
                os.kill(gateway.pid, signal.SIGTERM)
            with suppress(httpx.RemoteProtocolError):
                last = [line for line in lines if line.startswith("data:")][-1]
        assert gateway.wait() == 0
    assert (last == "data: [DONE]") is (signals == 1)


def refuses(url: str) -> bool:
    try:
        httpx.get(f"{url}/models", headers=AUTHORIZED)
    except httpx.ConnectError:
        return True
    return False


def test_a_stream_is_not_buffered(pair: Pair, tmp_path: Path) -> None:
    before = pair.counts()
    content = body(pair.model, 0, 400) | {"stream": True}
    with pair.behind(ALL, tmp_path) as gateway, httpx.Client(headers=AUTHORIZED) as client:
        client.get(f"{gateway.url}/models").raise_for_status()  # connects
        begun, times, last = time.monotonic(), [], ""
        url = f"{gateway.url}/chat/completions"
        with client.stream("POST", url, json=content, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    times.append(time.monotonic())
                    last = line
    assert last == "data: [DONE]"
    assert len(times) >= 400
    gaps = [b - a for a, b in itertools.pairwise(times)]
    # Spread over time, not all at the end; on a busy machine some arrive together.
    assert sum(gap > 0.0005 for gap in gaps) >= 5
    assert times[-1] - times[0] > (times[-1] - begun) / 4
    copied(pair, before, 1)  # or the next test counts the copy


@pytest.mark.parametrize(("stable", "candidate"), [(0, 100), (50, 50), (100, 0)])
def test_a_canary_gets_its_weight(pair: Pair, tmp_path: Path, stable: int, candidate: int) -> None:
    before = pair.counts()
    with pair.behind(CANARY.format(stable, candidate), tmp_path) as gateway:
        assert failed(pair.ask(gateway, 100)) == []
    got = copied(pair, before, 0)
    assert sum(got) == 100
    expected = candidate
    spread = 20 if candidate == 50 else 0  # 4 standard deviations
    assert expected - spread <= got[1] <= expected + spread


def test_an_edit_of_the_weights_moves_new_requests_and_ends_no_stream(
    pair: Pair, tmp_path: Path
) -> None:
    with pair.behind(CANARY.format(100, 0), tmp_path) as gateway, ThreadPoolExecutor(1) as threads:

        def apply(rest: str, printed: str) -> tuple[int, int]:
            gateway.file.write_text(GATEWAY + rest)
            wait_for(lambda: printed in gateway.log.read_text(), printed)
            return pair.counts()

        began = served(pair.stable, STARTED)
        open_stream = threads.submit(pair.ask_one, gateway, 800)
        wait_for(lambda: served(pair.stable, STARTED) > began, "a stream")
        apply(CANARY.format(0, 0), "all weights are 0")
        shadowed = apply(
            CANARY.format(100, 0) + "shadow: {release: candidate, percent: 100}\n",
            "applied: stable 100%, candidate 0%, shadow candidate 100%",
        )
        assert failed(pair.ask(gateway, 10)) == []
        assert copied(pair, shadowed, 10)[1] == 10
        moved = apply(CANARY.format(0, 100), "applied: stable 0%, candidate 100%\n")
        assert failed(pair.ask(gateway, 20)) == []
        assert open_stream.result(60).status == 200
        assert copied(pair, moved, 20) == (1, 20)
        apply(
            CANARY.format(1, 1) + "max_messages: 7\n",
            "50%; other changes",
        )


def test_a_hanging_shadow_fails_no_request(pair: Pair, tmp_path: Path) -> None:
    with pair.behind(ALL + "max_request_kib: 16384\n", tmp_path) as gateway:
        began = time.monotonic()
        assert failed(pair.ask(gateway, 20)) == []
        usual = time.monotonic() - began
        with hanging(pair.folder):
            began = time.monotonic()
            assert failed(pair.ask(gateway, 100)) == []
            # Larger than the sockets to the shadow hold; a mirror without a buffer would stop here.
            large = json.dumps(body(pair.model, 0, 4) | {"user": "x" * 8_000_000})
            answer = httpx.post(
                f"{gateway.url}/chat/completions", content=large, headers=JSON, timeout=60
            )
            assert answer.status_code == 200, answer.text[:200]
            # Five times as many requests; five times that for the large one and a busy machine.
            assert time.monotonic() - began < 25 * usual


@pytest.mark.destroys_graph
def test_a_shadow_killed_during_the_run_fails_no_request(pair: Pair, tmp_path: Path) -> None:
    """Runs last: the candidate is not restarted."""
    before = served(pair.stable)

    async def run(gateway: GatewayProcess, copied_before: int) -> tuple[list[Response], int]:
        task = asyncio.create_task(load(gateway.url, pair.model, 200, 8, 4))
        while (copies := await asyncio.to_thread(served, pair.candidate)) < copied_before + 20:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(send, signal.SIGKILL, pair.folder)
        assert not task.done()
        return await task, copies

    with pair.behind(ALL, tmp_path) as gateway:
        copied_before = served(pair.candidate)
        answers, copies = asyncio.run(run(gateway, copied_before))
        assert copies > copied_before, "the shadow served copies when it was killed"
        assert failed(answers) == []
    assert served(pair.stable) - before == 200
    with pytest.raises(httpx.ConnectError):
        served(pair.candidate)
