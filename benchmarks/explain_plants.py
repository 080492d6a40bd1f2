"""The delays that explain_requests.py injects, and the evidence that each took effect.

The evidence is what the client measures and what the workers' metrics count; spans are not read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

import httpx

from penstock.drill.graph_process import GraphProcess
from penstock.local.state import StateDir

WORDS = ("river", "stone", "paper", "cloud", "garden", "window", "silver", "forest", "engine")
MODEL = "openai/gpt-oss-20b"
CROWD = 3500  # words of a prompt that is prefilled in about 0.2 s, and too long to be a peer
LENGTHY = 1500  # words of a prompt that is prefilled in 0.09 s
SHORT = 20  # words of a prompt with 2 KV blocks of 64 tokens
LONG = 3000  # tokens of a response (0.7 MB) that exceeds the buffers between frontend and client
PREEMPTIONS = "vllm:num_preemptions_total"
INFLIGHT = "dynamo_component_inflight_requests"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One request as the client saw it; times of time.monotonic() in seconds."""

    sent: float
    first: float
    end: float
    gap_s: float
    """Longest time between two reads of the response."""

    @property
    def ttft_s(self) -> float:
        return self.first - self.sent


class Pause(threading.Thread):
    """Stop the process of a worker for a time: it computes and transfers nothing."""

    def __init__(self, pid: int, after_s: float, for_s: float) -> None:
        super().__init__()
        self.pid, self.after_s, self.for_s = pid, after_s, for_s
        self.stopped = self.resumed = 0.0
        self.start()

    def run(self) -> None:
        time.sleep(self.after_s)
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = time.monotonic()
        time.sleep(self.for_s)
        self.resumed = time.monotonic()
        os.kill(self.pid, signal.SIGCONT)


class Client:
    """Sends requests to one running graph, over connections that are kept."""

    def __init__(self, process: GraphProcess, url: str, rng: random.Random) -> None:
        self.process, self.url, self.rng = process, url, rng
        self.http = httpx.Client(timeout=120)
        self.prefix = self.text(1500)
        self.usual_ttfts: list[float] = []

    def text(self, words: int) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(words))

    def body(self, prompt: str, tokens: int) -> dict[str, object]:
        message = {"role": "user", "content": prompt}
        return {"model": MODEL, "messages": [message], "max_tokens": tokens, "stream": True}

    def send(self, name: str, prompt: str, tokens: int = 30) -> Measured:
        headers = {"x-request-id": name}
        url = f"{self.url}/chat/completions"
        sent = time.monotonic()
        first, last, gap = 0.0, 0.0, 0.0
        body = self.body(prompt, tokens)
        with self.http.stream("POST", url, json=body, headers=headers) as response:
            for _ in response.iter_raw():
                now = time.monotonic()
                if last:
                    gap = max(gap, now - last)
                first, last = first or now, now
            response.raise_for_status()
        return Measured(sent=sent, first=first, end=last, gap_s=gap)

    def send_usual(self, name: str, words: int, tokens: int) -> None:
        prompt = self.text(words) if words else self.cached()
        self.usual_ttfts.append(self.send(name, prompt, tokens).ttft_s)

    def start(
        self, name: str, prompts: Sequence[str], tokens: int
    ) -> tuple[list[threading.Thread], list[Measured]]:
        """Send all prompts at once; the second list is complete when the threads have ended."""
        measured: list[Measured] = []

        def run(number: int, prompt: str) -> None:
            measured.append(self.send(f"{name}-other-{number}", prompt, tokens))

        threads = [threading.Thread(target=run, args=pair) for pair in enumerate(prompts)]
        for thread in threads:
            thread.start()
        return threads, measured

    def cached(self) -> str:
        """A prompt whose beginning is that of the others."""
        return f"{self.prefix} {self.text(20)}"

    def delay_s(self, measured: Measured) -> float:
        return measured.ttft_s - median(self.usual_ttfts)

    def pid(self, pool: str) -> int:
        state = StateDir(self.process.graph).read()
        assert state is not None
        return next(r.pid for r in state.replicas if r.name.startswith(f"{pool}."))

    def metric(self, name: str) -> float:
        """The sum of a metric of the decode worker."""
        state = StateDir(self.process.graph).read()
        assert state is not None
        port = next(r.system_port for r in state.replicas if r.name.startswith("decode."))
        lines = httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def queue(client: Client, name: str) -> bool:
    """Long prompts arrive first; at least two have no token when this request gets its own, or
    got theirs while it waited."""
    prompts = [client.text(CROWD) for _ in range(client.rng.randint(4, 5))]
    threads, others = client.start(name, prompts, 30)
    time.sleep(0.12)
    measured = client.send(name, client.cached())
    for thread in threads:
        thread.join()
    ahead = sum(o.sent < measured.sent and o.first > measured.sent + 0.02 for o in others)
    return ahead >= 2 and client.delay_s(measured) >= 0.1


def cold_prefix(client: Client, name: str) -> bool:
    return client.delay_s(client.send(name, client.text(1520))) >= 0.04


def slow_prefill(client: Client, name: str) -> bool:
    pause = Pause(client.pid("prefill"), 0.008, client.rng.uniform(0.15, 0.5))
    measured = client.send(name, client.cached())
    pause.join()
    return measured.first >= pause.resumed and client.delay_s(measured) >= 0.1


def slow_transfer(client: Client, name: str) -> bool:
    """Stop the sender or the receiver after prefill (0.09 s), during the transfer (0.22 s)."""
    pool = client.rng.choice(("prefill", "decode"))
    pause = Pause(client.pid(pool), 0.18, client.rng.uniform(0.3, 1.2))
    measured = client.send(name, client.text(LENGTHY))
    pause.join()
    return measured.first >= pause.resumed and client.delay_s(measured) >= 0.2


def preemption(client: Client, name: str) -> bool:
    """All prompts fit into the decode worker's 16 blocks, and their outputs do not: the worker
    preempts the request that came last. Its client has the first token and then waits."""
    threads, _ = client.start(name, [client.text(SHORT) for _ in range(3)], 600)
    time.sleep(0.1)
    before = client.metric(PREEMPTIONS)
    measured = client.send(name, client.text(SHORT), 250)
    count = client.metric(PREEMPTIONS) - before
    for thread in threads:
        thread.join()
    return count >= 1 and measured.gap_s >= 0.3 and client.delay_s(measured) < 0.2


def slow_client(client: Client, name: str) -> bool:
    """Read nothing for a time, in which the worker generates all tokens."""
    parts = urlsplit(client.url)
    body = json.dumps(client.body(client.cached(), LONG)).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((parts.hostname, parts.port))
        head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            f"content-type: application/json\r\nx-request-id: {name}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        time.sleep(0.5)
        has_begun = client.metric(INFLIGHT) >= 1
        time.sleep(client.rng.uniform(5, 8))
        has_ended = client.metric(INFLIGHT) == 0
        while connection.recv(65536):
            pass
    return has_begun and has_ended
