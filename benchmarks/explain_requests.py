"""Whether `penstock trace` names the stage that a planted cause made slow, on mockers.

    python benchmarks/explain_requests.py --seed 3 [--cases 10] [--causes queue ...] [--resume FILE]

Each cause has a graph of its own. Usual requests come first, then the planted ones. A result counts
if the stage is the planted one. `slow client` runs only if `--causes` names it: Dynamo's spans do
not show it on mockers (docs/tracing.md). Rules and plants were chosen with seeds 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from penstock.drill.graph_process import GraphProcess
from penstock.local.state import StateDir
from penstock.local.tracing import folder
from penstock.tracing.explain import UnknownRequestError, explain
from penstock.tracing.load import load
from penstock.tracing.requests import StageName, TracedRequest
from report import write_result

WORDS = ("river", "stone", "paper", "cloud", "garden", "window", "silver", "forest", "engine")
MODEL = "openai/gpt-oss-20b"
LENGTHY = 1500  # words of a prompt that is prefilled in 0.09 s
USUAL = 14  # requests before the planted ones
LONG = 4000  # tokens of a response that exceeds the buffers between worker and client
SHORT = 100  # words of a prompt with 3 KV blocks of 64 tokens
EXPORT_S = 3.0  # Dynamo exports spans every second
GRAPH = """\
model: {id: openai/gpt-oss-20b, context_length: 16384}
engine:
  kind: mocker
  config: {engine: {backend: BACKEND, speedup_ratio: 1.0, num_gpu_blocks: 4096}}
prefill: {replicas: 1}
decode: {replicas: 1, config: {engine: {DECODE}}}
"""


@dataclass(frozen=True)
class Result:
    """One planted cause and what was named."""

    cause: str
    case: int
    expected: str
    stage: str
    named_cause: str

    @property
    def is_right(self) -> bool:
        return self.stage == self.expected


class Client:
    """Sends requests to one running graph."""

    def __init__(self, process: GraphProcess, url: str, rng: random.Random) -> None:
        self.process, self.url, self.rng = process, url, rng
        self.prefix = self.text(1500)

    def text(self, words: int) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(words))

    def body(self, prompt: str, tokens: int) -> dict[str, object]:
        message = {"role": "user", "content": prompt}
        return {"model": MODEL, "messages": [message], "max_tokens": tokens, "stream": True}

    def send(self, name: str, prompt: str, tokens: int = 30) -> None:
        headers = {"x-request-id": name}
        body = self.body(prompt, tokens)
        url = f"{self.url}/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as response:
            for _ in response.iter_raw():
                pass
            response.raise_for_status()

    def burst(self, prompts: Sequence[tuple[str, str]], tokens: int) -> None:
        threads = []
        for name, prompt in prompts:
            threads.append(threading.Thread(target=self.send, args=(name, prompt, tokens)))
            threads[-1].start()
            time.sleep(0.004)
        for thread in threads:
            thread.join()

    def cached(self) -> str:
        """A prompt whose beginning is that of the others."""
        return f"{self.prefix} {self.text(20)}"

    def usual(self, words: int) -> str:
        return self.text(words) if words else self.cached()

    def pause(self, pool: str, after_s: float, for_s: float) -> threading.Thread:
        """Stop the pool's process for a time: it computes and transfers nothing."""
        pid = self.pid(pool)

        def run() -> None:
            time.sleep(after_s)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(for_s)
            os.kill(pid, signal.SIGCONT)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def pid(self, pool: str) -> int:
        state = StateDir(self.process.graph).read()
        assert state is not None
        return next(r.pid for r in state.replicas if r.name.startswith(f"{pool}."))


def queue(client: Client, name: str) -> None:
    count = client.rng.randint(5, 8)
    prompts = [(f"{name}-{i}", client.text(1500)) for i in range(count)]
    client.burst([*prompts, (name, client.cached())], 30)


def cold_prefix(client: Client, name: str) -> None:
    client.send(name, client.text(1520))


def slow_prefill(client: Client, name: str) -> None:
    pause = client.pause("prefill", 0.008, client.rng.uniform(0.15, 0.5))
    client.send(name, client.cached())
    pause.join()


def slow_transfer(client: Client, name: str) -> None:
    """Stop the sender or the receiver after prefill (0.09 s), during the transfer (0.22 s)."""
    pool = client.rng.choice(("prefill", "decode"))
    pause = client.pause(pool, 0.18, client.rng.uniform(0.3, 1.2))
    client.send(name, client.text(LENGTHY))
    pause.join()


def preemption(client: Client, name: str) -> None:
    """All prompts fit into the decode worker's blocks, and their outputs do not: the worker then
    preempts the request that came last."""
    count = client.rng.randint(3, 4)
    others = [(f"{name}-{i}", client.text(SHORT)) for i in range(count)]
    thread = threading.Thread(target=client.burst, args=(others, 400))
    thread.start()
    time.sleep(0.3)
    client.send(name, client.text(SHORT), 150)
    thread.join()


def slow_client(client: Client, name: str) -> None:
    """Read nothing for a time, with small buffers: most of the response stays in the frontend."""
    parts = urlsplit(client.url)
    body = json.dumps(client.body(client.cached(), LONG)).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        # Segments of a network; those of loopback (64 KB) give the frontend a buffer of megabytes.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        connection.connect((parts.hostname, parts.port))
        head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            f"content-type: application/json\r\nx-request-id: {name}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        time.sleep(client.rng.uniform(4, 6))
        while connection.recv(65536):
            pass


@dataclass(frozen=True)
class Planted:
    """A cause: how it is planted, and the stage that it makes slow."""

    plant: Callable[[Client, str], None]
    stage: StageName
    tokens: int = 30
    backend: str = "trtllm"
    decode: str = ""
    usual: int = USUAL
    prefill: str = ""
    words: int = 0
    """Words of a usual prompt; 0: the common prefix."""


TRANSFER = "kv_transfer_bandwidth: 0.04"
CAUSES = {
    "queue": Planted(queue, StageName.PREFILL),
    "cold prefix": Planted(cold_prefix, StageName.PREFILL),
    "slow prefill worker": Planted(slow_prefill, StageName.PREFILL),
    "slow KV transfer": Planted(
        slow_transfer,
        StageName.KV_TRANSFER,
        prefill=TRANSFER,
        decode=TRANSFER,
        words=LENGTHY,
    ),
    "decode preemption": Planted(
        preemption,
        StageName.DECODE,
        tokens=150,
        words=SHORT,
        backend="vllm",
        decode="num_gpu_blocks: 20",
    ),
    "slow client": Planted(
        slow_client,
        StageName.RESPONSE,
        tokens=LONG,
        usual=6,
        decode="decode_speedup_ratio: 10.0",
    ),
}


def graph_text(planted: Planted) -> str:
    text = GRAPH.replace("BACKEND", planted.backend).replace("DECODE", planted.decode)
    own = f"prefill: {{replicas: 1, config: {{engine: {{{planted.prefill}}}}}}}"
    return text.replace("prefill: {replicas: 1}", own)


def run_cause(cause: str, cases: int, seed: int, tmp: Path) -> list[Result]:
    """Start the graph, send usual and planted requests, and explain the planted ones."""
    planted = CAUSES[cause]
    graph = tmp / f"{cause.lower().replace(' ', '-')}.yaml"
    graph.write_text(graph_text(planted))
    env = {"PENSTOCK_ENVIRONMENTS": str(tmp / "none")}  # no Envoy: it would read for a slow client
    with GraphProcess(graph, tmp, ["--port", "0", "--trace"], env) as process:
        process.wait_ready(120)
        os.environ["PENSTOCK_STATE_HOME"] = str(tmp / "state")
        state = StateDir(graph).read()
        assert state is not None
        client = Client(process, state.endpoint, random.Random(f"{seed} {cause}"))
        for number in range(planted.usual + 1):
            client.send(f"usual-{number}", client.usual(planted.words), planted.tokens)
        for case in range(cases):
            planted.plant(client, f"planted-{case}")
            for number in range(2):
                client.send(f"between-{case}-{number}", client.usual(planted.words), planted.tokens)
        time.sleep(EXPORT_S)
        loaded = load(folder(StateDir(graph)))
    return [named(cause, case, loaded.requests) for case in range(cases)]


def named(cause: str, case: int, requests: Sequence[TracedRequest]) -> Result:
    try:
        found = explain(requests, f"planted-{case}")
    except UnknownRequestError:
        return Result(cause, case, CAUSES[cause].stage, "not recorded", "")
    stage = found.slow.stage.name if found.slow else "none"
    return Result(cause, case, CAUSES[cause].stage, stage, found.cause)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--causes", nargs="*", choices=list(CAUSES), default=list(CAUSES)[:5])
    parser.add_argument("--resume", type=Path, help="file that keeps the results of each cause")
    args = parser.parse_args()
    results: list[Result] = []
    if args.resume and args.resume.exists():
        results = [Result(**row) for row in json.loads(args.resume.read_text())]
    for cause in args.causes:
        if any(result.cause == cause for result in results):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            results += run_cause(cause, args.cases, args.seed, Path(tmp))
        for result in results:
            if result.cause == cause:
                print(result, file=sys.stderr)
        if args.resume:
            args.resume.write_text(json.dumps([asdict(result) for result in results], indent=1))
    by_cause = {
        cause: {
            "planted": sum(r.cause == cause for r in results),
            "right_stage": sum(r.cause == cause and r.is_right for r in results),
        }
        for cause in args.causes
    }
    figures = {
        "seed": args.seed,
        "planted": len(results),
        "right_stage": sum(result.is_right for result in results),
        "by_cause": by_cause,
        "wrong": [asdict(result) for result in results if not result.is_right],
    }
    command = f"python benchmarks/explain_requests.py --seed {args.seed} --cases {args.cases}"
    write_result("explain_requests", command, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
