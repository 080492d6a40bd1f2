"""A real frontend of Dynamo with a request trace, and a mocker, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from penstock.local.deployment import Infrastructure, Program
from penstock.local.launch import RunContext, environment
from penstock.local.ports import Ports
from penstock.local.process import child_environment
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role
from penstock.tokenizer import FOLDER

MODEL = "traced"


@contextmanager
def traced_frontend(folder: Path, variables: Mapping[str, str], ports: Ports) -> Iterator[str]:
    """Yields the URL. ``variables``: of the frontend, such as DYN_REQUEST_TRACE_SINKS."""
    state = StateDir(folder / "graph.yaml", folder)
    state.prepare()
    context = RunContext(state=state, namespace=MODEL, infrastructure=Infrastructure())
    port = ports.free()
    commands = {
        "frontend": ("-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port),
                     "--router-mode", "kv"),
        "worker": ("-m", "dynamo.mocker", "--model-path", str(FOLDER), "--model-name", MODEL,
                   "--block-size", "32", "--num-gpu-blocks-override", "4096"),
    }  # fmt: skip
    children = []
    for name, arguments in commands.items():
        extra = dict(variables) | {"DYN_REQUEST_TRACE": "1"} if name == "frontend" else {}
        program = Program(
            name=name, component=name, role=Role.WORKER, replicas=1, argv=(), env=extra, grace_s=5
        )
        env = child_environment(environment(program, {}, {}, context, ports.free()))
        with (folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        children.append(child)
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)


def _wait(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, trust_env=False).json()["data"]:
                return
        except (httpx.HTTPError, ValueError):
            pass
        time.sleep(0.2)
    raise TimeoutError("the model did not appear")
