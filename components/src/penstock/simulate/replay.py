"""Jobs for Dynamo's replay, and the processes in the environment `sim` that run them.

A process stays for many jobs: its start costs three seconds, which many a replay does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from penstock.environments import environments_root
from penstock.errors import MissingToolError, Problem, SimulationError
from penstock.simulate.cache import Cache
from penstock.simulate.model import Replayable
from penstock.simulate.replayable import ARGUMENT
from penstock.workload import BLOCK_TOKENS, Request

CHILD = Path(__file__).parent / "replay_child.py"
NAME = "sim"
SCHEMA = 27  # of the engine specs that ai-dynamo-runtime 1.6.1 reads
SAMPLES = 200
BEAT_S = 5.0
Answer = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One replay of a deployment. ``trace`` holds the requests as JSON Lines; ``users`` None lets
    them arrive by their time stamps; ``seed`` is what made them,
    ``too_long`` how many others the engines would refuse, being longer than they take, and
    ``beyond_step`` how many of those for their prompt alone."""

    replayable: Replayable
    trace: str
    users: int | None
    sample_ms: float
    seed: int = 0
    too_long: int = 0
    beyond_step: int = 0

    @cached_property
    def digest(self) -> str:
        """Of the trace, which may have a hundred thousand requests."""
        return sha256(self.trace.encode()).hexdigest()

    def asked(self, trace: str) -> Mapping[str, Any]:
        """The line for the child, with the trace's path."""
        engines, options = {}, {"replay_concurrency": self.users}
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
            "sample_ms": self.sample_ms,
            "planner": dict(planner.config) if planner else None,
        }

    @cached_property
    def key(self) -> str:
        """The same for the same question, whoever asks it; random replays differ by their seed."""
        content = json.dumps(self.asked(self.digest), sort_keys=True)
        return f"{content} {self.seed if self.replayable.is_random else 0}"


def as_trace(requests: Sequence[Request]) -> str:
    """Mooncake's JSON Lines, with a session for each conversation and fresh blocks where the
    request has none."""
    fresh = 1 + max((max(r.blocks, default=0) for r in requests), default=0)
    lines = []
    for request in requests:
        blocks: Sequence[int] = request.blocks
        if not blocks:
            count = -(-request.input_tokens // BLOCK_TOKENS)
            blocks, fresh = range(fresh, fresh + count), fresh + count
        row: dict[str, Any] = {
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
            "hash_ids": list(blocks),
        }
        row |= {"timestamp": request.at_ms} if request.at_ms is not None else {}
        row |= {"delay": request.think_ms} if request.at_ms is None else {}
        row |= {"session_id": request.session} if request.session else {}
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


def require_environment() -> Path:
    """The environment's Python; MissingToolError in one line where it is not installed."""
    folder = environments_root() / NAME
    if not (folder / "installed.txt").exists():
        message = "Dynamo's replay and AISimulate's measured kernels are not installed"
        raise MissingToolError(Problem(message=message, fix=f"penstock env install {NAME}"))
    return folder / "bin" / "python"


class Child:
    """One process: `begin` waits until it is there, `ask` for an answer."""

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
            start_new_session=True,  # Ctrl-C is ours, and we end it
        )

    def begin(self) -> None:
        """MissingToolError where the environment does not fit."""
        said = self._answer()
        message = ""
        if "error" in said:
            message = f"does not start: {said['error']}"
        elif said["schema"] != SCHEMA:
            versions = said["versions"]
            message = (
                f"aisimulate {versions['aisimulate']} speaks engine-spec schema {said['schema']}, "
                f"and ai-dynamo-runtime {versions['ai-dynamo-runtime']} reads {SCHEMA}"
            )
        if message:
            fix = f"penstock env remove {NAME}, then penstock env install {NAME}"
            raise MissingToolError(Problem(place=NAME, message=message, fix=fix))

    def ask(self, line: str) -> Answer:
        """SimulationError with the replay's own words where it refuses, or dies."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            print(line, file=stdin, flush=True)
        answer = self._answer()
        if "error" in answer:
            raise SimulationError(_problem(str(answer["error"])))
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return dict(json.loads(line))
        code = self._process.wait()
        raise SimulationError(f"the replay ended with {code}: {self._last_words()}")

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        streams: tuple[IO[str] | None, ...] = (self._process.stdin, self._process.stdout, self._log)
        for stream in streams:
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _own_variables() -> Mapping[str, str]:
    """This machine's but those by which Dynamo's router and planner are told something: what the
    graph says is in the job."""
    theirs = ("DYN_", "PROMETHEUS_", "PLANNER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


def _problem(said: str) -> Problem:
    if "data missing" in said or "DataNotAvailable" in said:
        fix = "choose another parallelism or GPU; for gpt-oss only expert parallelism was measured"
        return Problem(message=f"no measured kernels for this: {said[-300:]}", fix=fix)
    if "must be real number, not NoneType" in said:
        fix = "it must be among AISimulate's, by the id of the model hub"
        return Problem(place="model.id", message="AISimulate does not know the model", fix=fix)
    return Problem(message=f"the replay refuses: {said[-500:]}")


@dataclass
class Replays:
    """Runs jobs, as many at once as there are processors; who asks again hears the same, whatever
    chance would say. A context: at its end none is left."""

    cache: Cache
    processes: int = max(1, os.cpu_count() or 1)

    def __enter__(self) -> Replays:
        self._python = require_environment()
        self._children: list[Child] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._free = threading.Semaphore(self.processes)
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-simulate-")
        self._answers: dict[str, Answer] = {}
        self.replayed = 0
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for child in self._children:
                child.end()
            self._folder.cleanup()

    def run(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Answer]:
        """Their answers, in order; ``progress`` hears how many of them are there, and hears it
        again while a long one runs."""
        answers: list[Answer] = []
        pool = ThreadPoolExecutor(min(self.processes, len(jobs)) or 1)
        try:
            for begun in [pool.submit(self._one, job) for job in jobs]:
                while progress and not wait([begun], timeout=BEAT_S).done:
                    progress(len(answers), len(jobs))
                answers.append(begun.result())
                if progress:
                    progress(len(answers), len(jobs))
        finally:
            # What still runs is not waited for: `__exit__` ends its process.
            pool.shutdown(wait=False, cancel_futures=True)
        return answers

    def _one(self, job: Job) -> Answer:
        if (known := self._answers.get(job.key) or self.cache.get(job.key)) is not None:
            return known
        with self._child() as child:
            file = Path(self._folder.name) / f"{job.digest[:16]}.jsonl"
            with self._lock:
                self._refuse_when_over()
                if not file.exists():
                    file.write_text(job.trace)
            answer = child.ask(json.dumps(job.asked(str(file))))
        self.replayed += 1
        self._answers[job.key] = answer
        self.cache.put(job.key, answer)
        return answer

    def _refuse_when_over(self) -> None:
        """A thread may come after `__exit__` has ended what it knew of."""
        if self._is_over:
            raise SimulationError("the replays are over")

    def _begun(self) -> Child:
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
                child = self._begun()
            try:
                yield child
            finally:
                self._idle.put(child)
