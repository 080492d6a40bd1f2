"""The state file of a running graph: `up` writes it; status, verify, scale, logs and `up --detach`
read it through `StateDir.read`.

msgspec reads it, because models of pydantic take 0.15 s to import, which `ls` would wait for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.errors import InputError
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role
from penstock.text.commands import restart

VERSION: Literal[1] = 1


class Phase(StrEnum):
    """What `up` is doing with the graph as a whole."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class StateModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Strict: a file of another version is reported, never half-read."""


class FileDiscoveryState(StateModel, frozen=True, kw_only=True, tag_field="backend", tag="file"):
    """Workers register as files."""

    folder: str
    namespace: str
    """Dynamo namespace prefix of the graph's workers."""


class EtcdDiscoveryState(StateModel, frozen=True, kw_only=True, tag_field="backend", tag="etcd"):
    """Workers register as keys in etcd."""

    endpoint: str
    namespace: str
    """Dynamo namespace prefix of the graph's workers."""


DiscoveryState = FileDiscoveryState | EtcdDiscoveryState


class ReplicaStatus(StateModel, frozen=True, kw_only=True):
    """One process of the graph or of its local services."""

    name: str
    """`decode.0`; a service has no number."""
    program: str
    role: Role
    state: ReplicaState
    pid: int
    port: int | None
    """HTTP port of a frontend, or the port of a service."""
    system_port: int | None
    """Metrics port of a worker."""
    worker_id: str | None
    """Dynamo's worker id in hexadecimal; None until the worker registers."""
    restarts: int
    exit_code: int | None
    """None while it runs; negative: ended by that signal."""
    log: str
    is_substitute: bool
    """A mocker runs instead of the graph's engine."""
    is_mocker: bool = False
    """Whether a mocker runs: as a substitute, or because the graph sets it as the engine."""
    gpus: tuple[int, ...] = ()
    """Indices of its GPUs, as in `nvidia-smi`."""

    @property
    def key(self) -> int:
        """Identifies the process: it has another pid after a restart."""
        return self.pid


class GatewayStatus(StateModel, frozen=True, kw_only=True):
    """The gateway in front of the endpoint; it requires a key from clients."""

    url: str
    """OpenAI base URL, with `/v1`."""
    pid: int
    is_running: bool
    restarts: int
    clients: tuple[str, ...]
    """Names of the clients that have a key."""
    summary: str
    """One line about keys and limits."""
    rejected_keys: tuple[str, ...]
    """Lines of the error for the last edit of the file of keys; empty when it was applied."""
    log: str


class LocalState(StateModel, frozen=True, kw_only=True):
    """A running graph as `up` last saw it."""

    version: Literal[1] = VERSION
    pid: int
    """Process that runs `penstock up`."""
    source: str
    """Absolute path of the graph or manifest."""
    sets: tuple[str, ...]
    """The `--set` values of `up`."""
    phase: Phase
    endpoint: str
    """OpenAI base URL, with `/v1`; behind a gateway it needs no key."""
    gateway: GatewayStatus | None = None
    """None without a gateway."""
    models: tuple[str, ...]
    """Served model names; empty until the first completion."""
    envoy: bool
    """Envoy runs in front of the frontends."""
    notes: tuple[str, ...]
    """What differs from the cluster, such as substitutes."""
    rejected_edit: tuple[str, ...]
    """Lines of the error for the last edit; empty when it was applied."""
    desired_replicas: Mapping[str, int]
    """Replicas of each program in the graph."""
    discovery: DiscoveryState
    replicas: tuple[ReplicaStatus, ...]

    @property
    def has_substitute(self) -> bool:
        return any(replica.is_substitute for replica in self.replicas)

    @property
    def has_mocker(self) -> bool:
        return any(replica.is_mocker for replica in self.replicas)


def dump_state(state: LocalState) -> str:
    return msgspec.json.format(msgspec.json.encode(state), indent=1).decode()


def state_of(document: dict[str, Any]) -> LocalState:
    """The state in the JSON document of `penstock status --json`. Raises ValueError."""
    return msgspec.convert(document, LocalState)


def load_state(text: str, path: Path, source: Path) -> LocalState:
    """The state in ``text``; ``path`` is its file and ``source`` the graph, for the message.

    InputError for a file that another version wrote, or that is not a state file.
    """
    try:
        return msgspec.json.decode(text, type=LocalState)
    except msgspec.DecodeError as error:
        raise InputError(
            f"the state of the running graph cannot be read: {_reason(text, error)}",
            file=str(path),
            fix=f"Run {restart(source)}.",
        ) from None


def _reason(text: str, error: msgspec.DecodeError) -> str:
    try:
        content = json.loads(text)
    except ValueError:
        return "it is not JSON"
    if not isinstance(content, dict):
        return "it is not a JSON object"
    version = content.get("version")
    if version is None:
        return f"an older version of penstock wrote it (no version; expected {VERSION})"
    if version != VERSION:
        return f"another version of penstock wrote it (version {version!r}; expected {VERSION})"
    return str(error)
