"""Run a drill: start a copy of the graph, send requests, inject faults, evaluate the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.drill.evaluate import Evaluation, FaultRecord, evaluate
from penstock.drill.faults import KINDS, Fault, Schedule, copy_of, current, is_settled
from penstock.drill.graph_process import GraphProcess
from penstock.drill.traffic import StreamResult, Traffic
from penstock.errors import DrillError, StartError
from penstock.local.process import leftover_processes
from penstock.local.state import StateDir

WARM_UP_S = 3.0
PAUSE_S = 2.0  # between a recovery and the next fault
RECOVERY_LIMIT_S = 90.0
START_LIMIT_S = 300.0
DEFAULT_STALL_S = 5.0
RETRIES = 2  # as OpenAI's clients
PROMPTS = 64  # with `exact`


@dataclass(frozen=True, kw_only=True)
class DrillOptions:
    """``count`` faults, or as many as begin within ``minutes``."""

    kinds: tuple[str, ...] = tuple(KINDS)
    count: int | None = None
    minutes: float | None = None
    seed: int
    streams: int = 32
    tokens: int = 60
    """Output tokens of each request."""
    stall_s: float = DEFAULT_STALL_S
    exact: bool = False
    """Compare each response with one without faults; for engines that repeat their tokens."""
    up_arguments: tuple[str, ...] = ()
    """Options of `penstock up`."""


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    """The evaluation, and the history that it was made from."""

    options: DrillOptions
    evaluation: Evaluation
    history: tuple[StreamResult, ...]
    faults: tuple[FaultRecord, ...]
    seconds: float


def run_drill(
    graph: Path, options: DrillOptions, folder: Path, say: Callable[[str], None]
) -> DrillResult:
    """Drill a copy of ``graph`` in ``folder``. StartError when it does not start."""
    arguments = ["--port", "0", *options.up_arguments]
    env = {"PENSTOCK_STATE_HOME": str(folder / "state")}
    copy = copy_of(graph, folder)
    with GraphProcess(copy, folder, arguments, env) as process:
        try:
            process.wait_ready(START_LIMIT_S)
        except TimeoutError as error:
            raise StartError(str(error)) from None
        say(f"ready: {process.state()['endpoint']}; {options.streams} streams")
        drill = _Drill(process, options, say)
        asyncio.run(drill.run())
        process.stop()
    evaluation = evaluate(
        drill.traffic.results,
        drill.faults,
        stall_s=options.stall_s,
        expected=drill.expected(),
        leftovers=_leftovers(copy, folder),
    )
    return DrillResult(
        options=options,
        evaluation=evaluation,
        history=tuple(drill.traffic.results),
        faults=tuple(drill.faults),
        seconds=max((r.ended_s for r in drill.traffic.results), default=0.0),
    )


class _Drill:
    """Requests and faults at the same time, on one clock."""

    def __init__(
        self, process: GraphProcess, options: DrillOptions, say: Callable[[str], None]
    ) -> None:
        self._process, self._options, self._say = process, options, say
        state = current(process)
        self.faults: list[FaultRecord] = []
        self.traffic = Traffic(
            state.endpoint,
            state.models[0],
            requests=options.streams,
            concurrency=options.streams,
            tokens=options.tokens,
            retries=RETRIES,
            until_stopped=True,
            prompts=PROMPTS if options.exact else None,
        )
        self._reference: Mapping[int, str] = {}
        self._stopping = False
        self._began = 0.0

    async def run(self) -> None:
        if self._options.exact:
            self._reference = await self._without_faults()
            self._say(f"{len(self._reference)} of {PROMPTS} prompts have repeatable responses")
        self._began = time.monotonic()
        requests = asyncio.create_task(self.traffic.run(self._began))
        try:
            await asyncio.sleep(WARM_UP_S)
            try:
                await asyncio.to_thread(self._inject_all)
            except TimeoutError as error:
                raise DrillError(str(error)) from None
            await asyncio.sleep(WARM_UP_S)
        finally:
            self._stopping = True
            self.traffic.until_stopped = False
            await requests

    async def _without_faults(self) -> dict[int, str]:
        """Prompt → its response, where it is the same alone and among other requests.

        The size of a batch changes how sums are rounded, so a token can change when two tokens are
        almost equally likely.
        """
        texts: list[dict[int, str]] = []
        for concurrency in (1, self._options.streams, self._options.streams):
            traffic = replace(
                self.traffic,
                requests=PROMPTS,
                concurrency=concurrency,
                until_stopped=False,
                results=[],
            )
            await traffic.run()
            texts.append({r.number: r.text for r in traffic.results if not r.error})
        one, *others = texts
        return {n: text for n, text in one.items() if all(o.get(n) == text for o in others)}

    def expected(self) -> dict[int, str]:
        """Number of a request → its response without faults, where this is known."""
        numbers = (result.number for result in self.traffic.results)
        return {n: self._reference[n % PROMPTS] for n in numbers if n % PROMPTS in self._reference}

    def _inject_all(self) -> None:
        schedule = Schedule(self._options.kinds, self._options.seed)
        while self._goes_on():
            self._inject(schedule.next(current(self._process)))
            if self.faults[-1].recovered_s is None:
                self._say("the graph did not recover: the drill ends here")
                return
            time.sleep(PAUSE_S)

    def _goes_on(self) -> bool:
        if self._stopping:
            return False
        if self._options.minutes is not None:
            return self._now() < self._options.minutes * 60
        return len(self.faults) < (self._options.count or 0)

    def _inject(self, fault: Fault) -> None:
        started = self._now()
        KINDS[fault.kind].inject(fault, self._process)
        ended = self._now()
        recovered = self._wait_until_recovered(fault)
        self.faults.append(
            FaultRecord(
                number=len(self.faults) + 1,
                kind=fault.kind,
                target=fault.target,
                role=fault.role,
                started_s=started,
                ended_s=ended,
                recovered_s=recovered,
                has_survivor=fault.has_survivor,
            )
        )
        took = (
            "not recovered" if recovered is None else f"recovered after {recovered - started:.1f} s"
        )
        self._say(f"{len(self.faults)}: {fault.kind} {fault.target}: {took}")

    def _wait_until_recovered(self, fault: Fault) -> float | None:
        deadline = self._now() + RECOVERY_LIMIT_S
        while self._now() < deadline and not self._stopping:
            state = current(self._process)
            is_gone = not {replica.pid for replica in state.replicas} & set(fault.pids)
            if is_settled(state) and (is_gone or not fault.is_replaced):
                return self._now()
            time.sleep(0.1)
        return None

    def _now(self) -> float:
        return time.monotonic() - self._began


def _leftovers(graph: Path, folder: Path) -> Sequence[str]:
    """What the graph left behind: processes, registrations, temporary files."""
    state = StateDir(graph, root=folder / "state")
    processes = [f"process {p.pid} ({p.name()})" for p in leftover_processes(state.path)]
    run = state.path / "run"
    return [*processes, *(str(path) for path in sorted(run.rglob("*")) if path.is_file())]
