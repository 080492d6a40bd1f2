"""Requests that Dynamo's frontend and mockers lose without penstock.

    python benchmarks/dynamo_losses.py [CASE…]

Each case starts `python -m dynamo.frontend` and `python -m dynamo.mocker` (of which penstock only
supplies a small model folder), sends short requests, causes one event, and counts the responses by
status before, during and after it, and in the last 5 s. Writes
benchmarks/results/dynamo_losses.json; a case that is named on the command line replaces its own
entry.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from penstock.local.ports import Ports
from penstock.tokenizer import FOLDER as TOKENIZER
from report import RESULTS, write_result

MODEL = "model"
AFTER_S = 30.0  # seconds of requests after an event
PORTS = Ports()


@dataclass
class Cluster:
    """Processes of Dynamo that share a discovery backend. ``statuses``: (time, status) of each
    request; 0 without a response."""

    folder: Path
    env: dict[str, str]
    port: int = field(default_factory=PORTS.free)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    statuses: list[tuple[float, int]] = field(default_factory=list)

    def start(self, name: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        own = {"DYN_NAMESPACE": "test", "DYN_NAMESPACE_PREFIX": "test"}
        process = subprocess.Popen(
            argv, env=os.environ | own | self.env | env, stdout=log, stderr=subprocess.STDOUT
        )
        self.processes[name] = process
        return process

    def frontend(self) -> subprocess.Popen[bytes]:
        argv = ("--http-host", "127.0.0.1", "--http-port", str(self.port))
        return self.start("frontend", sys.executable, "-m", "dynamo.frontend", *argv)

    def worker(self, name: str, **env: str) -> subprocess.Popen[bytes]:
        argv = ("--model-path", str(TOKENIZER), "--model-name", MODEL)
        return self.start(name, sys.executable, "-m", "dynamo.mocker", *argv, **env)

    def wait_until_served(self) -> None:
        deadline = time.monotonic() + 60
        while self.request() != 200:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no completion within 60 s; logs: {self.folder}")
            time.sleep(0.2)

    def request(self) -> int:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        try:
            return httpx.post(url, json=body, timeout=60, trust_env=False).status_code
        except httpx.HTTPError:
            return 0

    @contextmanager
    def requests(self) -> Iterator[None]:
        """Four clients, each of which waits 0.1 s between its requests."""
        ends = threading.Event()

        def send() -> None:
            while not ends.wait(0.1):
                began = time.monotonic()
                self.statuses.append((began, self.request()))

        clients = [threading.Thread(target=send) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            ends.set()
            for client in clients:
                client.join()


@contextmanager
def cluster(folder: Path, discovery: str = "file") -> Iterator[Cluster]:
    """A frontend without workers; all processes end with the context."""
    files = folder / "discovery"
    files.mkdir()
    env = {
        "DYN_DISCOVERY_BACKEND": discovery,
        "DYN_FILE_KV": str(files),
        "DYN_EVENT_PLANE": "zmq",
        "DYN_REQUEST_PLANE": "tcp",
        "HF_HUB_OFFLINE": "1",
    }
    made = Cluster(folder=folder, env=env)
    try:
        if discovery == "etcd":
            client, peer = (f"http://127.0.0.1:{PORTS.free()}" for _ in range(2))
            made.env["ETCD_ENDPOINTS"] = client
            urls = ("--listen-client-urls", client, "--advertise-client-urls", client)
            peers = ("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer)
            cluster_of_one = ("--initial-cluster", f"default={peer}")
            data = ("--data-dir", str(folder / "etcd"))
            made.start("etcd", "etcd", *data, *urls, *peers, *cluster_of_one)
        made.frontend()
        yield made
    finally:
        for process in made.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def suspended(folder: Path) -> dict[str, Any]:
    """All processes are suspended for 15 s, as when a laptop sleeps."""
    with cluster(folder) as made:
        made.worker("worker")
        made.wait_until_served()
        return _measure(made, lambda: _suspend(list(made.processes.values())))


def discovery_folder_removed(folder: Path) -> dict[str, Any]:
    """The folder of the file discovery is deleted."""
    with cluster(folder) as made:
        made.worker("worker")
        made.wait_until_served()
        return _measure(made, lambda: shutil.rmtree(folder / "discovery"))


def etcd_suspended(folder: Path) -> dict[str, Any]:
    """etcd is suspended for 30 s; the workers' leases last 10 s."""
    with cluster(folder, "etcd") as made:
        workers = [made.worker(f"worker-{n}") for n in range(2)]
        made.wait_until_served()
        found = _measure(made, lambda: _suspend([made.processes["etcd"]], 30))
        return found | {"workers_that_exited": sum(w.poll() is not None for w in workers)}


def new_generation(folder: Path) -> dict[str, Any]:
    """A worker of a new generation has registered, then the old one is stopped."""
    with cluster(folder) as made:
        old = made.worker("old", DYN_NAMESPACE_WORKER_SUFFIX="old")
        made.wait_until_served()

        def replace() -> None:
            made.worker("new", DYN_NAMESPACE_WORKER_SUFFIX="new")
            while not list((folder / "discovery").glob("*/mdc/test%2Dnew*")):
                time.sleep(0.01)  # its model card is the last record of a worker
            old.send_signal(signal.SIGTERM)

        return _measure(made, replace)


def worker_stopped(folder: Path) -> dict[str, Any]:
    """One of two workers is stopped with SIGSTOP and does not continue."""
    with cluster(folder) as made:
        workers = [made.worker(f"worker-{n}") for n in range(2)]
        made.wait_until_served()
        time.sleep(2)
        return _measure(made, lambda: workers[0].send_signal(signal.SIGSTOP))


def _suspend(processes: list[subprocess.Popen[bytes]], seconds: float = 15) -> None:
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    for process in processes:
        process.send_signal(signal.SIGCONT)


def _measure(made: Cluster, event: Callable[[], object]) -> dict[str, Any]:
    with made.requests():
        time.sleep(3)
        began = time.monotonic()
        event()
        ended = time.monotonic()
        time.sleep(AFTER_S)
        last = time.monotonic() - 5
    phases = {
        "before": [s for at, s in made.statuses if at < began],
        "during": [s for at, s in made.statuses if began <= at < ended],
        "after": [s for at, s in made.statuses if at >= ended],
        "in_the_last_5_s": [s for at, s in made.statuses if at >= last],
    }
    return {
        phase: {str(status): n for status, n in sorted(Counter(statuses).items())}
        for phase, statuses in phases.items()
    }


# Case → what penstock does about it.
CASES: dict[Callable[[Path], dict[str, Any]], str] = {
    suspended: "writes the records of workers that run again, and restarts frontends that do not "
    "see them; Envoy returns 503 with Retry-After",
    discovery_folder_removed: "the same as after a suspension",
    etcd_suspended: "replaces etcd after 4 s without a response, and restarts workers and "
    "frontends that exit; by default, discovery uses files and needs no server",
    new_generation: "keeps the old generation until GET /v1/models/{model}/ready of each frontend "
    "reports the new one as ready, and its decode workers until its prefill workers are gone",
    worker_stopped: "probes each process every second, and replaces it after 10 s without a "
    "response",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="count requests that fail without penstock")
    names = {case.__name__: case for case in CASES}
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    options = parser.parse_args()
    path = RESULTS / "dynamo_losses.json"
    found = json.loads(path.read_text("utf-8"))["cases"] if path.exists() else {}
    for name in options.cases or names:
        with tempfile.TemporaryDirectory() as folder:
            case = names[name]
            found[name] = {
                "event": (case.__doc__ or "").strip(),
                **case(Path(folder)),
                "penstock": CASES[case],
            }
    write_result("dynamo_losses", "python benchmarks/dynamo_losses.py", {"cases": found})


if __name__ == "__main__":
    main()
