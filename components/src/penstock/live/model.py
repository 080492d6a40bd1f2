"""What a live view shows: snapshots, and their source.

`snapshot.py` makes the plain data. In every figure, None means: not measured or not exported.
Views show it as "–", not as 0. `source.py` implements the source for a graph that `up` runs, and
`cluster/source.py` for a release on a cluster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.local.events import Event
from penstock.local.reconcile import ReplicaState
from penstock.manifests.deployment import Role

if TYPE_CHECKING:  # a local graph needs nothing of a cluster
    from penstock.live.cluster.state import PodReplica, ReleaseState
    from penstock.local.state_file import LocalState, ReplicaStatus

    Replica = ReplicaStatus | PodReplica
    GraphState = LocalState | ReleaseState

STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """One frontend or worker process."""

    name: str
    """`decode.0`, or the name of a pod."""
    component: str
    role: Role
    state: ReplicaState
    pid: int | None
    """None for a pod."""
    restarts: int
    worker_id: str | None
    """Dynamo's worker ID in hexadecimal."""
    is_substitute: bool
    """A mocker runs instead of the graph's engine."""
    responds: bool | None
    """Whether its metrics were read in the last scrape; None before the first."""
    running: int | None = None
    """Requests in the engine; of a frontend, requests in flight."""
    queued: int | None = None
    """Requests that wait for the engine; of a frontend, in the queue of its router."""
    kv_usage: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    prefix_hit_rate: float | None = None
    """Share of prompt tokens found in a KV cache, 0 to 1."""
    request_rate: float | None = None
    """Completed requests/s."""
    output_token_rate: float | None = None
    """Output tokens/s."""
    ttft_s: float | None = None
    """Of a frontend, the median; of a prefill or aggregated worker, that of its last request."""
    itl_s: float | None = None
    """Of a frontend, the median; of a decode or aggregated worker, that of its last request."""
    in_flight: int | None = None
    """Requests in Dynamo's handler of a worker; an engine that hangs does not count its own."""
    stalled_s: float = 0.0
    """Seconds without a sent byte, although requests are in flight."""
    stall_limit_s: float = 0.0
    """Seconds after which it hangs."""


@dataclass(frozen=True, kw_only=True)
class ComponentView:
    """One component of the graph."""

    name: str
    role: Role
    desired: int
    ready: int


@dataclass(frozen=True, kw_only=True)
class Edge:
    """Traffic between two components; ``source`` may be `clients` and both may be `router`."""

    source: str
    target: str
    request_rate: float | None
    """Requests/s."""
    byte_rate: float | None = None
    """Bytes/s of a KV transfer."""
    is_kv_transfer: bool = False


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Figures of all frontends, over `LiveSnapshot.window_s`."""

    started_rate: float | None = None
    """Requests/s that arrived."""
    request_rate: float | None = None
    """Requests/s that completed."""
    input_token_rate: float | None = None
    """Prompt tokens/s."""
    output_token_rate: float | None = None
    """Output tokens/s."""
    ttft_s: float | None = None
    """Median time to first token."""
    itl_s: float | None = None
    """Median inter-token latency."""
    prefix_hit_rate: float | None = None
    """Share of prompt tokens found in a KV cache, 0 to 1."""
    running: int | None = None
    """Requests in flight."""
    router_queue: int | None = None
    """Requests that wait in the routers."""


@dataclass(frozen=True, kw_only=True)
class LiveSnapshot:
    """A running graph at one moment."""

    graph: str
    """Path of the graph or manifest; of a release, its name and namespace."""
    phase: str
    """`starting`, `ready`, `draining` or `stopped`; of a release, also `updating` or
    `unreachable`."""
    endpoint: str | None
    """OpenAI base URL, with `/v1`; None once it has stopped, and for a release without --url."""
    models: tuple[str, ...]
    time_s: float
    """When the state was read, in seconds since 1970."""
    window_s: float | None
    """Time that rates and latencies cover; None before the second scrape."""
    totals: Totals
    components: tuple[ComponentView, ...]
    workers: tuple[WorkerView, ...]
    edges: tuple[Edge, ...]
    events: tuple[Event, ...]
    """Oldest first."""
    alerts: tuple[str, ...]
    """Conditions that need attention now."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `penstock top --json`, and what the page gets."""
        return asdict(self)


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
