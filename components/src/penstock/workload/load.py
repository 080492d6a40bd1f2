"""Reads a workload file, or a ready-made workload by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.errors import GraphError, InputError, Problem, UsageError
from penstock.files import shipped
from penstock.graph.foreign import kind_of_manifest
from penstock.graph.text_file import read_text_file
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import field_problems, parse_strictly
from penstock.text.names import CHOICE_CUTOFF, nearest
from penstock.workload.duration import at_scale, exceeds_sample_limit, for_search
from penstock.workload.model import Arrival, Workload, too_many
from penstock.workload.request import Request
from penstock.workload.sample import sample
from penstock.workload.trace import Recorded, format_of, read_trace

Change = Callable[[tuple[Request, ...]], tuple[Request, ...]]
GRAPH_KEY = re.compile(r"^(model|engine)\s*:", re.MULTILINE)  # every graph has both
READY = shipped("workloads", "benchmarks/workloads")
RENAMED = {"chat": "short-chat", "documents": "document"}  # commands accept them for one release
# What `penstock init` also knows by name, and the ready-made workload with the same lengths.
SAME_LENGTHS = {**RENAMED, "latency": "short-chat", "batch": "document"}
WORKLOAD = DocumentKind(name="a workload", example=str(READY / "short-chat.yaml"))


@dataclass(frozen=True, kw_only=True)
class LoadedWorkload:
    name: str
    workload: Workload
    source: str  # its file, for messages
    trace_text: str = ""  # of the file of recorded requests
    trace_source: str = ""
    change: Change | None = None  # is applied to the requests: see `workload.sensitivity`

    def requests(self, seed: int) -> tuple[Request, ...]:
        """The requests in order of arrival; a trace is the same for every seed.

        InputError for a broken trace, and for more requests than can be sampled.
        """
        requests = self._requests(seed)
        return self.change(requests) if self.change else requests

    def _requests(self, seed: int) -> tuple[Request, ...]:
        if (recorded := self._recorded()) is not None:
            return recorded.requests
        if exceeds_sample_limit(self.workload):
            message, fix = too_many(self.workload.sampled_requests)
            raise InputError(message, file=self.source, fix=fix)
        return sample(self.workload, seed)

    def _recorded(self) -> Recorded | None:
        workload, trace = self.workload, self.workload.trace
        if trace is None:
            return None
        return read_trace(trace, self.trace_text, self.trace_source, workload.requests)

    @property
    def requests_without_output(self) -> int:
        """The number of requests of a trace that are left out."""
        recorded = self._recorded()
        return recorded.without_output if recorded else 0

    @property
    def requests_source(self) -> str:
        """The file that decides the lengths, for messages."""
        return self.trace_source or self.source

    def mean_rate(self) -> float | None:
        """Mean arrival rate in requests/s, all turns of conversations included.

        None for concurrency, and for a trace whose requests all arrive at once.
        """
        if self.workload.trace is None:
            return self.workload.mean_rate
        requests = self.requests(0)
        seconds = (requests[-1].at_ms or 0.0) / 1000
        return len(requests) / seconds if seconds else None

    @property
    def is_at_once(self) -> bool:
        """Whether it is a trace whose requests all have the same time."""
        return self.workload.trace is not None and self.mean_rate() is None

    def with_workload(self, workload: Workload) -> LoadedWorkload:
        return replace(self, workload=workload)

    def with_concurrency(self, concurrency: int) -> LoadedWorkload:
        """The workload with a closed loop instead of its arrivals. UsageError for a trace or
        conversations."""
        if self.workload.arrival is None or self.workload.conversation is not None:
            message = f"{self.name} has recorded arrivals or conversations"
            problem = Problem(place="--concurrency", message=message, fix="Use --scale instead.")
            raise UsageError(problem)
        arrival = Arrival(concurrency=concurrency)
        return self.with_workload(self.workload.model_copy(update={"arrival": arrival}))

    def with_requests(self, requests: int) -> LoadedWorkload:
        """Cut or lengthened to this number. UsageError for a ramp and a ladder, and for less than
        two conversations."""
        conversation, place = self.workload.conversation, "--requests"
        if (arrival := self.workload.arrival) and self.workload.fixed_requests is None:
            message = f"the {arrival.name} of {self.name} decides the number of requests"
            raise UsageError(message, place=place, fix=f"Remove {place}.")
        if conversation is not None and requests < 2 * conversation.turns:
            message = f"{requests} requests are less than two conversations"
            raise UsageError(message, place=place, fix=f"Use {2 * conversation.turns} or more.")
        return self.with_workload(self.workload.with_requests(requests))

    def scaled(self, scale: float) -> LoadedWorkload:
        """The workload with ``scale`` times the arrival rate, and as many requests."""
        return self.with_workload(self.workload.scaled(scale))

    def at_scale(self, scale: float, *, min_requests: int | None = None) -> LoadedWorkload:
        """See `penstock.workload.duration.at_scale`."""
        return self.with_workload(at_scale(self.workload, scale, min_requests=min_requests))

    def for_search(self, scale: float, *, repeat: int = 1) -> LoadedWorkload:
        """See `penstock.workload.duration.for_search`."""
        return self.with_workload(for_search(self.workload, scale, repeat=repeat))


def ready_names() -> list[str]:
    return sorted(path.stem for path in READY.glob("*.yaml"))


def find_workload(name: str, trace: Path | None = None) -> LoadedWorkload:
    """The workload with this path, or the name of a ready-made one. ``trace`` replaces the file's
    own trace.

    InputError if there is no such file, GraphError if the file is wrong.
    """
    path = READY / f"{name}.yaml"
    if name not in ready_names():
        path = Path(name)
        if not path.exists() and path.suffix not in (".yaml", ".yml"):
            raise InputError(_unknown(name))
    loaded = parse_workload(read_text_file(path), str(path))
    if loaded.workload.trace is None:
        if trace is not None:
            message = f"{loaded.name} samples its requests and reads no trace"
            raise InputError(message, place="--trace", fix="Remove --trace.")
        return loaded
    file = trace or (path.parent / relative if (relative := loaded.workload.trace.file) else None)
    if file is None:
        raise InputError("needs a recorded trace", file=loaded.name, fix="Add --trace FILE")
    text = read_text_file(file)
    return replace(loaded, trace_text=text, trace_source=str(file))


def _unknown(name: str) -> Problem:
    close = SAME_LENGTHS.get(name) or nearest(name, ready_names(), CHOICE_CUTOFF)
    fix = (
        f"Did you mean `{close}`?"
        if close
        else f"Use a file, or one of {', '.join(ready_names())}."
    )
    return Problem(place="--workload", message=f"there is no workload {name!r}", fix=fix)


def _use_of_trace(source: str, form: str) -> str:
    """How to use a trace that was given as the workload."""
    workload = Path(source).with_suffix(".yaml")
    if workload != Path(source) and workload.exists():
        return f"Use {workload}."
    return f"Use a workload file that has `trace: {{format: {form}, file: {Path(source).name}}}`."


def parse_workload(text: str, source: str) -> LoadedWorkload:
    """Check the text of a workload; ``source`` is its file, for messages and its name."""
    kind = "a Kubernetes manifest" if kind_of_manifest(text) is not None else "a graph"
    if kind != "a graph" or len(set(GRAPH_KEY.findall(text))) == 2:
        fix = f"Use a workload file, or one of {', '.join(ready_names())}."
        raise GraphError(f"is {kind}, not a workload", file=source, fix=fix)
    if form := format_of(text):
        raise GraphError("is a trace, not a workload", file=source, fix=_use_of_trace(source, form))
    problems_of = partial(field_problems, root=Workload)
    workload = parse_strictly(text, source, WORKLOAD, Workload, problems_of)
    return LoadedWorkload(name=Path(source).stem, workload=workload, source=source)
