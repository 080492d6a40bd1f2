"""What the graph promises, read from its manifests: so any DGD can be verified, not only ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.manifests import flags
from penstock.manifests.deployment import Component, Deployment, Engine, KnownConfig, Launch, Role
from penstock.manifests.source import Source

WORKERS = (Role.PREFILL, Role.DECODE, Role.WORKER)
FRONTEND = "dynamo.frontend"
# Where each engine's file and command line hold the same thing.
CONTEXT_LENGTH = {
    Engine.TRTLLM: ("max_seq_len", "--max-seq-len"),
    Engine.VLLM: ("max-model-len", "--max-model-len"),
    Engine.SGLANG: ("context-length", "--context-length"),
    Engine.MOCKER: ("engine.max_model_len", "--max-model-len"),
}
BLOCK_SIZE = {
    Engine.TRTLLM: ("kv_cache_config.tokens_per_block", "--kv-block-size"),
    Engine.VLLM: ("block-size", "--block-size"),
    Engine.SGLANG: ("page-size", "--page-size"),
    Engine.MOCKER: ("engine.block_size", "--block-size"),
}
KV_DTYPE = {
    Engine.TRTLLM: ("kv_cache_config.dtype", "--kv-cache-dtype"),
    Engine.VLLM: ("kv-cache-dtype", "--kv-cache-dtype"),
    Engine.SGLANG: ("kv-cache-dtype", "--kv-cache-dtype"),
    Engine.MOCKER: ("engine.kv_cache_dtype", "--kv-cache-dtype"),
}
DTYPE = dict.fromkeys(Engine, ("dtype", "--dtype"))
RDMA = ("rc", "dc", "ud", "ib")  # how UCX's names of InfiniBand and RoCE transports begin

Launches = Sequence[tuple[Component, Launch]]
Table = Mapping[Engine, tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """None: the manifests do not say. ``workers`` counts processes by role; ``kv_dtype`` is the
    engine's word for the type of its KV cache; ``transport`` is rdma, tcp or auto."""

    models: tuple[str, ...]
    workers: Mapping[Role, int]
    engines: frozenset[Engine]
    router_mode: str
    kv_events: bool
    migration_limit: int
    block_size: int | None
    context_length: int | None
    kv_dtype: str | None
    reasoning_parser: str | None
    tool_call_parser: str | None
    transport: str
    must_pass: frozenset[str] = frozenset()

    @property
    def disaggregated(self) -> bool:
        return Role.PREFILL in self.workers


def expected_of(source: Source) -> Expected:
    deployment = source.deployment
    front = _frontend(deployment)
    events = _setting(front, "", "DYN_ROUTER_USE_KV_EVENTS") or "true"
    workers = [c for c in deployment.components if c.role in WORKERS]
    launches = [(c, launch) for c in workers for launch in c.launches]
    counts = {role: sum(_processes(c) for c in workers if c.role is role) for role in WORKERS}
    must = source.loaded.graph.verify.must_pass if source.loaded is not None else ()
    return Expected(
        models=tuple(dict.fromkeys(filter(None, (_model(launch) for _, launch in launches)))),
        workers={role: count for role, count in counts.items() if count},
        engines=frozenset(c.engine for c in workers if c.engine is not None),
        router_mode=_setting(front, "--router-mode", "DYN_ROUTER_MODE") or "round-robin",
        kv_events="--no-router-kv-events" not in front.arguments
        and events.lower() not in ("0", "false", "no"),
        migration_limit=int(_setting(front, "--migration-limit", "DYN_MIGRATION_LIMIT") or 0),
        block_size=_count(launches, BLOCK_SIZE),
        context_length=_count(launches, CONTEXT_LENGTH),
        kv_dtype=_first(launches, KV_DTYPE) or _first(launches, DTYPE),
        reasoning_parser=_flag(launches, "--dyn-reasoning-parser"),
        tool_call_parser=_flag(launches, "--dyn-tool-call-parser"),
        transport=_transport(launches),
        must_pass=frozenset(must),
    )


def _frontend(deployment: Deployment) -> Launch:
    """The frontend's launch; a graph without one (an EPP in its place) has Dynamo's defaults."""
    launches = (launch for c in deployment.components for launch in c.launches)
    nothing = Launch(argv=(), env={})
    return next((launch for launch in launches if launch.module == FRONTEND), nothing)


def _setting(launch: Launch, flag: str, variable: str) -> str | None:
    """What Dynamo takes: the flag, else the variable."""
    return flags.value(launch.arguments, flag) or launch.env.get(variable) or None


def _processes(component: Component) -> int:
    return component.replicas * max(1, len(component.launches))


def _model(launch: Launch) -> str | None:
    names = ("--served-model-name", "--model-name", "--model", "--model-path")
    return next((v for n in names if (v := flags.value(launch.arguments, n))), None)


def _flag(launches: Launches, flag: str) -> str | None:
    return next((v for _, launch in launches if (v := flags.value(launch.arguments, flag))), None)


def _count(launches: Launches, table: Table) -> int | None:
    text = _first(launches, table)
    return int(text) if text is not None and text.isdigit() else None


def _first(launches: Launches, table: Table) -> str | None:
    """What the first worker says that says it; that all agree is `penstock check`'s to see."""
    for component, launch in launches:
        key, flag = table[component.engine or Engine.MOCKER]
        if text := flags.value(launch.arguments, flag):
            return text
        if isinstance(component.engine_config, KnownConfig):
            value = _at(component.engine_config.values, key)
            if value is not None:
                return str(value)
    return None


def _at(values: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; vLLM's and SGLang's files take either dash or underscore."""
    found: Any = values
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key, found.get(key.replace("-", "_")))
    return found


def _transport(launches: Launches) -> str:
    """UCX_TLS without tcp forbids it; with tcp and no RDMA transport it forbids RDMA. A list that
    begins with ^ says what is forbidden."""
    for _, launch in launches:
        said = launch.env.get("UCX_TLS", "").replace(" ", "")
        if said.startswith("^"):
            return "rdma" if "tcp" in said[1:].split(",") else "auto"
        allowed = said.split(",")
        has_rdma = any(name.startswith(RDMA) for name in allowed)
        if has_rdma:
            return "auto" if "tcp" in allowed else "rdma"
        if "tcp" in allowed:
            return "tcp"
    return "auto"
