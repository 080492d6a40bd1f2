"""Run a drill: start a copy of the graph, send requests, inject faults, evaluate the history."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import httpx

from penstock.drill import interrupts
from penstock.drill.evaluate import Evaluation, FaultRecord, evaluate, with_pauses
from penstock.drill.faults import Choice, Fault
from penstock.drill.graph_process import GraphProcess
from penstock.drill.memory import MemorySampler, MemoryTrend
from penstock.drill.targets import LocalGraph, Target
from penstock.drill.traffic import LONG_TOKENS, RETRY_S, Ending, RequestKind, StreamResult, Traffic
from penstock.errors import DrillError, StartError
from penstock.files import write_file
from penstock.graph.edit import set_replicas
from penstock.graph.text_file import read_text_file
from penstock.local.ports import Ports
from penstock.local.process import leftover_processes
from penstock.local.request_adapter.rules import ACCEPT_IGNORED_HEADER
from penstock.local.state import StateDir

START_LIMIT_S = 300.0
RETRIES = 2  # as OpenAI's clients
PROMPTS = 64  # with `exact`
RANDOM_OUTPUT = {ACCEPT_IGNORED_HEADER: "true"}  # of penstock's mockers, which ignore a grammar
SAMPLE = 8
RECORDED = tuple(field.name for field in fields(FaultRecord))
REPLICAS = re.compile(r"([\w-]+)\.replicas=(\d+)")


@dataclass(frozen=True, kw_only=True)
class Pace:
    """All in seconds."""

    warm_up_s: float = 3.0
    """Load before the first fault and after the last."""
    steady_s: float = 3.0
    """How long a recovery must last; penstock may need that long to detect a fault."""
    recovery_s: float = 600.0
    """Limit of a recovery; a worker may load a large model."""
    interrupted_s: float = 2.0
    """Time that requests in flight get after Ctrl-C."""
    retry_s: float = RETRY_S
    """Delay before the first retry; it doubles with each retry."""
    poll_s: float = 0.1
    """Interval between checks whether a target has recovered."""


@dataclass(frozen=True, kw_only=True)
class DrillOptions:
    """``count`` faults, or as many as begin within ``minutes``."""

    count: int | None = None
    minutes: float | None = None
    seed: int
    streams: int = 32
    tokens: int = 60
    """Output tokens of each request."""
    stall_s: float = 5.0
    exact: bool = False
    """Compare each response with one without faults; for engines that repeat their tokens."""
    permitted: Mapping[str, int] = field(default_factory=dict)
    """Kind → avoidable failures that each of its faults may cause."""
    recovery_s: Mapping[str, float] = field(default_factory=dict)
    """Kind → seconds that the recovery from each of its faults may take."""
    kinds: tuple[RequestKind, ...] = (RequestKind.CHAT,)
    """Of the requests, in turn."""
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    """The evaluation, and the history that it was made from."""

    options: DrillOptions
    evaluation: Evaluation
    history: tuple[StreamResult, ...]
    faults: tuple[FaultRecord, ...]
    memory: tuple[MemoryTrend, ...]
    seconds: float
    was_interrupted: bool = False
    """Whether Ctrl-C ended it; the fault and the requests of that moment are missing."""
    engine_is_substitute: bool | None = None
    """Whether mockers ran instead of the engine; None if it is not known."""


def drill_graph(
    graph: Path,
    choices: Sequence[Choice],
    up_arguments: Sequence[str],
    sets: Sequence[str],
    options: DrillOptions,
    folder: Path,
    say: Callable[[str], None],
) -> DrillResult:
    """Drill a copy of ``graph`` in ``folder``. StartError when it does not start.

    ``up_arguments``: options of `penstock up`; ``sets``: its `--set` values.
    """
    copy = folder / graph.name
    replicas, sets_of_up = _replicas(sets)
    text = read_text_file(graph)
    # `--set` would override the edits of the faults.
    write_file(copy, set_replicas(text, replicas, str(graph)) if replicas else text)
    # The port stays the same if `penstock up` is started again.
    arguments = ["--port", str(Ports().free()), *up_arguments]
    for expression in sets_of_up:
        arguments += ["--set", expression]
    env = {"PENSTOCK_STATE_HOME": str(folder / "state")}
    with GraphProcess(copy, folder, arguments, env) as process:
        try:
            process.wait_ready(START_LIMIT_S)
        except TimeoutError as error:
            raise StartError(str(error)) from None
        drill = _Drill(LocalGraph(process, choices, options.seed), options, say)
        drill.run()
        with interrupts.ignored():
            process.stop()
    return drill.result(_leftovers(copy, folder))


def _replicas(sets: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """The replicas of pools, and the other expressions."""
    replicas, sets_of_up = {}, []
    for expression in sets:
        if match := REPLICAS.fullmatch(expression):
            replicas[match[1]] = int(match[2])
        else:
            sets_of_up.append(expression)
    return replicas, sets_of_up


def drill_endpoint(
    endpoint: Target,
    options: DrillOptions,
    headers: Mapping[str, str] | None,
    say: Callable[[str], None],
) -> DrillResult:
    """Drill an endpoint that runs elsewhere. DrillError when a fault cannot be applied.

    ``headers``: None for an endpoint on loopback.
    """
    drill = _Drill(endpoint, options, say, headers)
    drill.run()
    return drill.result(())


class _Drill:
    """Requests and faults at the same time, on one clock."""

    def __init__(
        self,
        target: Target,
        options: DrillOptions,
        say: Callable[[str], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._target, self._options, self._say = target, options, say
        self._faults: list[FaultRecord] = []
        self._traffic = Traffic(
            target.endpoint,
            target.model,
            requests=options.streams,
            concurrency=options.streams,
            tokens=options.tokens,
            kinds=options.kinds,
            retries=RETRIES,
            retry_s=options.pace.retry_s,
            until_stopped=True,
            prompts=PROMPTS if options.exact else None,
            headers={**(headers or {}), **RANDOM_OUTPUT},
            trust_env=headers is not None,
        )
        self._memory = MemorySampler(target.processes)
        self._reference: Mapping[int, str] = {}
        self._stopping = False
        self._was_interrupted = False
        self._began = 0.0
        self._known_until_s = float("inf")

    def result(self, leftovers: Sequence[str]) -> DrillResult:
        """What the clients observed."""
        history = tuple(r for r in self._traffic.results if r.ended_s < self._known_until_s)
        faults = with_pauses(self._faults, history)
        return DrillResult(
            options=self._options,
            evaluation=evaluate(
                history,
                faults,
                stall_s=self._options.stall_s,
                expected=self._expected(),
                leftovers=leftovers,
                permitted=self._options.permitted,
                recovery_s=self._options.recovery_s,
            ),
            history=history,
            faults=faults,
            memory=self._memory.trends(),
            seconds=max((r.ended_s for r in history), default=0.0),
            was_interrupted=self._was_interrupted,
            engine_is_substitute=self._target.is_mocked,
        )

    def run(self) -> None:
        """KeyboardInterrupt if nothing was measured; later, Ctrl-C ends the drill early."""
        asyncio.run(self._run())
        if self._was_interrupted and not self._traffic.results:
            raise KeyboardInterrupt

    async def _run(self) -> None:
        self._stopped = asyncio.Event()
        with interrupts.calling(self._interrupt):
            self._current = asyncio.create_task(self._prepare())
            with contextlib.suppress(asyncio.CancelledError):
                await self._current
            if not self._stopping:
                await self._measure()

    def _interrupt(self) -> None:
        """End the drill at a signal: undo the fault, and give requests in flight a moment to end.
        At the second signal they get none."""
        if not self._was_interrupted:
            self._say("interrupted: stopping the drill")
        is_first = not self._was_interrupted and self._began > 0
        self._was_interrupted = True
        self._stop()
        delay_s = self._options.pace.interrupted_s if is_first else 0
        asyncio.get_running_loop().call_later(delay_s, self._current.cancel)

    def _stop(self) -> None:
        self._stopping = True
        self._traffic.until_stopped = False
        self._stopped.set()

    async def _prepare(self) -> None:
        if RequestKind.LONG in self._options.kinds:
            context = await self._context_length()
            self._traffic.long_tokens = min(LONG_TOKENS, context // 3)
        self._traffic.one_chunk_per_token = await self._has_one_chunk_per_token()
        if self._options.exact:
            self._reference = await self._without_faults()
            self._say(f"{len(self._reference)} of {PROMPTS} prompts have deterministic responses")

    async def _measure(self) -> None:
        self._say(f"sending {self._options.streams} concurrent requests to {self._target.endpoint}")
        self._began = time.monotonic()
        self._current = asyncio.create_task(self._traffic.run(self._began))
        with self._memory:
            try:
                await self._warm_up()
                await asyncio.to_thread(self._inject_all)
                await self._warm_up()
            except TimeoutError as error:
                raise DrillError(str(error)) from None
            finally:
                self._stop()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._current

    async def _warm_up(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), self._options.pace.warm_up_s)

    async def _has_one_chunk_per_token(self) -> bool:
        """Whether the chunks of a response can be counted, to find lost tokens.

        DrillError if the endpoint rejects each request of a kind: no fault is the reason.
        """
        sample = replace(
            self._traffic,
            requests=SAMPLE,
            concurrency=1,
            until_stopped=False,
            one_chunk_per_token=False,
            results=[],
        )
        await sample.run()
        for kind in self._options.kinds:
            of_kind = [r for r in sample.results if r.kind is kind]
            if of_kind and all(r.ending is Ending.REJECTED for r in of_kind):
                raise DrillError(
                    f"the endpoint rejects requests of this kind: {of_kind[0].error}",
                    place=f"--traffic {kind}",
                    fix="Remove the kind, or configure the graph for it.",
                )
        counts = {r.chunks for r in sample.results if not r.error and not r.kind.has_grammar}
        if counts <= {self._options.tokens}:
            return True
        self._say(
            "some chunks of this endpoint contain several tokens: checking the token count of the "
            "usage instead of counting chunks"
        )
        return False

    async def _context_length(self) -> int:
        """Of the model in tokens; enough for a long prompt if it is not known."""
        traffic = self._traffic
        async with httpx.AsyncClient(
            headers=dict(traffic.headers), trust_env=traffic.trust_env
        ) as client:
            with contextlib.suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
                models = (await client.get(f"{traffic.url}/models")).json()["data"]
                listed = {model["id"]: model for model in models}[traffic.model]
                return int(listed["context_window"])
        return 3 * LONG_TOKENS

    async def _without_faults(self) -> dict[int, str]:
        """Prompt → its response, where it is the same alone and among other requests.

        The size of a batch changes how sums are rounded, so a token can change when two tokens are
        almost equally likely.
        """
        texts: list[dict[int, str]] = []
        for concurrency in (1, self._options.streams, self._options.streams):
            traffic = replace(
                self._traffic,
                requests=PROMPTS,
                concurrency=concurrency,
                until_stopped=False,
                results=[],
            )
            await traffic.run()
            texts.append({r.number: r.text for r in traffic.results if not r.error})
        alone, *among_others = texts
        return {n: text for n, text in alone.items() if all(o.get(n) == text for o in among_others)}

    def _expected(self) -> dict[int, str]:
        """Number of a request → its response without faults, where this is known."""
        numbers = (result.number for result in self._traffic.results)
        return {n: self._reference[n % PROMPTS] for n in numbers if n % PROMPTS in self._reference}

    def _inject_all(self) -> None:
        while self._goes_on():
            fault = self._target.next()
            if fault is None:
                raise DrillError("none of the chosen faults can be injected into this graph")
            self._inject(fault)
            if self._stopping:
                return
            if self._faults[-1].recovered_s is None:
                self._say(
                    f"no recovery within {self._options.pace.recovery_s:.0f} s: stopping the drill"
                )
                return

    def _goes_on(self) -> bool:
        if self._stopping:
            return False
        if self._options.minutes is not None:
            return self._now() < self._options.minutes * 60
        return len(self._faults) < (self._options.count or 0)

    def _inject(self, fault: Fault) -> None:
        started = self._now()
        with self._target.applied(fault) as clients:
            recovered = self._wait(fault, fault.lasts_s, stops_early=fault.is_replaced)
        ended = self._now()
        if recovered is None:
            recovered = self._wait(fault, self._options.pace.recovery_s, stops_early=True)
        if recovered is None and self._stopping:
            self._known_until_s = started  # requests from now on may have failed because of it
            return
        record = FaultRecord(
            **{name: getattr(fault, name) for name in RECORDED if hasattr(fault, name)},
            number=len(self._faults) + 1,
            started_s=started,
            ended_s=ended,
            recovered_s=recovered,
            clients=clients,
            outcome=self._target.outcome(),
        )
        self._faults.append(record)
        took = "not recovered"
        if recovered is not None:
            took = f"all processes are ready after {recovered - started:.1f} s"
        self._say(f"{len(self._faults)}: {fault.kind} {fault.target}: {took}")

    def _wait(self, fault: Fault, seconds: float, *, stops_early: bool) -> float | None:
        """When the target recovered; None if it has not after ``seconds``.

        ``stops_early``: return once the target has been recovered for `Pace.steady_s`; otherwise
        wait for the full ``seconds``.
        """
        deadline = self._now() + seconds
        since: float | None = None
        while (since or self._now()) < deadline and not self._stopping:
            if stops_early and self._target.is_recovered(fault):
                since = self._now() if since is None else since
                if self._now() - since >= self._options.pace.steady_s:
                    return since
            else:
                since = None
            time.sleep(self._options.pace.poll_s)
        return None

    def _now(self) -> float:
        return time.monotonic() - self._began


def _leftovers(graph: Path, folder: Path) -> Sequence[str]:
    """What the graph left behind: processes, registrations, temporary files."""
    state = StateDir(graph, root=folder / "state")
    processes = [f"process {p.pid} ({p.name()})" for p in leftover_processes(state.path)]
    run = state.path / "run"
    return [*processes, *(str(path) for path in sorted(run.rglob("*")) if path.is_file())]
