"""Jobs for Dynamo's replay, the processes in the environment `sim` that run them, and a cache.

A process runs many jobs: its start takes three seconds, and most replays take less. The cache has
results on disk, keyed by the content of the job; deleting it is harmless.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import queue
import select
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import ceil, inf
from pathlib import Path
from typing import IO, Any, TypeVar

from penstock.environments.paths import STAMP, require_python
from penstock.errors import MissingToolError, Problem, ProblemKind, SimulationError
from penstock.files import write_file
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import ARGUMENT
from penstock.simulate.window import Conversations
from penstock.text.values import last_words
from penstock.workload import BLOCK_TOKENS, Request
from penstock.workload.request import with_blocks

MAX_FILES = 2000
CHILD = Path(__file__).parent / "replay_child.py"
NAME = "sim"
SCHEMA = 27  # of the engine specs that ai-dynamo-runtime 1.6.1 reads
SAMPLES = 200
# Formats of a trace. With added inputs, the replay itself puts all earlier inputs and outputs of a
# conversation before those of a turn, so that the turn finds the outputs in the prefix cache too.
FULL_INPUTS, ADDED_INPUTS = "mooncake", "mooncake-delta"
CAUSE = "perf database error: "  # of AISimulate, after the calls that it passed through
PROGRESS_S = 5.0  # between two reports of progress while a replay runs
Result = Mapping[str, Any]
A = TypeVar("A")
B = TypeVar("B")


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/penstock/simulate, by default under ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "penstock" / "simulate"


def environment_cache(python: Path) -> Cache:
    """The cache for results of the environment with this Python."""
    installed = (python.parents[1] / STAMP).read_text()
    return Cache(cache_folder(), f"{installed} {CHILD.read_text()}")


class Cache:
    """``folder`` None: stores nothing. ``stamp``: what the results depend on besides the job, such
    as the versions of the replay's packages."""

    def __init__(self, folder: Path | None, stamp: str) -> None:
        self._folder = folder
        self._stamp = stamp

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The stored result; None if there is none, or a damaged one."""
        path = self._path(key)
        if path is None:
            return None
        try:
            result: Mapping[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        except (OSError, ValueError, EOFError, zlib.error):
            return None
        return result if isinstance(result, dict) else None

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        """Does nothing if the folder cannot be written: the next run replays again."""
        path = self._path(key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}")
            write_file(temporary, gzip.compress(json.dumps(result).encode(), 1))
            temporary.replace(path)
            self._prune(path.parent)
        except OSError:
            return

    def _prune(self, folder: Path) -> None:
        files = sorted(folder.glob("*.gz"), key=lambda file: file.stat().st_mtime)
        for file in files[:-MAX_FILES]:
            file.unlink(missing_ok=True)

    def _path(self, key: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{sha256(f'{self._stamp} {key}'.encode()).hexdigest()}.gz"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One replay of a deployment."""

    replayable: Replayable
    trace: str  # the requests as JSON Lines
    concurrency: int | None  # closed-loop clients; None: requests arrive by their time stamps
    sample_ms: float  # between two samples of the engines' state
    seed: int = 0  # of the requests in `trace`
    first_ms: float = 0.0  # of the workload, when the first request of `trace` arrives
    # Requests that are not in `trace`, because the engines reject them as too long: when they
    # arrive in ms, and whether it is the input alone that is too long.
    rejected: tuple[tuple[float, bool], ...] = ()
    conversations: Conversations | None = None  # in `trace`
    trace_format: str = FULL_INPUTS

    @property
    def too_long(self) -> int:
        return len(self.rejected)

    @property
    def over_input_limit(self) -> int:
        return sum(is_input for _, is_input in self.rejected)

    @cached_property
    def digest(self) -> str:
        """The hash of the trace, which may have a hundred thousand requests."""
        return sha256(self.trace.encode()).hexdigest()

    def content(self, trace: str) -> Mapping[str, Any]:
        """The job as the child process reads it; ``trace`` is the path of the trace's file."""
        engines, options = {}, {"replay_concurrency": self.concurrency}
        for pool in self.replayable.pools:
            engine, workers, _ = ARGUMENT[pool.role]
            engines[engine] = pool.engine
            options[workers] = pool.replicas
        planner = self.replayable.planner
        return {
            "trace": trace,
            "engines": engines,
            "options": options,
            "router": self.replayable.router.settings,
            "block_tokens": BLOCK_TOKENS,
            "trace_format": self.trace_format,
            "sample_ms": self.sample_ms,
            "planner": dict(planner.config) if planner else None,
        }

    @cached_property
    def key(self) -> str:
        """Equal for equal jobs; jobs with random results differ by their seed."""
        content = json.dumps(self.content(self.digest), sort_keys=True)
        return f"{content} {self.seed if self.replayable.is_random else 0}"


def as_trace(requests: Sequence[Request], trace_format: str = FULL_INPUTS) -> str:
    """Mooncake's JSON Lines, with a session for each conversation. A request without blocks gets
    new ones, which it shares with no other."""
    lines = []
    context: dict[str, int] = {}  # tokens of the turns before, where the replay adds them
    for request in with_blocks(requests):
        added = request.input_tokens - context.get(request.session, 0)
        if request.session and trace_format == ADDED_INPUTS:
            context[request.session] = request.tokens
        row: dict[str, Any] = {
            "input_length": added,
            "output_length": request.output_tokens,
            "hash_ids": list(request.blocks[-ceil(added / BLOCK_TOKENS) :]),
        }
        row |= {"timestamp": request.at_ms} if request.at_ms is not None else {}
        row |= {"delay": request.think_ms} if request.at_ms is None else {}
        row |= {"session_id": request.session} if request.session else {}
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


def require_environment() -> Path:
    """The environment's Python; MissingToolError, one line long, if it is not installed."""
    message = "Dynamo's replay and AISimulate's measured kernels are not installed"
    return require_python(NAME, message, "1.2 GB")


class Child:
    """One process. `begin` waits until it is ready, `run` for the result of a job."""

    def __init__(self, python: Path, folder: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by `end`
        self._process = subprocess.Popen(
            [str(python), "-I", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # Dynamo's logging leaves a file in the temporary folder at each import.
            env={**_own_variables(), "TMPDIR": folder},
            start_new_session=True,  # Ctrl-C is for this process, which ends the child
        )

    def begin(self) -> None:
        """MissingToolError if the environment's packages do not fit together."""
        reply = self._reply()
        message = ""
        if "error" in reply:
            message = f"the environment does not start: {reply['error']}"
        elif reply["schema"] != SCHEMA:
            versions = reply["versions"]
            message = (
                f"aisimulate {versions['aisimulate']} has engine-spec schema {reply['schema']}, "
                f"and ai-dynamo-runtime {versions['ai-dynamo-runtime']} reads {SCHEMA}"
            )
        if message:
            fix = (
                f"Run `penstock tools env remove {NAME}`, then `penstock tools env install {NAME}`."
            )
            raise MissingToolError(message, place=NAME, fix=fix)

    def run(self, line: str, wait_s: float = inf) -> Result:
        """SimulationError with the replay's message if it rejects the job, or dies, or needs more
        than ``wait_s``, which ends it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no reply either
            print(line, file=stdin, flush=True)
        if wait_s < inf and not select.select([stdout], [], [], wait_s)[0]:
            self._process.kill()
            raise late()
        reply = self._reply()
        if "error" in reply:
            raise SimulationError(_problem(str(reply["error"])))
        return reply

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return dict(json.loads(line))
        code = self._process.wait()
        raise SimulationError(f"the replay exited with code {code}: {self._last_line()}")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "no output"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        streams: tuple[IO[str] | None, ...] = (self._process.stdin, self._process.stdout, self._log)
        for stream in streams:
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _own_variables() -> Mapping[str, str]:
    """This process's environment without variables that configure Dynamo's router and planner: the
    graph's settings are part of the job."""
    theirs = ("DYN_", "PROMETHEUS_", "PLANNER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


def late() -> SimulationError:
    message, fix = "the replay was ended at the time limit", "Raise --time-limit."
    return SimulationError(Problem(message=message, fix=fix, kind=ProblemKind.LATE))


def _problem(error: str) -> Problem:
    """The problem behind an error of AISimulate or Dynamo, which has no code but only a text."""
    if "data missing" in error or "DataNotAvailable" in error:
        cause = last_words(error.rpartition(CAUSE)[2], 300)
        only = "; for gpt-oss only expert parallelism was measured" if "MoE data" in error else ""
        fix = f"Choose another parallelism or GPU{only}."
        return Problem(message=f"no measured kernels for this: {cause}", fix=fix)
    if "must be real number, not NoneType" in error:
        fix = "Set the id of the model hub of a model that AISimulate knows."
        return Problem(place="model.id", message="AISimulate has no data for the model", fix=fix)
    if "estimator is not ready" in error:
        fix = "Set `model.id` to its id on the model hub, or add --model DIR with its config.json."
        message = "AISimulate does not know the model, or its config.json is incomplete"
        return Problem(place="model", message=message, fix=fix)
    return Problem(message=f"the replay failed: {last_words(error, 500)}")


@dataclass
class Replays:
    """Runs jobs, by default as many at once as there are processors.

    The same job is run once, so that its result is the same even where replays are random. Use it
    as a context: no process outlives it.
    """

    cache: Cache
    processes: int = max(1, os.cpu_count() or 1)
    left_s: Callable[[], float] = lambda: inf  # in which replays may still run

    def __enter__(self) -> Replays:
        self._python = require_environment()
        self._children: list[Child] = []
        self._lock = threading.Lock()
        self.is_over = False
        self._free = threading.Semaphore(self.processes)
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-simulate-")
        self._results: dict[str, Result] = {}
        self.replayed = 0
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.is_over = True
            for child in self._children:
                child.end()
            self._folder.cleanup()

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Result]:
        """The results, in order. ``progress`` is called with (done, total) after each job, and
        repeatedly while a long one runs."""
        results: list[Result] = []
        pool = ThreadPoolExecutor(min(self.processes, len(jobs)) or 1)
        try:
            for future in [pool.submit(self._replay, job) for job in jobs]:
                while progress and not wait([future], timeout=PROGRESS_S).done:
                    progress(len(results), len(jobs))
                results.append(future.result())
                if progress:
                    progress(len(results), len(jobs))
        finally:
            # Do not wait for what still runs: `__exit__` ends its process.
            pool.shutdown(wait=False, cancel_futures=True)
        return results

    def _replay(self, job: Job) -> Result:
        if (known := self._results.get(job.key) or self.cache.get(job.key)) is not None:
            return known
        if not self.left_s():
            raise late()
        with self._child() as child:
            file = Path(self._folder.name) / f"{job.digest[:16]}.jsonl"
            with self._lock:
                self._refuse_when_over()
                if not file.exists():
                    write_file(file, job.trace)
            result = child.run(json.dumps(job.content(str(file))), self.left_s())
        self.replayed += 1
        self._results[job.key] = result
        self.cache.put(job.key, result)
        return result

    def _refuse_when_over(self) -> None:
        """A thread may get here after `__exit__` has ended the children."""
        if self.is_over:
            raise SimulationError("the replays have been stopped")

    def _started(self) -> Child:
        with self._lock:
            self._refuse_when_over()
            child = Child(self._python, self._folder.name)
            self._children.append(child)
        child.begin()
        return child

    @contextlib.contextmanager
    def _child(self) -> Iterator[Child]:
        with self._free:
            try:
                child = self._idle.get_nowait()
            except queue.Empty:
                child = self._started()
            try:
                yield child
            finally:
                self._idle.put(child)


def in_parallel(work: Callable[[A], B], items: Sequence[A], threads: int | None = None) -> list[B]:
    """The results in order. ``threads``: at most; None means one for each item.

    Does not wait for what still runs after an error or Ctrl-C: `Replays` ends its processes.
    """
    pool = ThreadPoolExecutor(max(1, len(items) if threads is None else threads))
    try:
        return list(pool.map(work, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
