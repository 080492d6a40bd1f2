"""What live views need: a source of snapshots, and the state that a snapshot is made from.

`source.py` implements the source for a graph that `up` runs, and `cluster/source.py` for a release
on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.live.model import LiveSnapshot
from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import GatewayStatus
from penstock.manifests.deployment import Role


class SnapshotSource(Protocol):
    """Follows one running graph."""

    @property
    def chat_url(self) -> str | None:
        """Base URL of an endpoint that needs no key; None if none is known."""
        ...

    async def snapshot(self) -> LiveSnapshot:
        """The graph now, with the metrics of the last scrape."""
        ...

    async def measured(self) -> LiveSnapshot:
        """After two scrapes, for rates."""
        ...

    async def close(self) -> None: ...


class Replica(Protocol):
    """One process of the graph: a process of this machine, or a pod."""

    @property
    def name(self) -> str: ...
    @property
    def program(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def state(self) -> ReplicaState: ...
    @property
    def key(self) -> int | str:
        """Identifies the process; it has another key after a restart."""
        ...

    @property
    def pid(self) -> int | None: ...
    @property
    def restarts(self) -> int: ...
    @property
    def worker_id(self) -> str | None: ...
    @property
    def is_substitute(self) -> bool: ...


class GraphState(Protocol):
    """A running graph at one moment, without metrics."""

    @property
    def source(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def endpoint(self) -> str | None: ...
    @property
    def gateway(self) -> GatewayStatus | None: ...
    @property
    def models(self) -> tuple[str, ...]: ...
    @property
    def rejected_edit(self) -> tuple[str, ...]: ...
    @property
    def desired_replicas(self) -> Mapping[str, int]: ...
    @property
    def replicas(self) -> Sequence[Replica]: ...
