"""What eight hostile clients cost the other clients of a local graph.

    python benchmarks/attacks.py [ATTACK…]

Each attack sends requests from ATTACKERS clients, one at a time each, while ORDINARY clients send
short requests. Compared is the same graph with ordinary clients in place of the attackers, in turns
of SLICE_S seconds within one run, so that a noisy machine changes both alike. Bounds: the slices,
one graph at a time, and MOST_RSS_MIB, above which the run ends the graph.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from graphs import copy_graph
from penstock.drill.graph_process import GraphProcess
from penstock.simulate.window import percentile
from report import RESULTS, write_result

START_S = 240  # vLLM on two cores
ATTACKERS = ORDINARY = 8
SLICE_S, SLICES = 8.0, 3
MOST_RSS_MIB = 6000
STATE = "PENSTOCK_ATTACKED_STATE"  # variable of the attackers' process
CHAT = "/v1/chat/completions"
Send = Callable[[httpx.AsyncClient, str], Any]


def _posts(fields: Mapping[str, Any], **headers: str) -> Send:
    """Posts a chat completion; its body is encoded once, so that the client costs little."""
    short = [{"role": "user", "content": "What is the capital of Japan?"}]
    bodies: dict[str, bytes] = {}
    sent = {"content-type": "application/json", **headers}

    async def send(client: httpx.AsyncClient, model: str) -> int:
        if model not in bodies:
            body = {"model": model, "messages": short, "max_tokens": 8, **fields}
            bodies[model] = json.dumps(body).encode()
        return (await client.post(CHAT, content=bodies[model], headers=sent)).status_code

    return send


def _schema(**schema: Any) -> dict[str, Any]:
    made = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return {"response_format": made}


def _messages(content: str, count: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}] * count}


async def _busy_threshold(client: httpx.AsyncClient, model: str) -> int:
    body = {"model": model, "active_decode_blocks_threshold": 0.0}
    return (await client.post("/busy_threshold", json=body)).status_code


async def _half_a_request(client: httpx.AsyncClient, model: str) -> int:
    """Headers that never end, as long as the endpoint waits."""
    url = client.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
    await asyncio.sleep(1)
    writer.close()
    return 0


async def _delete_the_state(client: httpx.AsyncClient, model: str) -> int:
    """Once in a slice: the first attacker deletes the state folder of the running graph."""
    folder = Path(os.environ[STATE])
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.rename(folder.with_suffix(".deleted")), ignore_errors=True)
    await asyncio.sleep(SLICE_S)
    return 0


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One kind of hostile request. ``item``: of the issue that found it."""

    item: str
    send: Send
    graph: str = "quickstart-simulated"
    settings: tuple[str, ...] = ("model.context_length=131072",)
    has_gateway: bool = False


def _attack(item: str, send: Send, **fields: Any) -> Attack:
    return Attack(item=item, send=send, **fields)


LLAMACPP = {"graph": "quickstart", "settings": ()}
VLLM = {"graph": "cpu-aggregated", "settings": ()}
GATEWAY = {"has_gateway": True, "settings": ("gateway.max_messages=1024",)}
KEY = "a-key-of-ordinary-clients"
LONG_ARRAY = _schema(type="array", items={"type": "boolean"}, maxItems=10**9)
PRIORITY = {"x-dynamo-request-priority": "1000", "x-dynamo-request-strict-priority": "1000"}
REBOUND = {"Host": "evil.example"}
ATTACKS: Mapping[str, Attack] = {
    "long-array": _attack("B1", _posts(LONG_ARRAY), **LLAMACPP),
    "long-array-vllm": _attack("B1", _posts(LONG_ARRAY), **VLLM),
    "long-prompt": _attack("B2", _posts(_messages("hello world " * 160_000, 1))),
    "many-messages": _attack("B2", _posts(_messages("", 16_000))),
    "many-messages-gateway": _attack("B2", _posts(_messages("", 16_000)), **GATEWAY),
    "half-a-request": _attack("B4", _half_a_request),
    "wrong-key": _attack("B4", _posts({}, authorization="Bearer wrong"), **GATEWAY),
    "rebound-host": _attack("C2", _posts({}, **REBOUND)),
    "busy-threshold": _attack("C2", _busy_threshold),
    "delete-state": _attack("C4", _delete_the_state),
    "priority": _attack("C3", _posts({}, **PRIORITY), **GATEWAY),
}


@dataclass
class Slice:
    """What the ordinary clients saw in one slice."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)


async def _client(url: str, model: str, send: Send, until: float, seen: Slice) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    options: dict[str, Any] = {"headers": headers, "timeout": 60, "trust_env": False}
    async with httpx.AsyncClient(base_url=url, **options) as client:
        while (began := time.monotonic()) < until:
            try:
                status = str(await send(client, model))
            except httpx.HTTPError as error:
                status = type(error).__name__
            seen.seconds.append(time.monotonic() - began)
            seen.statuses[status] += 1


async def _slice(url: str, model: str, other: str, folder: Path) -> tuple[Slice, Slice]:
    """What the ordinary clients saw, and the other ones, whose attack is ``other`` ("": none); the
    latter run in a process of their own."""
    argv = [sys.executable, __file__, "--as-clients", url, model, other]
    env = {**os.environ, STATE: str(folder)}
    child = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, env=env)
    assert child.stdout is not None
    await child.stdout.readline()  # it has imported its modules
    ordinary, _ = await asyncio.gather(_clients(url, model, _posts({}), ORDINARY), child.wait())
    statuses = json.loads(await child.stdout.read())
    return ordinary, Slice(statuses=Counter(statuses))


async def _clients(url: str, model: str, send: Send, count: int) -> Slice:
    seen, until = Slice(), time.monotonic() + SLICE_S
    await asyncio.gather(*(_client(url, model, send, until, seen) for _ in range(count)))
    return seen


def as_clients(url: str, model: str, attack: str) -> None:
    """The child process of `_slice`."""
    print(flush=True)
    send = ATTACKS[attack].send if attack else _posts({})
    seen = asyncio.run(_clients(url, model, send, ATTACKERS))
    print(json.dumps(seen.statuses))


def _memory_mib(state: dict[str, Any]) -> dict[str, int]:
    found = {}
    for replica in state.get("replicas", ()):  # none while the state folder is deleted
        try:
            info = psutil.Process(replica["pid"]).memory_info()
        except psutil.Error:
            continue
        found[replica["name"]] = info.rss >> 20
    return found


async def _watch(graph: GraphProcess, most: dict[str, int]) -> None:
    """The highest memory of each process; ends the graph before the machine runs out."""
    while True:
        for name, mib in _memory_mib(graph.state()).items():
            most[name] = max(most.get(name, 0), mib)
        if sum(most.values()) > MOST_RSS_MIB:
            graph.stop()
            raise MemoryError(f"the graph used {most}")
        await asyncio.sleep(0.2)


async def _measure(graph: GraphProcess, name: str) -> dict[str, Any]:
    attack, state = ATTACKS[name], graph.state()
    url, model = (state["gateway"] or {}).get("url", state["endpoint"]), state["models"][0]
    url = url.removesuffix("/v1")
    folder = Path(state["discovery"]["folder"]).parents[1]
    most: dict[str, int] = {}
    watch = asyncio.create_task(_watch(graph, most))
    attacked, quiet, sent = Slice(), Slice(), Slice()
    for _ in range(SLICES):
        for other, total in (("", quiet), (name, attacked)):
            found, others = await _slice(url, model, other, folder)
            total.seconds += found.seconds
            total.statuses += found.statuses
            if total is attacked:
                sent.statuses += others.statuses
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch  # raises its error
    p99 = {name: percentile(s.seconds, 0.99) for name, s in (("a", attacked), ("q", quiet))}
    restarts = {r["program"]: r["restarts"] for r in graph.state()["replicas"] if r["restarts"]}
    return {
        "item": attack.item,
        "graph": attack.graph,
        "attackers_got": dict(sent.statuses.most_common(4)),
        "others_got": dict(attacked.statuses),
        "p99_ratio": round(p99["a"] / p99["q"], 2),
        "p99_attacked_s": round(p99["a"], 3),
        "p99_ordinary_s": round(p99["q"], 3),
        "restarts": restarts,
        "most_memory_mib": dict(sorted(most.items())),
    }


def measure(name: str, folder: Path) -> dict[str, Any]:
    attack = ATTACKS[name]
    copy = copy_graph(attack.graph, folder)
    arguments = ["--port", "0"]
    if attack.has_gateway:
        keys = folder / "keys.env"
        keys.touch(mode=0o600)
        keys.write_text(f"ordinary={KEY}\n")
        arguments += ["--gateway", str(keys)]
    for setting in attack.settings:
        arguments += ["--set", setting]
    with GraphProcess(copy, folder, arguments) as graph:
        graph.wait_ready(START_S)
        found = asyncio.run(_measure(graph, name))
        graph.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what hostile clients cost the others")
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(ATTACKS)} (default: all)")
    file = RESULTS / "attacks.json"
    results = json.loads(file.read_text())["attacks"] if file.exists() else {}
    for name in parser.parse_args().attacks or ATTACKS:
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, Path(folder))
        print(json.dumps(results[name], indent=1), flush=True)
        figures = {"attackers": ATTACKERS, "ordinary_clients": ORDINARY, "attacks": results}
        write_result("attacks", "python benchmarks/attacks.py", figures, show=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-clients"]:
        as_clients(*sys.argv[2:])
    else:
        main()
