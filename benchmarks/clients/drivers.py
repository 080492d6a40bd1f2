"""The five clients: where each is installed, and a running driver of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.environments import environments_root
from penstock.environments.post_install import CLIENTS as ENVIRONMENT
from penstock.environments.post_install import NODE_FOLDER

BENCHMARKS = Path(__file__).parents[1]
NODE_ENTRY = f"{NODE_FOLDER}/node_modules/openai/index.mjs"
CLIENTS: Mapping[str, str] = {
    "openai-python": "clients.openai_python",
    "openai-node": "clients/openai_node.mjs",
    "langchain-openai": "clients.langchain_client",
    "litellm": "clients.litellm_client",
    "llm": "clients.llm_cli",
}


@dataclass(frozen=True)
class Missing(Exception):  # noqa: N818  not an error: the caller skips the client
    """The client is not installed."""

    reason: str


def command(client: str, base_url: str, model: str) -> list[str]:
    environment = environments_root() / ENVIRONMENT
    driver = CLIENTS[client]
    if not (environment / "installed.txt").exists():
        raise Missing("clients is not installed: run `penstock tools env install clients`")
    if not driver.endswith(".mjs"):
        return [str(environment / "bin/python"), "-m", driver, base_url, model]
    node, entry = shutil.which("node"), environment / NODE_ENTRY
    if node is None or not entry.exists():
        raise Missing("Node.js or its package openai is not installed")
    return [node, str(BENCHMARKS / driver), base_url, model, str(entry)]


class Driver:
    """A driver process; a context manager that ends it."""

    def __init__(self, client: str, base_url: str, model: str) -> None:
        quiet = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it downloads the list of models
            "LANGSMITH_TRACING": "false",
            "NO_PROXY": "127.0.0.1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._process = subprocess.Popen(
            command(client, base_url, model),
            cwd=BENCHMARKS,
            env={**os.environ, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The client's result of one request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the driver ended with exit code {self._process.wait()}")
        return dict(json.loads(line))
