"""Reads what a live view shows of a release: objects, pods and events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.cluster.api import Api
from penstock.cluster.api_errors import ForbiddenError
from penstock.cluster.progress import Observation, OwnObjects, progress_of, read_objects
from penstock.cluster.release import Release, read_installed, require_installed
from penstock.cluster.status import HTTP_PORT, frontend_port
from penstock.cluster.workloads import FRONTEND, POD_GRAPH, WORKLOAD_KINDS, Object, workloads
from penstock.helm import ReleaseTarget
from penstock.live.cluster.state import ReleaseState, replicas_of, role_of
from penstock.live.snapshot import ORDER

RELEASE_S = 10.0  # between two reads of Helm's record, which costs more than a list of pods
EVENTS_S = 4.0  # between two lists of all events of the namespace


def rule(resource: str, verb: str) -> str:
    """The rule of a Role, as an imperative."""
    return (
        f'add the rule {{apiGroups: [""], resources: ["{resource}"], verbs: ["{verb}"]}} to the '
        "Role of the kubeconfig's user"
    )


@dataclass
class ReleaseReader:
    """Blocking; one read at a time."""

    api: Api
    target: ReleaseTarget
    url: str | None = None
    events: tuple[tuple[Object, str], ...] = ()
    """About the release's objects, each with its component, as last listed."""
    events_error: ForbiddenError | None = None
    _own: OwnObjects = field(init=False)
    _release: Release | None = field(default=None)
    _release_at_s: float = float("-inf")
    _events_at_s: float = float("-inf")

    def __post_init__(self) -> None:
        self._own = OwnObjects(self.api, self.target)

    def first(self) -> None:
        """Raises ClusterError if the release is not installed."""
        self._release = require_installed(self.target, self.api)

    def read(self, now_s: float) -> ReleaseState | None:
        """The current state; None if the release is not installed any more. ``now_s``: monotonic.

        Raises ClusterError: ForbiddenError if the user may not list pods.
        """
        if now_s - self._release_at_s >= RELEASE_S or self._release is None:
            self._release = read_installed(self.target, self.api)
            self._release_at_s = now_s
        release = self._release
        if release is None or release.revision.is_uninstalled:
            return None
        pods = self._pods()
        self._own.add_pods(pods)
        self._read_events(now_s)
        manifests = [o for o in release.objects if o["kind"] in WORKLOAD_KINDS]
        live = tuple(
            content
            for _, content in read_objects(self.api, manifests)
            if not isinstance(content, ForbiddenError)
        )
        events = tuple(event for event, _ in self.events)
        forbidden = self._own.forbidden
        observation = Observation(live=live, pods=pods, events=events, forbidden=forbidden)
        progress = progress_of(release.objects, observation)
        components = {
            name: workload
            for name, workload in workloads((*release.objects, *live)).items()
            if role_of(workload) in ORDER
        }
        port = frontend_port(release) if FRONTEND in components else HTTP_PORT
        desired = {p.name: p.desired for p in progress.pools if p.name in components}
        return ReleaseState(
            source=f"{self.target.name} (namespace {self.target.namespace})",
            phase="ready" if progress.is_done else "updating",
            endpoint=self.url,
            desired_replicas=desired,
            replicas=replicas_of(pods, components, port),
            progress=progress,
        )

    def _pods(self) -> tuple[Object, ...]:
        try:
            return tuple(self.api.list("Pod", f"{POD_GRAPH}={self.target.name}"))
        except ForbiddenError as error:
            (problem,) = error.problems
            fix = f"{rule('pods', 'list').capitalize()}."
            raise ForbiddenError(replace(problem, fix=fix)) from None

    def _read_events(self, now_s: float) -> None:
        if now_s - self._events_at_s < EVENTS_S:
            return
        self._events_at_s = now_s
        self._own.forbidden.clear()
        try:
            listed, self.events_error = self.api.list("Event"), None
        except ForbiddenError as error:
            self.events, self.events_error = (), error
            return
        causes = (
            (event, self._own.component(event.get("involvedObject") or {})) for event in listed
        )
        self.events = tuple((event, name) for event, name in causes if name is not None)
