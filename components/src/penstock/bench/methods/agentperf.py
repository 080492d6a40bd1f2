"""AgentPerf: runs Artificial Analysis' own tool, agentperf-local, against an endpoint.

The tool is a program of its own environment, and decides itself whether a run is comparable. It
reaches the endpoint through `context_adapter.py`, because Dynamo reports the context length in
another form than the tool reads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.bench.aiperf import Endpoint, load_generator
from penstock.bench.methods.context_adapter import ContextAdapter, loopback_environment
from penstock.bench.run import Progress
from penstock.environments import harmony
from penstock.environments.paths import require_python
from penstock.errors import BenchError, MissingToolError
from penstock.verify.preflight import KEY

NAME = "agentperf"
SIZE = "0.1 GB"  # of the installation
VERSION = "agentperf-local 0.3.4"  # of the environment
REPLAYS = ("agentperf-default-v1", "aa-mini-v1")  # the first one is the tool's default
COMPARABLE = REPLAYS[0]
FOLDER, LOG, RESULT = "agentperf", "agentperf.log", "agentperf-result.json"
POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class AgentPerf:
    """One run of agentperf-local."""

    url: str
    model: str
    replay: str
    result: Mapping[str, Any]
    """What the tool printed: success, context and files."""
    summary: Mapping[str, Any]
    """Its summary.json."""
    remarks: tuple[str, ...]
    """The tool's warnings and notes."""

    @property
    def has_full_context(self) -> bool:
        """The tool's verdict: the endpoint proved the context of the benchmark."""
        return self.result["context"]["reduced"] is False


def require_environment() -> Path:
    """The environment's Python; MissingToolError if it or the vocabulary is not installed."""
    python = require_python(NAME, "agentperf-local, which sends the requests, is missing", SIZE)
    if harmony.tiktoken_cache() is None:
        fix = f"Run `penstock tools env install {harmony.NAME}`."
        message = "o200k_base.tiktoken, with which agentperf-local counts tokens, is missing"
        raise MissingToolError(message, fix=fix)
    return python


def agentperf(
    endpoint: Endpoint,
    replay: str,
    folder: Path,
    progress: Progress,
    *,
    context: int | None = None,
    timeout_s: float | None = None,
) -> AgentPerf:
    """Run the tool, and keep its files in ``folder``, which exists.

    ``context``: of the graph, in tokens; None if only the endpoint knows it. ``timeout_s``: of one
    request; None: the tool's default. BenchError if the tool fails before its result.
    """
    python = require_environment()
    progress(f"running {VERSION}, {replay}", 0, 0)
    with ContextAdapter(url=endpoint.url, configured=context).running() as url:
        command = command_of(python, url, endpoint.model, replay, folder / FOLDER, timeout_s)
        _run(command, folder)
    return _read(endpoint, replay, folder)


def command_of(
    python: Path, url: str, model: str, replay: str, output: Path, timeout_s: float | None
) -> list[str]:
    """``url``: of the adapter. The API key is not in the list of processes."""
    return [
        *(str(python.with_name("agentperf-local")), "run"),
        *("--base-url", f"{url}/v1", "--model", model, "--replay", replay),
        *("--output-dir", str(output)),
        *(("--api-key-env", KEY) if os.environ.get(KEY) else ()),
        *(("--timeout-seconds", f"{timeout_s:g}") if timeout_s else ()),
    ]


def _run(command: list[str], folder: Path) -> None:
    environ = loopback_environment() | {"TIKTOKEN_CACHE_DIR": str(harmony.tiktoken_cache())}
    with (
        (folder / RESULT).open("wb") as output,
        (folder / LOG).open("wb") as log,
        load_generator(command, environ, folder, output, log) as process,
    ):
        while process.poll() is None:
            time.sleep(POLL_S)


def _read(endpoint: Endpoint, replay: str, folder: Path) -> AgentPerf:
    remarks = (folder / LOG).read_text(errors="replace").splitlines()
    try:
        result = json.loads((folder / RESULT).read_text())
        summary = json.loads(Path(result["artifacts"]["summary"]).read_text())
    except (OSError, ValueError, KeyError):
        cause = remarks[-1].removeprefix("error: ") if remarks else "it printed no result"
        fix = f"Read {LOG} in the folder that --out names."
        message = f"{VERSION} failed: {cause[:500]}"
        raise BenchError(message, place=endpoint.url, fix=fix) from None
    return AgentPerf(
        url=endpoint.url,
        model=endpoint.model,
        replay=replay,
        result=result,
        summary=summary,
        remarks=tuple(remarks),
    )


def require_success(result: AgentPerf) -> None:
    """After the figures were printed. BenchError if a turn failed."""
    if result.result["success"]:
        return
    totals = result.summary["totals"]
    message = f"{totals['failed_turns']} of {totals['turns']} turns failed"
    if causes := [line for line in result.remarks if "First error:" in line]:
        message += f": {causes[0].partition('First error:')[2].strip()[:500]}"
    fix = f"Read {FOLDER}/failures.json in the folder that --out names."
    raise BenchError(message, place=result.url, fix=fix)
