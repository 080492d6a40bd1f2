"""Measures the cost of a shadow for requests of the primary: live, killed during a run, or hanging.

python benchmarks/shadow.py   Runs the real Envoy before two local graphs. Engines are mockers on
the same cores, so a live shadow takes CPU time too. Writes benchmarks/results/shadow.json.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from penstock.drill.graph_process import GraphProcess
from penstock.graph.edit import set_replicas
from penstock.local.ports import Ports
from report import write_result

ROOT = Path(__file__).parents[1]
GRAPH = ROOT / "dynamo_graphs" / "quickstart-simulated.yaml"
KEY = "a-key-for-measuring-only-0123456789"
ROUNDS, REQUESTS, CONCURRENCY, TOKENS = 9, 120, 4, 20
MODES = ("direct", "no_shadow", "shadow_20_percent", "shadow_hangs", "shadow_killed")

GATEWAY = """\
name: local
namespace: llm
gateway_class: eg
hostname: llm.example.com
tls: {secret: tls}
api_keys: {secret: keys}
"""


@dataclass(frozen=True, kw_only=True)
class Response:
    status: int  # 0: no response
    seconds: float
    error: str = ""


class GatewayProcess:
    """`penstock gateway up` on a free port; a context manager that stops it."""

    def __init__(
        self, folder: Path, rest: str, backends: dict[str, str], shadow: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "gateway.log"
        self.keys = folder / "keys.env"
        self.keys.touch(mode=0o600)
        self.keys.write_text(f"tester={KEY}\n")
        self.port = Ports(first=random.randrange(20000, 32000)).free()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.file = folder / "gateway.yaml"
        self.file.write_text(GATEWAY + rest)
        self.argv = [sys.executable, "-m", "penstock.cli.main", "gateway", "up", str(self.file)]
        self.argv += ["--keys", str(self.keys), "--port", str(self.port)]
        for name, url in backends.items():
            self.argv += ["--backend", f"{name}={url}"]
        self.argv += ["--shadow", shadow] if shadow else []

    def __enter__(self) -> GatewayProcess:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(self.argv, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30
        while "ready: " not in self.log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise TimeoutError(f"no gateway:\n{self.log.read_text()}")
            time.sleep(0.05)
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> int:
        return self._process.wait(20)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self.code = self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


async def load(
    url: str, model: str, requests: int, concurrency: int, tokens: int, key: str = KEY
) -> list[Response]:
    """Non-streaming completions, in the order in which they ended."""
    responses: list[Response] = []
    numbers = iter(range(requests))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=30, trust_env=False, headers=headers) as client:

        async def sender() -> None:
            for number in numbers:
                responses.append(await _ask(client, url, body(model, number, tokens)))

        await asyncio.gather(*(sender() for _ in range(concurrency)))
    return responses


def body(model: str, number: int, tokens: int) -> dict[str, Any]:
    text = f"Question {number}: how much water flows?"
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }


async def _ask(client: httpx.AsyncClient, url: str, content: dict[str, Any]) -> Response:
    began = time.monotonic()
    try:
        response = await client.post(f"{url}/chat/completions", json=content)
    except httpx.HTTPError as error:
        return Response(status=0, seconds=time.monotonic() - began, error=repr(error))
    wrong = "" if response.status_code == 200 else response.text[:100]
    return Response(status=response.status_code, seconds=time.monotonic() - began, error=wrong)


def served(endpoint: str, counter: str = "requests_total") -> int:
    """Inference requests that a frontend completed, from its metrics; or another counter."""
    # verify=False: loading the TLS certificates takes 50 ms of CPU each time.
    with httpx.Client(trust_env=False, verify=False) as client:
        text = client.get(endpoint.removesuffix("/v1") + "/metrics").text
    found = re.findall(rf"(?m)^dynamo_frontend_{counter}\{{[^}}]*\}} ([0-9.e+]+)$", text)
    return int(sum(map(float, found)))


def processes(folder: Path) -> list[psutil.Process]:
    """All processes of the graph whose state is in ``folder``, `penstock up` included."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except (psutil.Error, OSError):
            continue
        homes = (environ.get("PENSTOCK_STATE", ""), environ.get("PENSTOCK_STATE_HOME", ""))
        if any(home.startswith(str(folder)) for home in homes):
            found.append(process)
    return found


def send(number: signal.Signals, folder: Path) -> None:
    for process in processes(folder):
        if process.pid != os.getpid():
            process.send_signal(number)


@contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """Connections are taken, nothing is read and nothing answered."""
    send(signal.SIGSTOP, folder)
    try:
        yield
    finally:
        send(signal.SIGCONT, folder)


def graph_in(folder: Path, port: int = 0, *arguments: str) -> GraphProcess:
    """The quickstart graph with one worker per pool, in its own folder. ``arguments``: of `up`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "quickstart.yaml"
    file.write_text(set_replicas(GRAPH.read_text(), {"prefill": 1}))
    environment = {"PENSTOCK_ENVIRONMENTS": str(folder / "none")}
    return GraphProcess(file, folder, ["--port", str(port), *arguments], environment)


class Bench:
    """Two graphs and two gateways: one without a shadow, one with 20 %."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.candidate_folder = folder / "candidate"
        self.candidate_port = Ports(first=random.randrange(20000, 32000)).free()
        self.primary = stack.enter_context(graph_in(folder / "primary"))
        stack.callback(send, signal.SIGKILL, self.candidate_folder)
        self.candidate = self._start_candidate()
        direct = self.primary.wait_ready(120)
        shadow = self.candidate.wait_ready(120)
        self.model = str(self.primary.state()["models"][0])
        backends = "backends: [{release: stable, weight: 1}]\n"
        mirrored = backends + "shadow: {release: candidate, percent: 20}\n"
        none = stack.enter_context(GatewayProcess(folder / "none", backends, {"stable": direct}))
        some = GatewayProcess(folder / "some", mirrored, {"stable": direct}, shadow)
        self.direct, self.none, self.shadow = direct, none.url, shadow
        self.copied: list[int] = []
        self.some = stack.enter_context(some).url

    def _start_candidate(self) -> GraphProcess:
        graph = graph_in(self.candidate_folder, self.candidate_port)
        graph.start()
        return graph

    def measure(self, mode: str) -> list[Response]:
        """Run one segment of a round."""
        if mode == "direct":
            return self._load(self.direct)
        if mode == "no_shadow":
            return self._load(self.none)
        if mode == "shadow_hangs":
            with hanging(self.candidate_folder):
                return self._load(self.some)
        if mode == "shadow_killed":
            return self._killed()
        before = served(self.shadow)
        responses = self._load(self.some)
        time.sleep(0.5)  # the last copies end after the last responses
        self.copied.append(served(self.shadow) - before)
        return responses

    def _load(self, url: str, requests: int = REQUESTS) -> list[Response]:
        return asyncio.run(load(url, self.model, requests, CONCURRENCY, TOKENS))

    def _killed(self) -> list[Response]:
        """Kills the candidate after the first sixth of the run, then starts a new one."""

        async def run() -> list[Response]:
            segment = load(self.some, self.model, REQUESTS, CONCURRENCY, TOKENS)
            task = asyncio.create_task(segment)
            await asyncio.sleep(0.3)
            for victim in victims:
                victim.kill()
            return await task

        victims = processes(self.candidate_folder)  # collected first, as that takes CPU time
        responses = asyncio.run(run())
        self.candidate.stop()
        self.candidate = self._start_candidate()
        self.candidate.wait_ready(120)
        return responses


def summary(rounds: dict[str, list[list[Response]]]) -> dict[str, Any]:
    """Medians over the rounds of each round's p50 and p95, and ratios within a round."""

    def of(mode: str, pick: Callable[[list[float]], float]) -> list[float]:
        return [pick([a.seconds for a in responses]) for responses in rounds[mode]]

    def ratio(mode: str, base: str, pick: Callable[[list[float]], float]) -> float:
        pairs = zip(of(mode, pick), of(base, pick), strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    return {
        mode: {
            "requests": sum(map(len, rounds[mode])),
            "failed": sum(a.status != 200 for responses in rounds[mode] for a in responses),
            "p50_ms": round(statistics.median(of(mode, p50)) * 1000, 1),
            "p95_ms": round(statistics.median(of(mode, p95)) * 1000, 1),
            "p50_relative_to_no_shadow": ratio(mode, "no_shadow", p50),
            "p95_relative_to_no_shadow": ratio(mode, "no_shadow", p95),
            "p50_relative_to_live_shadow": ratio(mode, "shadow_20_percent", p50),
        }
        for mode in MODES
    }


def p50(seconds: Sequence[float]) -> float:
    return statistics.median(seconds)


def p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)]


def measure(folder: Path, count: int = ROUNDS) -> dict[str, Any]:
    rounds: dict[str, list[list[Response]]] = {mode: [] for mode in MODES}
    with ExitStack() as stack:
        bench = Bench(folder, stack)
        for mode in MODES[:3]:
            bench.measure(mode)  # warm
        bench.copied.clear()
        for number in range(count):
            # The kill is last in its round: the restart after it uses the cores.
            first = [*MODES[:-1]]
            first = first[number % len(first) :] + first[: number % len(first)]
            for mode in (*first, MODES[-1]):
                rounds[mode].append(bench.measure(mode))
        bench.candidate.stop()
    return {
        "engines": "dynamo.mocker 1.6.1: no tokens were computed",
        "envoy": envoy_version(),
        "rounds": count,
        "requests_per_segment": REQUESTS,
        "concurrency": CONCURRENCY,
        "output_tokens": TOKENS,
        "copied_to_the_live_shadow": f"{sum(bench.copied)} of {count * REQUESTS}",
        "modes": summary(rounds),
    }


def envoy_version() -> str:
    requirements = ROOT / "components" / "src" / "penstock" / "environments" / "envoy.txt"
    return requirements.read_text().splitlines()[-1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        result = measure(Path(name))
    write_result("shadow", "python benchmarks/shadow.py", result)
