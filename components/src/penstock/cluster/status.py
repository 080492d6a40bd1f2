"""The status of a release: revision, pools, problems and frontend metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.cluster.api import Api
from penstock.cluster.api_errors import UnavailableError
from penstock.cluster.frontends import frontend_port, ready_frontends
from penstock.cluster.progress import (
    Observation,
    OwnObjects,
    Progress,
    observe,
    progress_of,
    with_admission,
)
from penstock.cluster.release import Release, Revision, require_installed
from penstock.errors import ClusterError
from penstock.helm import ReleaseTarget
from penstock.metrics import Sample, parse
from penstock.serving.frontend_metrics import FrontendMetrics, summarize

# Of a pool, as JSON.
COUNTS = ("name", "desired", "replicas", "updated", "ready", "admitted", "restarts")
WATCH_INTERVAL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Status:
    """One release at one moment."""

    target: ReleaseTarget
    revision: Revision
    progress: Progress
    # None if no frontend's metrics could be read; ``metrics_error`` says why.
    metrics: FrontendMetrics | None
    metrics_error: str = ""


@dataclass
class StatusReader:
    """Reads the status of one release; from the second read on, metrics cover the interval since
    the previous read."""

    api: Api
    target: ReleaseTarget
    _samples: tuple[Sample, ...] = field(default=())
    _own: OwnObjects = field(init=False)

    def __post_init__(self) -> None:
        self._own = OwnObjects(self.api, self.target)

    def read(self) -> Status:
        """Raises ClusterError."""
        release = require_installed(self.target, self.api)
        observation = observe(self._own, release)
        metrics: FrontendMetrics | None = None
        metrics_error = observation.forbidden.get("Pod", "no frontend is ready")
        try:
            if samples := tuple(self._frontend_samples(release, observation)):
                metrics = summarize(samples, self._samples)
                self._samples = samples
        except (ClusterError, ValueError) as error:
            metrics_error = str(error)
        progress = progress_of(release.objects, observation)
        return Status(
            target=self.target,
            revision=release.revision,
            progress=with_admission(progress, self.api, release, observation),
            metrics=metrics,
            metrics_error="" if metrics else metrics_error,
        )

    def _frontend_samples(self, release: Release, observation: Observation) -> Iterator[Sample]:
        """The metrics of every ready frontend, through the API server."""
        port = frontend_port(release)
        for name in ready_frontends(observation.pods):
            yield from parse(self.api.get_from_pod(name, port, "metrics"))


def as_text(status: Status) -> str:
    revision, progress = status.revision, status.progress
    state = "ready" if progress.is_done else progress.waiting_for or "not ready"
    newest, observed = progress.generation
    generation = f", generation {newest}" if newest else ""
    behind = f" (observed by the operator: {observed})" if observed < newest else ""
    title = f"{status.target}: {revision}"
    lines = [
        f"{title}{generation}{behind}: {state}",
        f"  {'pool':<12} {'ready':>7} {'admitted':>9} {'updated':>8} {'restarts':>9} {'GPUs':>5}",
    ]
    lines += [
        f"  {p.name:<12} {f'{p.ready}/{p.desired}':>7} "
        f"{'' if p.admitted is None else p.admitted:>9} {p.updated:>8} {p.restarts:>9} "
        f"{p.gpus * p.replicas:>5}" + (f"  scaled by {p.scaler}" if p.scaler else "")
        for p in progress.pools
    ]
    lines += [f"  ! {diagnosis}" for diagnosis in progress.diagnoses]
    lines += [f"  not shown: {reason}" for reason in progress.forbidden]
    return "\n".join([*lines, *(f"  {line}" for line in _metrics_lines(status))])


def _metrics_lines(status: Status) -> Iterator[str]:
    metrics = status.metrics
    if metrics is None:
        yield f"no metrics: {status.metrics_error}"
        return
    for name, ready in metrics.models.items():
        yield f"model {name}: {'ready' if ready else 'NOT READY'}"
    if metrics.ttft_s is not None and metrics.itl_s is not None:
        rate = metrics.prefix_hit_rate
        hits = "" if rate is None else f", prefix-cache hit rate {rate:.0%}"
        yield (
            f"{metrics.requests:,} requests: TTFT p50 {metrics.ttft_s * 1000:.0f} ms, "
            f"ITL p50 {metrics.itl_s * 1000:.1f} ms{hits}"
        )
    else:
        yield f"{metrics.requests:,} requests"


def as_dict(status: Status) -> dict[str, Any]:
    progress, metrics = status.progress, status.metrics
    return {
        "release": status.target.name,
        "namespace": status.target.namespace,
        "revision": status.revision.number or None,
        "status": status.revision.status,
        "generation": dict(zip(("desired", "observed"), progress.generation, strict=True)),
        "ready": progress.is_done,
        "waiting_for": progress.waiting_for,
        "pools": [
            {key: getattr(p, key) for key in COUNTS}
            | {"gpus": p.gpus * p.replicas, "scaled_by": str(p.scaler) if p.scaler else None}
            for p in progress.pools
        ],
        "problems": [
            {"component": d.component, "pod": d.pod, "problem": d.problem, "message": d.message}
            for d in progress.diagnoses
        ],
        "not_shown": list(progress.forbidden),
        "metrics": None
        if metrics is None
        else {
            "models": metrics.models,
            "requests": metrics.requests,
            "ttft_p50_s": metrics.ttft_s,
            "itl_p50_s": metrics.itl_s,
            "prefix_hit_rate": metrics.prefix_hit_rate,
        },
    }


def watch(reader: StatusReader) -> int:
    """Print the status every two seconds until q or Ctrl-C; a terminal is updated in place.

    Raises ClusterError, but retries while the API server is unavailable, below the last status.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from penstock.text.terminal import QUIT, keys

    console = Console(highlight=False)
    last = ""
    with keys() as pressed, Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                text = last = as_text(reader.read())
            except UnavailableError as error:
                stale = f"{last}\n  not updated: " if last else ""
                text = f"{stale}{error}; retrying"
            if console.is_terminal:
                live.update(Text(text), refresh=True)
            else:
                print(text, flush=True)
            if pressed(WATCH_INTERVAL_S) in QUIT:
                return 0
