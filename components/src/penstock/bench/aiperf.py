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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx

from penstock.bench.trace_file import Key
from penstock.environments.paths import require_python
from penstock.errors import BenchError
from penstock.files import write_file
from penstock.local.process import end_with_parent
from penstock.tokenizer import FOLDER as TOKENIZER
from penstock.verify.target import LOOPBACK
from penstock.workload import Request

NAME = "aiperf"
SIZE = "0.8 GB"  # of the installation
CHILD = Path(__file__).parent / "aiperf_child.py"
VERSION = "AIPerf 0.13.0"  # of the environment
TOKENIZER_NAME, REVISION = "local/packaged", "0" * 40
TRACE, LOG, RECORDS = "requests.jsonl", "aiperf.log", "profile_export.jsonl"
POLL_S = 0.2
END_S = 15.0  # in which AIPerf ends its processes
MOST_WORKERS = 4  # processes that send requests; one sends hundreds of requests per second
LAST_LINES = 3
TITLE, FRAME = "Error Running AIPerf", "╭─╮│╰╯ "  # of a box in its log


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    url: str
    """Without `/v1`."""
    model: str
    """Model to request."""
    graph: str = ""
    """Its file; empty if it was named by its URL."""
    is_chat: bool = False
    """It gets chat requests, else completions."""
    speed: float = 1.0
    """Simulation speed; 0.5 runs at half real time. All times of requests are simulated."""
    engine_is_substitute: bool | None = None
    """Whether mockers serve instead of an engine; null if that is not known."""

    def __str__(self) -> str:
        mockers = "mockers, not an engine" if self.engine_is_substitute else ""
        notes = "; ".join(filter(None, (self.graph, mockers)))
        return f"{self.model} at {self.url}" + (f" ({notes})" if notes else "")


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one endpoint gets in one run of AIPerf."""

    endpoint: Endpoint
    requests: Mapping[Key, Request]
    concurrency: int | None
    """None: requests are sent at their times of arrival."""
    folder: Path
    """For all files; exists."""
    timeout_s: float
    """Of one request."""
    duration_s: float | None = None
    """After which no request is sent, with a fixed concurrency; None: all are sent."""

    @property
    def trace(self) -> Path:
        return self.folder / TRACE

    @property
    def records(self) -> Path:
        """One line for each request that was served or failed."""
        return self.folder / RECORDS


def require_environment() -> Path:
    """The environment's Python; MissingToolError if it is not installed."""
    return require_python(NAME, "AIPerf, which sends the requests, is not installed", SIZE)


def run(python: Path, runs: Sequence[Traffic], progress: Callable[[int], None]) -> None:
    """Run AIPerf once for each of ``runs``, all at the same time. ``progress`` gets the number of
    recorded requests.

    If this is interrupted, all processes end, and the records so far are kept. BenchError if AIPerf
    fails.
    """
    counts = [_Count(run.records) for run in runs]
    with contextlib.ExitStack() as started:
        processes = [started.enter_context(_running(python, run)) for run in runs]
        while any(process.poll() is None for process in processes):
            time.sleep(POLL_S)
            progress(sum(count.updated() for count in counts))
            # If one has failed, the others would run for nothing.
            for each, process in zip(runs, processes, strict=True):
                _require_space(each.folder)
                _require_success(each, process)
    for each, process in zip(runs, processes, strict=True):
        _require_success(each, process)
        if not each.records.exists():
            raise _failure(each, "AIPerf has recorded no request")


def _require_success(run: Traffic, process: subprocess.Popen[bytes]) -> None:
    """BenchError if AIPerf has ended with an error."""
    if process.poll():
        _require_space(run.folder)
        cause = _cause(run.folder)
        raise _failure(run, f"AIPerf failed with exit code {process.returncode}: {cause}")


def _failure(run: Traffic, message: str) -> BenchError:
    fix = f"Read {LOG} in the folder that --out names."
    return BenchError(message, place=run.endpoint.url, fix=fix)


@contextlib.contextmanager
def _running(python: Path, run: Traffic) -> Iterator[subprocess.Popen[bytes]]:
    # The name is short, because AIPerf creates sockets there.
    with _scratch() as scratch, (run.folder / LOG).open("wb") as log:
        environ = environment_of(run, scratch)
        with load_generator(command(python, run), environ, run.folder, log, log) as process:
            yield process


@contextlib.contextmanager
def load_generator(
    argv: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    output: BinaryIO,
    errors: BinaryIO,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in ``folder`` that ends with all its processes at the end of the context."""
    process = subprocess.Popen(
        [*end_with_parent(), *argv],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        env=environ,
        cwd=folder,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_group(process)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder with the tokenizer, for AIPerf's temporary files."""
    with contextlib.ExitStack() as opened:
        try:
            created = tempfile.TemporaryDirectory(prefix="pb-", ignore_cleanup_errors=True)
            folder = Path(opened.enter_context(created))
            _write_tokenizer(folder)
        except OSError as error:
            fix = "Free space there, or set TMPDIR to a folder on another file system."
            message = f"cannot be written: {error.strerror or error}"
            place = tempfile.gettempdir()
            raise BenchError(message, place=place, fix=fix) from None
        yield folder


def environment_of(run: Traffic, scratch: Path) -> dict[str, str]:
    """With a folder for the tokenizer and temporary files, and with the proxy of this machine,
    which must not see loopback."""
    environ = {**os.environ, "HF_HOME": str(scratch), "HF_HUB_OFFLINE": "1"}
    environ["TMPDIR"] = str(scratch)
    if httpx.URL(run.endpoint.url).host not in LOOPBACK:
        environ["AIPERF_HTTP_TRUST_ENV"] = "true"  # HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply
    return environ


def command(python: Path, run: Traffic) -> list[str]:
    """Without the API key, which ``CHILD`` adds."""
    endpoint = run.endpoint
    timeout_s = f"{run.timeout_s / endpoint.speed:g}"
    # Without an offset, AIPerf shifts the trace so that it begins at once.
    load = ["--fixed-schedule", "--fixed-schedule-start-offset", "0"]
    if run.concurrency:
        conversations = {conversation for conversation, _ in run.requests}
        load = ["--concurrency", str(run.concurrency), "--num-sessions", str(len(conversations))]
    if run.duration_s:
        load += ["--benchmark-duration", f"{run.duration_s / endpoint.speed:g}"]
        load += ["--benchmark-grace-period", timeout_s]  # for the last responses
    return [
        *(str(python), "-P", str(CHILD)),  # not to import the modules of its folder
        "profile",
        *("--model", endpoint.model),
        *("--url", endpoint.url),
        *("--endpoint-type", "chat" if endpoint.is_chat else "completions", "--streaming"),
        *("--tokenizer", TOKENIZER_NAME, "--use-server-token-count"),
        *("--input-file", str(run.trace), "--custom-dataset-type", "mooncake-trace"),
        *load,
        *("--request-timeout-seconds", timeout_s),
        *("--workers-max", str(MOST_WORKERS)),
        *("--artifact-dir", str(run.folder), "--export-level", "records"),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _write_tokenizer(home: Path) -> None:
    folder = home / "hub" / f"models--{TOKENIZER_NAME.replace('/', '--')}"
    shutil.copytree(TOKENIZER, folder / "snapshots" / REVISION)
    (folder / "refs").mkdir()
    write_file(folder / "refs" / "main", REVISION)


class _Count:
    """The number of lines of a growing file, of which each is read once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = self._lines = 0

    def updated(self) -> int:
        """0 if there is no file yet."""
        with contextlib.suppress(OSError), self._file.open("rb") as content:
            content.seek(self._position)
            added = content.read()
            self._position += len(added)
            self._lines += added.count(b"\n")
        return self._lines


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a load generator and all its processes, which are in its process group. Another Ctrl-C
    meanwhile ends them at once."""
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
        raise BenchError(message, place=str(folder), fix=fix)


def _cause(folder: Path) -> str:
    """The last errors in AIPerf's log, in one line."""
    lines = [line.strip(FRAME) for line in (folder / LOG).read_text(errors="replace").splitlines()]
    starts = [number for number, line in enumerate(lines) if line.startswith(TITLE)]
    errors = [line for line in lines if "ERROR" in line or "Error" in line] or lines
    message = lines[starts[-1] + 1 :] if starts else errors[-LAST_LINES:]
    return " ".join(" ".join(message).split())[:500]
