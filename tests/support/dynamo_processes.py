"""Processes of Dynamo without `penstock up`: a frontend and workers of a test, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from penstock.local.deployment import Infrastructure, Program
from penstock.local.launch import RunContext, environment
from penstock.local.ports import Ports
from penstock.local.process import child_environment
from penstock.local.services import Services
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role
from tests.support.waiting import wait_for


@contextmanager
def dynamo_processes(
    folder: Path,
    namespace: str,
    workers: Mapping[str, Sequence[str]],
    ports: Ports,
    *,
    frontend: Sequence[str] = (),
    variables: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Yields the URL once a model is served.

    ``workers``: name → arguments of Python; ``frontend``: more flags; ``variables``: of each
    process. The log of a process is `NAME.log` in ``folder``.
    """
    state = StateDir(folder / "graph.yaml", folder)
    state.prepare()
    services = Services(programs=(), infrastructure=Infrastructure())
    context = RunContext(state=state, namespace=namespace, services=services)
    port = ports.free()
    serve = ("-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port))
    children = []
    for name, arguments in {"frontend": (*serve, *frontend), **workers}.items():
        program = Program(
            name=name, component=name, role=Role.WORKER, replicas=1, argv=(),
            env=dict(variables.get(name, {})), grace_s=5,
        )  # fmt: skip
        env = child_environment(environment(program, {}, {}, context, ports.free()))
        with (folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        children.append(child)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        _wait_for_model(url)
        yield url
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)


def _wait_for_model(url: str) -> None:
    def has_model() -> bool:
        try:
            response = httpx.get(f"{url}/models", trust_env=False, verify=False)
            return bool(response.json()["data"])
        except (httpx.HTTPError, ValueError):
            return False

    wait_for(has_model, f"a model at {url}", look_s=0.1)
