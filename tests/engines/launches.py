"""Launches and components for the tests of the engines, as the manifests' reader makes them."""

from __future__ import annotations

import functools
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence

from penstock.engines.engine import Simulation
from penstock.engines.parsers import (
    ARGUMENTS,
    NotParsed,
    Parsed,
    ParseResult,
    ParserOutput,
    Rejected,
    check_launches,
    child_env,
    decode_outputs,
    encode_launches,
)
from penstock.engines.table import simulate
from penstock.manifests.deployment import Component, Engine, EngineConfig, Launch, NoConfig, Role

PLACE = "spec.components[0]"
MODULES = {
    Engine.TRTLLM: "dynamo.trtllm",
    Engine.VLLM: "dynamo.vllm",
    Engine.SGLANG: "dynamo.sglang",
    Engine.MOCKER: "dynamo.mocker",
}


@functools.cache
def parser_process() -> subprocess.Popen[str]:
    """One `parse_child` for all tests; it ends when pytest ends and so closes its stdin."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        (sys.executable, *ARGUMENTS), stdin=pipe, stdout=pipe, text=True, env=child_env()
    )


def run_in_shared_process(launches: Sequence[Launch]) -> list[ParserOutput]:
    """As `run_child`, without the second a new process takes."""
    child = parser_process()
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(encode_launches(launches))
    child.stdin.flush()
    return decode_outputs(child.stdout.readline())


def checked_all(launches: Sequence[tuple[str, Launch]]) -> tuple[ParseResult, ...]:
    return check_launches(launches, run=run_in_shared_process)


def launch(
    line: str,
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    unresolved: tuple[str, ...] = (),
) -> Launch:
    """`dynamo.vllm --model x` as the manifest of a component would start it."""
    return Launch(
        argv=("python3", "-m", *shlex.split(line)),
        env=env or {},
        files=files or {},
        unresolved=unresolved,
        place=PLACE,
    )


def checked(line: str, **launch_parts: object) -> Parsed | NotParsed | Rejected:
    """The result for one launch."""
    (result,) = checked_all([("worker", launch(line, **launch_parts))])  # type: ignore[arg-type]
    return result


def rejection(line: str, **launch_parts: object) -> str:
    """The problem of a launch that must be rejected."""
    result = checked(line, **launch_parts)
    assert isinstance(result, Rejected), result
    return str(result.problem)


def settings(line: str, **launch_parts: object) -> Mapping[str, object]:
    """The settings of a launch that must be accepted."""
    result = checked(line, **launch_parts)
    assert isinstance(result, Parsed), result
    return result.settings


def component(of: Launch, engine: Engine, config: EngineConfig) -> Component:
    return Component(
        name="worker",
        role=Role.WORKER,
        replicas=1,
        gpus=1,
        nodes=1,
        image="nvcr.io/nvidia/ai-dynamo/runtime:1.6.1",
        launches=(of,),
        engine=engine,
        engine_config=config,
        grace_s=60,
        place=PLACE,
    )


def simulated(
    engine: Engine,
    flags: str,
    config: EngineConfig | None = None,
    env: Mapping[str, str] | None = None,
) -> Simulation:
    """The simulation of an engine with ``flags``, of which the mocker accepts the command."""
    started = launch(f"{MODULES[engine]} {flags}", env=env)
    (parsed,) = checked_all([("worker", started)])
    assert not isinstance(parsed, Rejected), parsed.problem
    worker = component(started, engine, config or NoConfig())
    mocker = simulate(worker, started, parsed)
    assert isinstance(mocker, Simulation), mocker
    mocker_accepts(mocker)
    return mocker


def mocker_accepts(mocker: Simulation) -> None:
    """Assert that the real mocker's parser and configuration accept the arguments."""
    model = ("--model-path", mocker.model, "--model-name", mocker.served_names[0])
    command = Launch(
        argv=("python3", "-m", "dynamo.mocker", *mocker.arguments, *model), env={}, place=PLACE
    )
    (result,) = checked_all([("mocker", command)])
    assert isinstance(result, Parsed), result


def value_of(mocker: Simulation, flag: str) -> str | None:
    """The value of ``flag`` in the mocker's command line; None if it is absent."""
    arguments = list(mocker.arguments)
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def line_about(lines: tuple[str, ...], topic: str) -> str:
    """The one line that begins with ``topic``."""
    (line,) = [text for text in lines if text.startswith(topic)]
    return line
