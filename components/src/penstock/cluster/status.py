"""A release as it is now: revision, pools, what is wrong, and how it serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.cluster.api import Api, UnavailableError
from penstock.cluster.diagnose import is_ready
from penstock.cluster.frontend_metrics import FrontendMetrics, serving
from penstock.cluster.progress import Observed, Progress, rollout
from penstock.cluster.release import Release, Revision, require
from penstock.cluster.wait import see
from penstock.cluster.workloads import FRONTEND, POD_COMPONENT, workloads
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget
from penstock.metrics import Sample, parse

HTTP_PORT = 8000
WATCH_INTERVAL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Status:
    """``serving`` is None where no frontend could be asked, and ``unasked`` says why."""

    target: ReleaseTarget
    revision: Revision
    rollout: Progress
    serving: FrontendMetrics | None
    unasked: str = ""


@dataclass
class StatusReader:
    """Looks at one release; from the second look on, latencies are those since the one before."""

    api: Api
    target: ReleaseTarget
    _samples: tuple[Sample, ...] = field(default=())

    def look(self) -> Status:
        """Raises ClusterError."""
        release = require(self.target)
        seen = see(self.api, release, self.target)
        found: FrontendMetrics | None = None
        unasked = next((t for t in seen.unseen if t.startswith("Pod ")), "no frontend is ready")
        try:
            if samples := tuple(self._asked(release, seen)):
                found = serving(samples, self._samples)
                self._samples = samples
        except (ClusterError, ValueError) as error:
            unasked = str(error)
        return Status(
            target=self.target,
            revision=release.revision,
            rollout=rollout(release.objects, seen),
            serving=found,
            unasked="" if found else unasked,
        )

    def _asked(self, release: Release, seen: Observed) -> Iterator[Sample]:
        """The metrics of every frontend that is ready, through the API server."""
        args = workloads(release.objects)[FRONTEND].spec.get("args", {})
        port = int(args.get("--http-port", HTTP_PORT))
        for pod in seen.pods:
            if pod["metadata"]["labels"].get(POD_COMPONENT) == FRONTEND and is_ready(pod):
                yield from parse(self.api.ask_pod(pod["metadata"]["name"], port, "metrics"))


def as_text(status: Status) -> str:
    revision, rollout = status.revision, status.rollout
    state = "ready" if rollout.is_done else rollout.waits_for or "not ready"
    asked, seen = rollout.generation
    generation = f", generation {asked}" if asked else ""
    behind = f" (the operator has seen {seen})" if seen < asked else ""
    title = f"{status.target}: revision {revision.number} ({revision.status})"
    lines = [
        f"{title}{generation}{behind}: {state}",
        f"  {'pool':<12} {'ready':>7} {'updated':>8} {'restarts':>9} {'GPUs':>5}",
    ]
    lines += [
        f"  {p.name:<12} {f'{p.ready}/{p.desired}':>7} {p.updated:>8} {p.restarts:>9} "
        f"{p.gpus * p.replicas:>5}" + (f"  scaled by {p.scaler}" if p.scaler else "")
        for p in rollout.pools
    ]
    lines += [f"  ! {trouble}" for trouble in rollout.troubles]
    return "\n".join([*lines, *(f"  {line}" for line in _serves(status))])


def _serves(status: Status) -> Iterator[str]:
    found = status.serving
    if found is None:
        yield f"not asked how it serves: {status.unasked}"
        return
    for name, ready in found.models.items():
        yield f"model {name}: {'ready' if ready else 'NOT READY'}"
    if found.ttft_s is not None and found.itl_s is not None:
        hit = "" if found.cache_hit is None else f", {found.cache_hit:.0%} of the prompt in cache"
        yield (
            f"{found.requests:,} requests: TTFT p50 {found.ttft_s * 1000:.0f} ms, "
            f"ITL p50 {found.itl_s * 1000:.1f} ms{hit}"
        )
    else:
        yield f"{found.requests:,} requests"


def as_dict(status: Status) -> dict[str, Any]:
    found = status.serving
    return {
        "release": status.target.name,
        "namespace": status.target.namespace,
        "revision": status.revision.number,
        "status": status.revision.status,
        "generation": dict(zip(("asked", "seen"), status.rollout.generation, strict=True)),
        "ready": status.rollout.is_done,
        "waits_for": status.rollout.waits_for,
        "pools": [
            {
                "name": p.name,
                "desired": p.desired,
                "replicas": p.replicas,
                "updated": p.updated,
                "ready": p.ready,
                "restarts": p.restarts,
                "gpus": p.gpus * p.replicas,
                "scaled_by": str(p.scaler) if p.scaler else None,
            }
            for p in status.rollout.pools
        ],
        "troubles": [
            {"component": t.component, "pod": t.pod, "what": t.what, "words": t.words}
            for t in status.rollout.troubles
        ],
        "serving": None
        if found is None
        else {
            "models": found.models,
            "requests": found.requests,
            "ttft_p50_s": found.ttft_s,
            "itl_p50_s": found.itl_s,
            "cache_hit": found.cache_hit,
        },
    }


def watch(reader: StatusReader) -> int:
    """Print the status every two seconds until Ctrl-C, in place on a terminal.

    Raises ClusterError, except while the API server is unavailable: it may come back.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                text = as_text(reader.look())
            except UnavailableError as error:
                text = str(error)
            if console.is_terminal:
                live.update(Text(text), refresh=True)
            else:
                print(text, flush=True)
            time.sleep(WATCH_INTERVAL_S)
