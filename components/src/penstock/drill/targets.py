"""What a drill injects faults into: a graph that it started, or an endpoint that runs elsewhere."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol, Self

import httpx
import psutil
from pydantic import Field, model_validator

from penstock.drill.faults import (
    GRAPH,
    Choice,
    Fault,
    Need,
    Rotation,
    Schedule,
    current,
    is_settled,
)
from penstock.drill.graph_process import GraphProcess
from penstock.drill.inject import send
from penstock.errors import DrillError, UsageError
from penstock.files import in_repository
from penstock.graph.edit import scalable_pools
from penstock.graph.text_file import read_text_file
from penstock.strict_yaml.base import Items, Spec, Text, invalid
from penstock.strict_yaml.kind import DocumentKind
from penstock.strict_yaml.problems import field_problems, parse_strictly
from penstock.text.names import did_you_mean

COMMAND_S = 60.0
COMPLETIONS = 3  # in a row, after which an endpoint has recovered


class Target(Protocol):
    """An endpoint and the faults that can be injected into it."""

    endpoint: str
    """OpenAI base URL, with `/v1`."""
    model: str
    """The served name to request."""
    is_mocked: bool | None = None
    """Whether mockers run instead of the engine; None if it is not known."""

    def next(self) -> Fault | None:
        """The next fault; None if none is possible."""

    def applied(self, fault: Fault) -> contextlib.AbstractContextManager[tuple[int, ...] | None]:
        """Apply the fault; leaving the context ends it.

        Yields the ports of the clients that were connected to its target; None if it could have
        been any.
        """

    def is_recovered(self, fault: Fault) -> bool:
        """Whether everything serves again."""

    def outcome(self) -> str:
        """What the report says about the current fault, such as why it was refused."""
        return ""

    def processes(self) -> Mapping[str, int]:
        """Name → pid of the processes whose memory is sampled."""
        return {}


class LocalGraph(Target):
    """A graph that the drill itself started."""

    def __init__(self, process: GraphProcess, choices: Sequence[Choice], seed: int) -> None:
        self._process = process
        self._kinds = {choice.kind.name: choice.kind for choice in choices}
        self._schedule = Schedule(possible(choices, process.graph.read_text("utf-8")), seed)
        state = current(process)
        self.endpoint, self.model = state.endpoint, state.models[0]
        self.is_mocked = state.has_mocker
        require_programs(choices, {replica.program for replica in state.replicas})

    def next(self) -> Fault | None:
        return self._schedule.next(current(self._process))

    @contextlib.contextmanager
    def applied(self, fault: Fault) -> Iterator[tuple[int, ...]]:
        clients: tuple[int, ...] = ()
        if fault.port is not None and fault.is_replaced:
            send(fault.pids, signal.SIGSTOP)  # so that no client connects before the fault
            clients = _clients(fault.pids[0], fault.port)
        with self._kinds[fault.kind].apply(fault, self._process):
            yield clients

    def is_recovered(self, fault: Fault) -> bool:
        state = current(self._process)
        is_gone = not {replica.pid for replica in state.replicas} & set(fault.pids)
        return is_settled(state) and (is_gone or not fault.is_replaced)

    def processes(self) -> Mapping[str, int]:
        rows = self._process.state().get("replicas", ())
        return {"penstock": self._process.pid} | {row["name"]: row["pid"] for row in rows}


def require_programs(
    choices: Sequence[Choice], programs: Collection[str], services: Collection[str] = ()
) -> None:
    """UsageError for a choice of another program. ``services``: those that may be there."""
    unknown = [c.program for c in choices if c.program and c.program not in {*programs, *services}]
    if unknown:
        fix = did_you_mean(unknown[0], programs) or f"Use one of {', '.join(sorted(programs))}."
        message = f"the graph has no program `{unknown[0]}`"
        raise UsageError(message, place="--faults", fix=fix)


def possible(choices: Sequence[Choice], graph: str) -> list[Choice]:
    """The choices without the edits of replicas, if all pools of the graph are autoscaled."""
    has_replicas = bool(scalable_pools(graph))
    return [c for c in choices if has_replicas or c.kind.needs is not Need.REPLICAS]


class RemoteEndpoint(Target):
    """An endpoint that the drill did not start: faults are commands of the user.

    DrillError when it does not list a model.
    """

    def __init__(
        self,
        url: str,
        model: str | None,
        faults: Sequence[CommandFault],
        seed: int,
        headers: Mapping[str, str],
        *,
        pause_s: float = 0.2,
    ) -> None:
        """``pause_s``: pause after each completion that tests whether it has recovered."""
        try:
            self._client = httpx.Client(base_url=url, headers=dict(headers), timeout=30)
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not a URL: {error}") from None
        self._faults = {fault.name: fault for fault in faults}
        self._rotation = Rotation[str](seed)
        self._succeeded = 0
        self._pause_s = pause_s
        self.endpoint = url
        self.model = model or first_model(self._client, url)

    def next(self) -> Fault | None:
        chosen = self._faults[self._rotation.next(sorted(self._faults))]
        self._succeeded = 0
        return Fault(
            kind=chosen.name,
            target=GRAPH,
            role=None,
            has_survivor=chosen.survivor,
            lasts_s=chosen.lasts_s,
            is_outage=not chosen.survivor,
            stalls=True,
            is_of_network=True,  # a command may be anything
        )

    @contextlib.contextmanager
    def applied(self, fault: Fault) -> Iterator[tuple[int, ...]]:
        chosen = self._faults[fault.kind]
        try:
            _execute(chosen.name, chosen.command)
            yield ()
        finally:
            if chosen.undo:
                _execute(chosen.name, chosen.undo)

    def is_recovered(self, fault: Fault) -> bool:
        """Whether several completions in a row have succeeded."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 1,
        }
        try:
            succeeded = self._client.post("chat/completions", json=body).is_success
        except httpx.HTTPError:
            succeeded = False
        self._succeeded = self._succeeded + 1 if succeeded else 0
        time.sleep(self._pause_s)
        return self._succeeded >= COMPLETIONS


def first_model(client: httpx.Client, endpoint: str) -> str:
    """The first model that the endpoint lists. Raises DrillError."""
    try:
        response = client.get("models").raise_for_status()
        return str(response.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        cause = error if isinstance(error, httpx.HTTPError) else "the response is not OpenAI's list"
        raise DrillError(
            f"cannot list the models: {cause}",
            place=f"{endpoint}/models",
            fix="Check that an endpoint runs there and that the URL ends in /v1, set "
            "OPENAI_API_KEY, or pass --model.",
        ) from None


def _clients(pid: int, port: int) -> tuple[int, ...]:
    with contextlib.suppress(psutil.NoSuchProcess):
        connections = psutil.Process(pid).net_connections("tcp")
        return tuple(c.raddr.port for c in connections if c.raddr and c.laddr.port == port)
    return ()


def _execute(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
            start_new_session=True,  # Ctrl-C must not end the command that undoes a fault
        )
    except subprocess.TimeoutExpired:
        raise DrillError(
            f"`{' '.join(command)}` did not finish within {COMMAND_S:.0f} s",
            place=name,
            fix="Let the command return immediately, such as `kubectl … --wait=false`.",
        ) from None
    except OSError as error:
        raise DrillError(f"cannot run {command[0]}: {error.strerror}", place=name) from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        message = f"`{' '.join(command)}` exited with {done.returncode}: {' '.join(last)}"
        raise DrillError(message, place=name)


FAULTS = DocumentKind(name="a faults file", example=in_repository("k8s/drill.yaml"))
Command = Annotated[Items[Text], Field(min_length=1)]


class CommandFault(Spec):
    """A fault that commands inject, such as the deletion of a pod."""

    name: Text = Field(description="Kind of the fault, for the report.")
    command: Command = Field(description="Program and arguments that inject the fault; no shell.")
    undo: Items[Text] = Field(
        default=(), description="Program and arguments that end the fault; if unset, none."
    )
    lasts_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Time in seconds between `command` and `undo`; without `undo`, time to wait "
        "before the recovery is checked.",
    )
    survivor: bool = Field(
        default=True,
        description="Whether another replica can serve requests during the fault; if false, "
        "requests that fail before the recovery count as unavoidable.",
    )


class FaultsFile(Spec):
    """Commands for any endpoint."""

    faults: Annotated[Items[CommandFault], Field(min_length=1)] = Field(
        description="Faults, each injected once in seeded order before any is repeated."
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [fault.name for fault in self.faults]
        for number, name in enumerate(names):
            if name in names[:number]:
                place = f"faults[{number}].name"
                raise invalid(place, f"{name!r} is given twice", "Choose another name.")
        return self


def load_faults(path: Path) -> FaultsFile:
    """InputError when the file cannot be read, GraphError with every problem in it."""
    problems_of = partial(field_problems, root=FaultsFile)
    return parse_strictly(read_text_file(path), str(path), FAULTS, FaultsFile, problems_of)
