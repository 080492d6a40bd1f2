"""From a Deployment to what runs on this machine: pure; every substitution becomes a note.

Frontends run as they are; an engine that needs a GPU which is not here is replaced by the mocker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.engines.engine import NoSimulation, Simulation
from penstock.errors import ManifestError, Problem
from penstock.local.machine import Machine
from penstock.local.plan import Infrastructure, LocalPlan, Program
from penstock.manifests.deployment import Component, Deployment, Engine, Launch, Role
from penstock.tokenizer import FOLDER

FRONTEND = "dynamo.frontend"
SERVING = (Role.PREFILL, Role.DECODE, Role.WORKER)
ROLES = {"agg": Role.WORKER, "prefill": Role.PREFILL, "decode": Role.DECODE}
# Flags that decide where a process listens or whom it asks; here the environment decides.
PLANE_FLAGS = ("--discovery-backend", "--request-plane", "--event-plane", "--namespace")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the operator asked of `up` beside the file."""

    engine: Engine | None = None  # --engine mocker
    port: int | None = None


@dataclass
class _Notes:
    """Said once each, in the order they came up."""

    lines: dict[str, None] = field(default_factory=dict)

    def say(self, line: str) -> None:
        self.lines.setdefault(line)


FindModel = Callable[[str], Path | None]
Simulate = Callable[[Component, Launch], Simulation | NoSimulation]


def interpret(
    deployment: Deployment,
    machine: Machine,
    choice: Choice,
    find_model: FindModel,
    simulate: Simulate,
) -> LocalPlan:
    """Raises ManifestError when the deployment has no frontend or no worker to run."""
    notes = _Notes()
    programs: list[Program] = []
    for component in deployment.components:
        programs += _programs(component, machine, choice, find_model, simulate, notes)
    _require(deployment, programs)
    return LocalPlan(
        name=deployment.name,
        namespace=f"{deployment.namespace}-{deployment.name}".replace(".", "-"),
        programs=tuple(sorted(programs, key=lambda p: p.role is Role.FRONTEND)),
        infrastructure=infrastructure(deployment),
        port=_port(deployment) if choice.port is None else choice.port,
        notes=tuple(notes.lines),
    )


def _programs(
    component: Component,
    machine: Machine,
    choice: Choice,
    find_model: FindModel,
    simulate: Simulate,
    notes: _Notes,
) -> list[Program]:
    made: list[Program] = []
    for index, launch in enumerate(component.launches):
        name = component.name if len(component.launches) == 1 else f"{component.name}-{index}"
        name = name.lower()
        if launch.module == FRONTEND:
            made.append(_frontend(name, component, launch, machine, notes))
        elif is_stood_in(component, machine, choice):
            made += _stand_in(name, component, launch, machine, find_model, simulate, notes)
        elif component.engine is not None and component.role in SERVING:
            made.append(_worker(name, component, launch, machine, find_model, notes))
        else:
            what = launch.module or (launch.argv[0] if launch.argv else "nothing")
            notes.say(f"{component.name}: not run here ({component.role}: {what})")
    return made


def is_stood_in(component: Component, machine: Machine, choice: Choice) -> bool:
    """Whether the mocker takes the engine's place."""
    if component.engine in (None, Engine.MOCKER) or component.role not in SERVING:
        return False
    return choice.engine is Engine.MOCKER or component.engine not in machine.interpreters


def _frontend(
    name: str, component: Component, launch: Launch, machine: Machine, notes: _Notes
) -> Program:
    arguments = _without_planes(launch.arguments)
    if _value(arguments, "--dyn-chat-processor") in ("vllm", "sglang"):
        notes.say(f"{name}: Dynamo's own chat processor stands in for the engine's")
        arguments = _without(arguments, "--dyn-chat-processor")
    return Program(
        name=name,
        component=component.name,
        role=Role.FRONTEND,
        replicas=component.replicas,
        argv=(machine.python, "-m", FRONTEND, *arguments),
        env=_environment(launch),
        files=launch.files,
        grace_s=component.grace_s,
    )


def _worker(
    name: str,
    component: Component,
    launch: Launch,
    machine: Machine,
    find_model: FindModel,
    notes: _Notes,
) -> Program:
    """An engine that runs here as it is: the mocker, or a real one with its own interpreter."""
    engine = component.engine or Engine.MOCKER
    python = machine.interpreters.get(engine, machine.python)
    arguments = _without_planes(launch.arguments)
    if engine is Engine.MOCKER:
        arguments = _with_model(name, arguments, find_model, notes)
    return Program(
        name=name,
        component=component.name,
        role=component.role,
        replicas=component.replicas,
        argv=(python, "-m", launch.module or "", *arguments),
        env=_environment(launch),
        files=launch.files,
        grace_s=component.grace_s,
    )


def _stand_in(
    name: str,
    component: Component,
    launch: Launch,
    machine: Machine,
    find_model: FindModel,
    simulate: Simulate,
    notes: _Notes,
) -> list[Program]:
    simulation = simulate(component, launch)
    if isinstance(simulation, NoSimulation):
        notes.say(f"{name}: not run here: {simulation.reason}")
        return []
    why = "asked for" if component.engine in machine.interpreters else "no GPU on this machine"
    notes.say(f"{name}: mocker stands in for {component.engine} ({why})")
    if simulation.taken_over:
        notes.say(f"{name}: taken over: {'; '.join(simulation.taken_over)}")
    if simulation.left_out:
        notes.say(f"{name}: not simulated: {'; '.join(simulation.left_out)}")
    model = (
        "--model-path",
        simulation.model,
        "--model-name",
        simulation.served_names[0],
    )
    arguments = _with_model(name, (*model, *simulation.arguments), find_model, notes)
    program = Program(
        name=name,
        component=component.name,
        role=ROLES.get(_value(arguments, "--disaggregation-mode") or "agg", Role.WORKER),
        replicas=component.replicas,
        argv=(machine.python, "-m", "dynamo.mocker", *arguments),
        env={},
        grace_s=component.grace_s,
        stands_in=True,
    )
    return [program]


def _with_model(
    name: str, arguments: tuple[str, ...], find_model: FindModel, notes: _Notes
) -> tuple[str, ...]:
    """The mocker needs a tokenizer: the model's own when it is here, else the packaged one."""
    model = _value(arguments, "--model-path")
    if model is None:
        return arguments
    folder = find_model(model)
    if folder is None:
        notes.say(
            f"tokenizer: the packaged small one stands in for {model}, whose files are not on this "
            "machine; token counts differ"
        )
        folder = FOLDER
    bare = _without(arguments, "--model-path")
    named = () if _value(arguments, "--model-name") else ("--model-name", model)
    return ("--model-path", str(folder), *named, *bare)


def _environment(launch: Launch) -> Mapping[str, str]:
    """The manifest's environment but for what names places of the cluster."""
    foreign = (
        "DYN_SYSTEM_PORT",
        "DYN_HTTP_PORT",
        "DYN_NAMESPACE",
        "HF_HOME",
        "DYN_FILE_KV",
    )
    return {k: v for k, v in launch.env.items() if k not in foreign}


def _without_planes(arguments: tuple[str, ...]) -> tuple[str, ...]:
    for flag in PLANE_FLAGS:
        arguments = _without(arguments, flag)
    return arguments


def _value(arguments: tuple[str, ...], flag: str) -> str | None:
    """The last value given for ``flag``, as `--flag value` or `--flag=value`."""
    found = None
    for at, part in enumerate(arguments):
        if part == flag and at + 1 < len(arguments):
            found = arguments[at + 1]
        elif part.startswith(f"{flag}="):
            found = part.removeprefix(f"{flag}=")
    return found


def _without(arguments: tuple[str, ...], flag: str) -> tuple[str, ...]:
    kept: list[str] = []
    skip = False
    for part in arguments:
        if skip:
            skip = False
        elif part == flag:
            skip = True
        elif not part.startswith(f"{flag}="):
            kept.append(part)
    return tuple(kept)


def _require(deployment: Deployment, programs: list[Program]) -> None:
    """A completion needs a frontend and a worker of each role: else `up` would wait in vain."""
    replicas = Counter[Role]()
    for program in programs:
        replicas[program.role] += program.replicas
    roles = {p.role for p in programs} - {Role.FRONTEND}
    needed = [Role.FRONTEND, *sorted(roles)]
    problems = [f"has no {role} that can run here" for role in needed if not replicas[role]]
    problems += [] if roles else ["has no worker that can run here"]
    if problems:
        found = ", ".join(f"{c.name} ({c.role}, {c.replicas})" for c in deployment.components)
        raise ManifestError(
            *(
                Problem(
                    file=deployment.source,
                    place=deployment.name,
                    message=message,
                    fix=f"give it one; components and replicas are {found}",
                )
                for message in problems
            )
        )


def infrastructure(deployment: Deployment) -> Infrastructure:
    """What the components' environment and flags ask for; Kubernetes discovery becomes files."""
    asked: dict[str, str] = {}
    for component in deployment.components:
        for launch in component.launches:
            asked |= {k: v for k, v in launch.env.items() if v}
            asked |= _planes_of(launch)
    discovery = "etcd" if asked.get("DYN_DISCOVERY_BACKEND") == "etcd" else "file"
    endpoints = asked.get("ETCD_ENDPOINTS", "")
    return Infrastructure(
        discovery=discovery,
        events=asked.get("DYN_EVENT_PLANE", "zmq"),
        requests=asked.get("DYN_REQUEST_PLANE", "tcp"),
        etcd_endpoints=tuple(e for e in endpoints.split(",") if e),
        nats_url=asked.get("NATS_SERVER", ""),
    )


def _planes_of(launch: Launch) -> dict[str, str]:
    names = {
        "--discovery-backend": "DYN_DISCOVERY_BACKEND",
        "--event-plane": "DYN_EVENT_PLANE",
        "--request-plane": "DYN_REQUEST_PLANE",
    }
    values = {name: _value(launch.arguments, flag) for flag, name in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def _port(deployment: Deployment) -> int:
    for component in deployment.components:
        for launch in component.launches:
            if launch.module == FRONTEND:
                text = _value(launch.arguments, "--http-port") or launch.env.get("DYN_HTTP_PORT")
                if text and text.isdigit():
                    return int(text)
    return 8000
