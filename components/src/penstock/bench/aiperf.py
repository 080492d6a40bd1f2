"""Runs AIPerf, which sends the requests and records when each token arrives.

AIPerf is a program of its own environment. Its tokenizer is not used, because the server counts
tokens, but AIPerf loads one; it gets the packaged one, in the layout of Hugging Face's cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from penstock.environments.paths import environments_root, is_installed
from penstock.errors import BenchError, MissingToolError, Problem
from penstock.local.process import end_with_parent
from penstock.tokenizer import FOLDER as TOKENIZER
from penstock.verify.target import LOOPBACK

NAME = "aiperf"
CHILD = Path(__file__).parent / "aiperf_child.py"
VERSION = "AIPerf 0.13.0"  # of the environment
TOKENIZER_NAME, REVISION = "local/packaged", "0" * 40
LOG, RECORDS = "aiperf.log", "profile_export.jsonl"
POLL_S = 0.2
END_S = 15.0  # in which AIPerf ends its processes
MOST_WORKERS = 4  # processes that send requests; one sends hundreds of requests per second
LAST_LINES = 3
TITLE, FRAME = "Error Running AIPerf", "╭─╮│╰╯ "  # of a box in its log


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of AIPerf against one endpoint."""

    url: str
    """Without `/v1`."""
    model: str
    trace: Path
    folder: Path
    """Of AIPerf's files; exists."""
    requests: int
    concurrency: int | None
    """None: requests are sent at the times of the trace."""
    timeout_s: float
    """Of one request."""

    @property
    def records(self) -> Path:
        """One line for each request that was served or failed."""
        return self.folder / RECORDS


def require_environment() -> Path:
    """The environment's Python; MissingToolError if it is not installed."""
    folder = environments_root() / NAME
    if not is_installed(folder):
        message = "AIPerf, which sends the requests, is not installed"
        fix = f"Run `penstock env install {NAME}` (0.8 GB, once)."
        raise MissingToolError(Problem(message=message, fix=fix))
    return folder / "bin" / "python"


def run(python: Path, runs: Sequence[Run], progress: Callable[[int], None]) -> None:
    """Run AIPerf once for each of ``runs``, all at the same time. ``progress`` gets the number of
    recorded requests.

    If this is interrupted, all processes end, and the records so far are kept. BenchError if AIPerf
    fails.
    """
    with contextlib.ExitStack() as started:
        processes = [started.enter_context(_running(python, one)) for one in runs]
        while any(process.poll() is None for process in processes):
            time.sleep(POLL_S)
            progress(sum(_count(one.records) for one in runs))
            for one in runs:
                _require_space(one.folder)
    for one, process in zip(runs, processes, strict=True):
        if process.returncode != 0 or not one.records.exists():
            _require_space(one.folder)
            message = f"AIPerf failed with exit code {process.returncode}: {_cause(one.folder)}"
            fix = f"Read {LOG} in the folder that --out names."
            raise BenchError(Problem(place=one.url, message=message, fix=fix))


@contextlib.contextmanager
def _running(python: Path, run: Run) -> Iterator[subprocess.Popen[bytes]]:
    home = run.folder / "huggingface"
    try:
        _write_tokenizer(home)
    except OSError as error:
        _require_space(run.folder)
        message = f"cannot be written: {error.strerror or error}"
        raise BenchError(Problem(place=str(home), message=message)) from None
    with (run.folder / LOG).open("wb") as output:
        process = subprocess.Popen(
            [*end_with_parent(), *command(python, run)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment_of(run, home),
            cwd=run.folder,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)
            shutil.rmtree(home, ignore_errors=True)


def environment_of(run: Run, home: Path) -> dict[str, str]:
    """With the folder of the tokenizer, and with the proxy of this machine, which must not see
    loopback."""
    environ = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    if httpx.URL(run.url).host not in LOOPBACK:
        environ["AIPERF_HTTP_TRUST_ENV"] = "true"  # HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply
    return environ


def command(python: Path, run: Run) -> list[str]:
    """Without the API key, which ``CHILD`` adds."""
    load = ["--fixed-schedule"]
    if run.concurrency:
        load = ["--concurrency", str(run.concurrency), "--request-count", str(run.requests)]
    return [
        *(str(python), "-P", str(CHILD)),  # not to import the modules of its folder
        "profile",
        *("--model", run.model),
        *("--url", run.url),
        *("--endpoint-type", "completions", "--streaming"),
        *("--tokenizer", TOKENIZER_NAME, "--use-server-token-count"),
        *("--input-file", str(run.trace), "--custom-dataset-type", "mooncake-trace"),
        *load,
        *("--request-timeout-seconds", f"{run.timeout_s:g}"),
        *("--workers-max", str(MOST_WORKERS)),
        *("--artifact-dir", str(run.folder), "--export-level", "records"),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _write_tokenizer(home: Path) -> None:
    folder = home / "hub" / f"models--{TOKENIZER_NAME.replace('/', '--')}"
    shutil.copytree(TOKENIZER, folder / "snapshots" / REVISION)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(REVISION)


def _count(records: Path) -> int:
    try:
        return records.read_bytes().count(b"\n")
    except OSError:
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End AIPerf and all its processes, which are in its process group. Another Ctrl-C meanwhile
    ends them at once."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _require_space(folder: Path) -> None:
    """BenchError if the disk is full: AIPerf loses records, and may never end."""
    space = os.statvfs(folder)
    if space.f_blocks and not space.f_bavail:  # some file systems report no sizes
        message = "AIPerf cannot write its files: no space is left on the file system"
        fix = "Free space on it, or name a folder on another one with --out."
        raise BenchError(Problem(place=str(folder), message=message, fix=fix))


def _cause(folder: Path) -> str:
    """The last errors in AIPerf's log, in one line."""
    lines = [line.strip(FRAME) for line in (folder / LOG).read_text(errors="replace").splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(TITLE)]
    errors = [line for line in lines if "ERROR" in line or "Error" in line] or lines
    shown = lines[starts[-1] + 1 :] if starts else errors[-LAST_LINES:]
    return " ".join(" ".join(shown).split())[:500]
