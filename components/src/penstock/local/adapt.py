"""Turn a Deployment into the programs that run on this machine. Pure.

Frontends run unchanged. An engine whose GPU is missing is replaced by the mocker. Every difference
from the cluster becomes a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock.engines.engine import NoSimulation, Simulation
from penstock.errors import ManifestError, Problem, UsageError
from penstock.local import (
    adapter_launch,
    cpu_engine,
    gpu_engine,
    llamacpp_engine,
    local_flags,
    predicted_timing,
    tool_template,
    tracing,
    untrusted,
)
from penstock.local.deployment import Infrastructure, LocalDeployment, Overrides, Program
from penstock.local.local_flags import FRONTEND
from penstock.local.machine import Machine
from penstock.local.ports import is_local
from penstock.local.predicted_timing import PredictedTiming
from penstock.local.versions import Interpreters, environment_of
from penstock.manifests import flags
from penstock.manifests.deployment import WORKERS, Component, Deployment, Engine, Launch, Role
from penstock.manifests.roles import configured_role, engine_of
from penstock.tokenizer import FOLDER

# What replaces a component that the image or the operator starts.
NOT_STARTED = {
    Role.EPP: "an endpoint picker, which only a cluster has; the frontends choose the workers",
    Role.PLANNER: "the planner, which scales the pools of a cluster",
}
ROLES = {"agg": Role.WORKER, "prefill": Role.PREFILL, "decode": Role.DECODE}
# Variables of Dynamo's runtime that also a mocker in place of an engine reads.
LIMITS = ("DYN_ENGINE_REQUEST_LIMIT", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT")
# Flags that choose addresses and planes; here the environment sets them.
PLANE_FLAGS = (
    *("--discovery-backend", "--request-plane", "--response-plane", "--event-plane"),
    *("--namespace", "--namespace-prefix", "--endpoint"),
)
# Variables that point into the cluster; `up` sets its own.
CLUSTER_VARIABLES = frozenset(
    {
        *("DYN_SYSTEM_PORT", "DYN_HTTP_PORT", "DYN_NAMESPACE", "DYN_NAMESPACE_PREFIX"),
        *("DYN_RESPONSE_PLANE", "DYN_KSERVE_GRPC_SERVER", "DYN_INTERACTIVE", "DYN_CHAT_PROCESSOR"),
        *("DYN_TLS_CERT_PATH", "DYN_TLS_KEY_PATH", "DYN_TLS_CLIENT_CA_CERT_PATH", "DYN_FILE_KV"),
        *("ETCD_ENDPOINTS", "NATS_SERVER", "TIKTOKEN_ENCODINGS_BASE", "HF_HOME"),
    }
)
# A worker of one kind registers that it needs the other: until then, no model is listed.
COUNTERPART = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


FindModel = Callable[[str], Path | None]
FindGguf = Callable[[str], llamacpp_engine.GgufModel]
Simulate = Callable[[Component, Launch], Simulation | NoSimulation]
Settings = Callable[[Component, Launch], Mapping[str, Any]]


def adapt(
    deployment: Deployment,
    machine: Machine,
    overrides: Overrides,
    find_model: FindModel,
    simulate: Simulate,
    settings: Settings,
    timing: PredictedTiming | None = None,
    versions: Mapping[str, Interpreters] = MappingProxyType({}),
    find_gguf: FindGguf = llamacpp_engine.find_gguf,
    exists: local_flags.Exists = local_flags.exists,
) -> LocalDeployment:
    """The programs of ``deployment`` on ``machine``.

    ``versions``: component → interpreters with its version of Dynamo, if it is not the machine's.
    ``settings``: a launch's settings from the engine's own parser, empty when it was not parsed.
    ``timing``: predicted step times of the graph's hardware, for the substituted mockers.

    ManifestError when no frontend or no worker can run here. MissingToolError or InputError when a
    CPU engine lacks its environment or its model. UsageError for ``timing`` with an engine that is
    not substituted.
    """
    adapter = _Adapter(
        machine,
        overrides,
        find_model,
        simulate,
        settings,
        local_flags.uses_harmony(deployment),
        timing,
        versions,
        find_gguf,
        exists,
    )
    programs = [p for c in deployment.components for p in adapter.programs(c)]
    require_frontend_and_worker(deployment, programs, adapter.not_started)
    programs, adapted = adapter_launch.with_adapter(programs, overrides)
    if adapted is not None:
        adapter.notes.setdefault(adapter_launch.note(adapted, programs))
    return LocalDeployment(
        name=deployment.name,
        namespace=f"{deployment.namespace}-{deployment.name}".replace(".", "-"),
        programs=tuple(sorted(programs, key=lambda p: p.role is Role.FRONTEND)),
        infrastructure=adapter.on_this_machine(infrastructure(deployment)),
        port=_port(deployment) if overrides.port is None else overrides.port,
        notes=(*adapter.notes, *(timing.notes if timing else ()), *tracing.notes(deployment)),
        is_traced=tracing.is_traced(deployment),
    )


def is_substituted(component: Component, machine: Machine, overrides: Overrides) -> bool:
    """Whether the mocker runs instead of the engine."""
    if component.engine in (None, Engine.MOCKER) or component.role not in WORKERS:
        return False
    if overrides.engine is Engine.MOCKER:
        return True
    if cpu_engine.computes_on_cpu(component) or component.engine is Engine.LLAMACPP:
        return False
    return component.engine not in machine.interpreters


@dataclass
class _Adapter:
    """Builds the programs and collects the notes."""

    machine: Machine
    overrides: Overrides
    find_model: FindModel
    simulate: Simulate
    settings: Settings
    harmony: bool
    """A worker names a parser that needs the Harmony vocabulary."""
    timing: PredictedTiming | None
    versions: Mapping[str, Interpreters]
    find_gguf: FindGguf
    exists: local_flags.Exists
    not_started: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    """Used as an ordered set."""

    def _python(self, component: Component) -> str:
        other = self.versions.get(component.name)
        return self.machine.python if other is None else other.python

    def programs(self, component: Component) -> list[Program]:
        several = len(component.launches) > 1
        if not component.launches:
            what = NOT_STARTED.get(component.role, f"{component.role}: only its image decides")
            self._note(f"{component.name}: not started on this machine ({what})")
        programs = []
        for index, launch in enumerate(component.launches):
            name = f"{component.name}-{index}" if several else component.name
            programs += self._launch(name.lower(), component, launch)
        return programs

    def _launch(self, name: str, component: Component, launch: Launch) -> list[Program]:
        if launch.module == FRONTEND:
            return [self._frontend(name, component, launch)]
        if is_substituted(component, self.machine, self.overrides):
            return self._substitute(name, component, launch)
        self._require_no_timing(component)
        if component.engine is not None and component.role in WORKERS:
            return [self._worker(name, component, launch, component.engine)]
        what = launch.module or " ".join(launch.argv[:3]) or "nothing"
        self._note(f"{component.name}: not started on this machine ({component.role}: {what})")
        self.not_started.append(f"{component.name} runs {what}")
        return []

    def _frontend(self, name: str, component: Component, launch: Launch) -> Program:
        graph_arguments = flags.without_flags(launch.arguments, *PLANE_FLAGS)
        arguments, changes = local_flags.frontend_arguments(graph_arguments, launch.env)
        for change in changes:
            self._note(f"{name}: {change}")
        program = self._program(name, component, launch, self._python(component), arguments)
        program = replace(program, role=Role.FRONTEND)
        vocabulary = self.machine.harmony_vocabulary
        if self.harmony and vocabulary is None:
            self._note(local_flags.DOWNLOADED)
        variables = local_flags.harmony_variables(vocabulary) if self.harmony else {}
        return replace(program, env={**program.env, **variables})

    def _worker(self, name: str, component: Component, launch: Launch, engine: Engine) -> Program:
        """An engine that runs itself: the mocker, or a real one on GPUs or CPUs."""
        arguments = flags.without_flags(launch.arguments, *PLANE_FLAGS)
        if cpu_engine.computes_on_cpu(component):
            return self._cpu_worker(name, component, launch, arguments)
        if engine is Engine.LLAMACPP:
            return self._llamacpp_worker(name, component, launch, arguments)
        if "DYN_NAMESPACE" in launch.env:
            self._note(f"{name}: ignoring DYN_NAMESPACE: `up` sets it to keep graphs apart")
        if engine is not Engine.MOCKER:
            return self._gpu_worker(name, component, launch, engine, arguments)
        arguments, changes = local_flags.mocker_arguments(launch, arguments, self.exists)
        for change in changes:
            self._note(f"{name}: {change}")
        arguments = self._with_model(arguments)
        return self._program(name, component, launch, self._python(component), arguments)

    def _gpu_worker(
        self,
        name: str,
        component: Component,
        launch: Launch,
        engine: Engine,
        arguments: tuple[str, ...],
    ) -> Program:
        gpus = gpu_engine.replica_gpus(component, launch)
        folder = self.find_model(gpu_engine.model_name(engine, arguments))
        model = gpu_engine.model(engine, arguments, folder)
        local_arguments = gpu_engine.arguments(
            engine, model.arguments, self.settings(component, launch)
        )
        python = self.machine.interpreters[engine]
        program = self._program(name, component, launch, python, local_arguments)
        self._note(f"{name}: running {engine} on this machine's GPUs, {gpus} for each replica")
        return replace(
            program,
            env={**gpu_engine.defaults(python), **program.env, **gpu_engine.loopback(engine)},
            ports=gpu_engine.ports(engine),
            gpus=gpus,
            weights_bytes=model.weights_bytes,
        )

    def _cpu_worker(
        self, name: str, component: Component, launch: Launch, graph_arguments: tuple[str, ...]
    ) -> Program:
        # Before the engine's environment, which comes with that of a packaged model.
        arguments = cpu_engine.arguments(
            graph_arguments,
            self.settings(component, launch),
            self.find_model(flags.flag_value(graph_arguments, "--model") or ""),
        )
        other = self.versions.get(component.name)
        if other is None:
            installed = self.machine.interpreters.get(cpu_engine.ENVIRONMENT)
            python = cpu_engine.require_environment(installed)
        else:
            environment = environment_of(other.version, cpu_engine.ENVIRONMENT)
            python = cpu_engine.require_environment(other.cpu, environment)
        program = self._program(name, component, launch, python, arguments)
        env = {**cpu_engine.environment(python), **program.env, **cpu_engine.loopback()}
        program = replace(program, env=env, ports=cpu_engine.PORTS)
        return tool_template.with_tools(program, flags.flag_value(arguments, "--model"))

    def _llamacpp_worker(
        self, name: str, component: Component, launch: Launch, graph_arguments: tuple[str, ...]
    ) -> Program:
        packages = llamacpp_engine.require_packages(self.machine.interpreters)
        model = self.find_gguf(flags.flag_value(graph_arguments, "--model") or "")
        arguments = llamacpp_engine.arguments(graph_arguments, model)
        python = self._python(component)
        program = self._program(name, component, launch, python, arguments)
        env = llamacpp_engine.variables(program.env, packages, python)
        program = replace(program, env=env)
        return tool_template.with_tools(program, str(model.folder))

    def _substitute(self, name: str, component: Component, launch: Launch) -> list[Program]:
        simulation = self.simulate(component, launch)
        if isinstance(simulation, NoSimulation):
            self._note(f"{name}: not started on this machine: {simulation.reason}")
            self.not_started.append(f"{name}: {simulation.reason}")
            return []
        reason = self._substitution_reason(component)
        self._note(f"{name}: using mocker instead of {component.engine} ({reason})")
        python = self._python(component)
        files: Mapping[str, str] = {}
        env = {name: launch.env[name] for name in LIMITS if name in launch.env}
        simulated = flags.without_flags(simulation.arguments, "--endpoint")
        if self.timing is not None:  # its notes come with it
            engine = self.timing.engines[component.name]
            described = predicted_timing.describe(engine)
            self._note(f"{name}: predicted timing, not measured: {described}")
            python, files, env = self.timing.python, predicted_timing.files(engine), {}
            simulated = predicted_timing.arguments(engine)
        elif simulation.simulated:
            self._note(f"{name}: mocker settings from the graph: {'; '.join(simulation.simulated)}")
        if self.timing is None and simulation.not_simulated:
            self._note(f"{name}: not simulated: {'; '.join(simulation.not_simulated)}")
        model = ("--model-path", simulation.model, "--model-name", simulation.served_names[0])
        arguments = self._with_model((*model, *simulated))
        program = Program(
            name=name,
            component=component.name,
            role=ROLES[flags.flag_value(arguments, "--disaggregation-mode") or "agg"],
            replicas=component.replicas,
            argv=(python, "-m", "dynamo.mocker", *arguments),
            env=env,
            files=files,
            grace_s=component.grace_s,
            is_substitute=True,
        )
        return [program]

    def _require_no_timing(self, component: Component) -> None:
        if self.timing is not None and component.role in WORKERS:
            raise UsageError(
                f"--timing model needs mockers, but {component.name} would run {component.engine} "
                "itself: add --engine mocker"
            )

    def _substitution_reason(self, component: Component) -> str:
        if component.engine in self.machine.interpreters or self.overrides.engine:
            return "--engine mocker"
        if self.machine.gpus:
            return (
                f"this machine has a GPU, but not environment {component.engine}: "
                f"`penstock tools env install {component.engine}`"
            )
        return self.machine.no_gpu

    def _with_model(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Add the model's own tokenizer if it is on this machine, else the packaged one."""
        model = flags.flag_value(arguments, "--model-path")
        if model is None:
            return arguments
        folder = self.find_model(model)
        if folder is None:
            self._note(
                f"tokenizer: using the packaged tokenizer instead of that of {model}, whose files "
                "are not on this machine"
            )
            folder = FOLDER
        bare = flags.without_flags(arguments, "--model-path")
        named = () if flags.flag_value(arguments, "--model-name") else ("--model-name", model)
        return ("--model-path", str(folder), *named, *bare)

    def _program(
        self,
        name: str,
        component: Component,
        launch: Launch,
        python: str,
        graph_arguments: tuple[str, ...],
    ) -> Program:
        """A launch with its files and environment, without what points into the cluster and what
        `untrusted` leaves out."""
        env = tracing.without(launch.env)
        env = {k: v for k, v in env.items() if k not in CLUSTER_VARIABLES}
        env, unsafe_variables = untrusted.safe_variables(env)
        argv = (python, "-m", launch.module or "", *graph_arguments)
        argv, unsafe_flags = untrusted.safe_arguments(argv, launch.files)
        unsafe = unsafe_flags | unsafe_variables
        for reason in dict.fromkeys(unsafe.values()):
            settings = ", ".join(setting for setting, cause in unsafe.items() if cause == reason)
            self._note(f"{name}: ignoring {settings}: {reason}")
        return Program(
            name=name,
            component=component.name,
            role=component.role,
            replicas=component.replicas,
            argv=argv,
            env=env,
            files=launch.files,
            grace_s=component.grace_s,
        )

    def on_this_machine(self, planes: Infrastructure) -> Infrastructure:
        """Without the servers of other machines, whose clients could not reach the workers here:
        these listen on loopback only."""
        etcd = tuple(url for url in planes.etcd_endpoints if is_local(url))
        servers = [url.strip() for url in planes.nats_url.split(",") if url.strip()]
        nats = [url for url in servers if is_local(url)]
        for url in {*planes.etcd_endpoints, *servers} - {*etcd, *nats}:
            used = nats if url in servers else etcd
            instead = "" if used else ": starting a server here instead"
            self._note(f"ignoring {url} on this machine{instead}")
        return replace(planes, etcd_endpoints=etcd, nats_url=",".join(nats))

    def _note(self, line: str) -> None:
        self.notes.setdefault(line)


def _port(deployment: Deployment) -> int:
    for component in deployment.components:
        for launch in component.launches:
            if launch.module == FRONTEND:
                text = flags.flag_value(launch.arguments, "--http-port") or launch.env.get(
                    "DYN_HTTP_PORT"
                )
                if text and text.isdigit():
                    return int(text)
    return 8000


def infrastructure(deployment: Deployment) -> Infrastructure:
    """The planes that the components configure. Kubernetes discovery becomes file discovery."""
    configured: dict[str, str] = {}
    for component in deployment.components:
        for launch in component.launches:
            configured |= {k: v for k, v in launch.env.items() if v}
            configured |= _planes_of(launch)
    discovery = "etcd" if configured.get("DYN_DISCOVERY_BACKEND") == "etcd" else "file"
    endpoints = configured.get("ETCD_ENDPOINTS", "")
    return Infrastructure(
        discovery=discovery,
        events=configured.get("DYN_EVENT_PLANE", "zmq"),
        requests=configured.get("DYN_REQUEST_PLANE", "tcp"),
        etcd_endpoints=tuple(e for e in endpoints.split(",") if e),
        nats_url=configured.get("NATS_SERVER", ""),
    )


def _planes_of(launch: Launch) -> dict[str, str]:
    names = {
        "--discovery-backend": "DYN_DISCOVERY_BACKEND",
        "--event-plane": "DYN_EVENT_PLANE",
        "--request-plane": "DYN_REQUEST_PLANE",
    }
    values = {name: flags.flag_value(launch.arguments, flag) for flag, name in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def require_frontend_and_worker(
    deployment: Deployment, programs: Sequence[Program], not_started: Sequence[str]
) -> None:
    """ManifestError if one of them is missing; `adapt` calls it.

    ``not_started``: the components that do not run on this machine, each with what it runs.
    """
    roles = {program.role for program in programs}
    missing = [] if Role.FRONTEND in roles else ["frontend"]
    missing += [] if roles - {Role.FRONTEND} else ["worker"]
    skipped = f" (not started: {'; '.join(not_started)})" if not_started else ""
    components = ", ".join(f"{c.name} ({c.role})" for c in deployment.components)
    problems = [
        Problem(
            file=deployment.source,
            place=deployment.name,
            message=f"has no {kind} that can run on this machine{skipped}",
            fix=f"Add one. Its components are {components}.",
        )
        for kind in missing
    ]
    if problems:
        raise ManifestError(*problems)


def require_pairs(deployment: Deployment, programs: Sequence[Program]) -> None:
    """ManifestError if prefill or decode workers run without the other; `prepare` calls it."""
    roles = [_runs_as(deployment, program) for program in programs]
    problems = [
        _without_counterpart(deployment, program, role)
        for program, role in zip(programs, roles, strict=True)
        if role in COUNTERPART and COUNTERPART[role] not in roles
    ]
    if problems:
        raise ManifestError(*problems)


def _runs_as(deployment: Deployment, program: Program) -> Role:
    """What the command line makes of a worker, whatever the component's type says."""
    if program.role not in COUNTERPART or program.is_substitute:
        return program.role
    component = deployment.component(program.component)
    _, launch = engine_of(component.launches)
    if launch is None:
        return program.role
    return configured_role(launch, component.engine, component.engine_config) or Role.WORKER


def _without_counterpart(deployment: Deployment, program: Program, role: Role) -> Problem:
    """The component that is meant is of the missing type, and its command sets no mode."""
    needed = COUNTERPART[role]
    meant = [c.name for c in deployment.components if c.role is needed]
    fix = f"Add `--disaggregation-mode {needed}` to the command of {', '.join(meant)}."
    if not meant:
        fix = f"Add a {needed} component, or run {program.component} without disaggregation."
    return Problem(
        file=deployment.source,
        place=deployment.component(program.component).place or program.component,
        message=f"runs as a {role} worker, but no worker of this graph runs as a {needed} "
        "worker, so the frontend would list no model",
        fix=fix,
    )
