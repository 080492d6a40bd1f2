"""What a deployment must do, read from its manifests, so that any DGD can be verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.engines.settings import read_settings
from penstock.manifests import flags
from penstock.manifests.deployment import WORKERS, Component, Deployment, Engine, Launch, Role
from penstock.manifests.source import Source

FRONTEND = "dynamo.frontend"
RDMA = ("rc", "dc", "ud", "ib")  # how UCX's names of InfiniBand and RoCE transports begin

Launches = Sequence[tuple[Component, Launch]]


@dataclass(frozen=True, kw_only=True)
class Expectations:
    """The values to verify. None: the manifests do not set it."""

    models: tuple[str, ...]
    """Served model names."""
    workers: Mapping[Role, int]
    """Worker processes of each role."""
    engines: frozenset[Engine]
    router_mode: str
    kv_events: bool
    migration_limit: int
    block_size: int | None
    """Tokens in a KV block."""
    context_length: int | None
    """Tokens of prompt and output together."""
    kv_dtype: str | None
    """The engine's name for the type of its KV cache."""
    reasoning_parser: str | None
    tool_call_parser: str | None
    transport: str
    """How KV moves: rdma, tcp or auto."""
    uses_ucx: bool = True
    """Whether UCX moves KV, as far as known: llama.cpp's workers use shared memory."""
    empty_pools: tuple[str, ...] = ()
    """Names of the worker pools with 0 replicas."""
    must_pass: frozenset[str] = frozenset()
    """Probes that fail when they cannot tell."""

    @property
    def disaggregated(self) -> bool:
        return Role.PREFILL in self.workers

    @property
    def runs_llamacpp(self) -> bool:
        """Whether the workers cache and transfer tokens, not blocks."""
        return self.engines == {Engine.LLAMACPP}


def read_expectations(source: Source) -> Expectations:
    deployment = source.deployment
    front = _frontend(deployment)
    events = _setting(front, "", "DYN_ROUTER_USE_KV_EVENTS") or "true"
    workers = [c for c in deployment.components if c.role in WORKERS]
    launches = [(c, launch) for c in workers for launch in c.launches]
    counts = {role: sum(_processes(c) for c in workers if c.role is role) for role in WORKERS}
    must = source.loaded.graph.verify.must_pass if source.loaded is not None else ()
    return Expectations(
        models=tuple(dict.fromkeys(filter(None, (_model(launch) for _, launch in launches)))),
        workers={role: count for role, count in counts.items() if count},
        engines=frozenset(c.engine for c in workers if c.engine is not None),
        router_mode=_setting(front, "--router-mode", "DYN_ROUTER_MODE") or "round-robin",
        kv_events="--no-router-kv-events" not in front.arguments
        and events.lower() not in ("0", "false", "no"),
        migration_limit=int(_setting(front, "--migration-limit", "DYN_MIGRATION_LIMIT") or 0),
        block_size=_count(launches, "block_size"),
        context_length=_count(launches, "context_length"),
        kv_dtype=_first(launches, "kv_dtype") or _first(launches, "dtype"),
        reasoning_parser=_flag(launches, "--dyn-reasoning-parser"),
        tool_call_parser=_flag(launches, "--dyn-tool-call-parser"),
        transport=_transport(launches),
        uses_ucx=not all(c.engine is Engine.LLAMACPP for c in workers),
        empty_pools=tuple(c.name for c in workers if not c.replicas),
        must_pass=frozenset(must),
    )


def _frontend(deployment: Deployment) -> Launch:
    """The frontend's launch; a graph without one (it uses an EPP) has Dynamo's defaults."""
    launches = (launch for c in deployment.components for launch in c.launches)
    empty = Launch(argv=(), env={})
    return next((launch for launch in launches if launch.module == FRONTEND), empty)


def _setting(launch: Launch, flag: str, variable: str) -> str | None:
    """The value that Dynamo uses: the flag's, else the variable's."""
    return flags.flag_value(launch.arguments, flag) or launch.env.get(variable) or None


def _processes(component: Component) -> int:
    return component.replicas * max(1, len(component.launches))


def _model(launch: Launch) -> str | None:
    names = ("--served-model-name", "--model-name", "--model", "--model-path")
    return next((v for n in names if (v := flags.flag_value(launch.arguments, n))), None)


def _flag(launches: Launches, flag: str) -> str | None:
    return next(
        (v for _, launch in launches if (v := flags.flag_value(launch.arguments, flag))), None
    )


def _count(launches: Launches, name: str) -> int | None:
    text = _first(launches, name)
    return int(text) if text is not None and text.isdigit() else None


def _first(launches: Launches, name: str) -> str | None:
    """The first worker's value; `penstock check` verifies that all workers agree."""
    for component, launch in launches:
        if component.engine is not None:
            setting = read_settings(component, launch).common(name)
            if setting is not None and setting.value is not None:
                return str(setting.value)
    return None


def _transport(launches: Launches) -> str:
    """From UCX_TLS. A list without tcp forbids TCP, one with tcp but without RDMA forbids RDMA.
    A list that begins with ^ names what is forbidden."""
    for _, launch in launches:
        transports = launch.env.get("UCX_TLS", "").replace(" ", "")
        if transports.startswith("^"):
            return "rdma" if "tcp" in transports[1:].split(",") else "auto"
        allowed = transports.split(",")
        has_rdma = any(name.startswith(RDMA) for name in allowed)
        if has_rdma:
            return "auto" if "tcp" in allowed else "rdma"
        if "tcp" in allowed:
            return "tcp"
    return "auto"
