"""The request, response and event planes of components, and their discovery backends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.engines.settings import Location
from penstock.manifests.deployment import WORKERS, Launch, Role
from penstock.manifests.flags import flag_value
from penstock.serving.deployment import ServingDeployment

PLANES = {
    "DYN_REQUEST_PLANE": ("tcp", "nats"),
    "DYN_RESPONSE_PLANE": ("tcp", "quic"),
    "DYN_EVENT_PLANE": ("zmq", "nats"),
    "DYN_DISCOVERY_BACKEND": ("kubernetes", "etcd", "file", "mem"),
}
# The first releases that read the variables, and those since when the first value is the default
# (common/configuration/groups/runtime_args.py, frontend/main.py; for discovery the operator's).
READ = {"DYN_REQUEST_PLANE": "0.8", "DYN_EVENT_PLANE": "0.9", "DYN_DISCOVERY_BACKEND": "1.0"}
DEFAULT = {"DYN_REQUEST_PLANE": "0.8", "DYN_EVENT_PLANE": "1.2"}
LATER = "1.4"
# Values of older releases, with the first one that refuses them.
REMOVED = {("DYN_REQUEST_PLANE", "http"): "1.3"}


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A plane of a component."""

    component: str
    variable: str
    value: str
    is_set: bool
    # That of the variable, or of the flag, which takes precedence.
    location: Location

    @property
    def accepted(self) -> tuple[str, ...]:
        return PLANES[self.variable]


def plane_of(launch: Launch, variable: str) -> str | None:
    """The configured plane; None if it is unset."""
    return flag_value(launch.argv, _flag(variable)) or launch.env.get(variable)


def plane_problems(deployment: ServingDeployment) -> Iterator[tuple[Plane, Plane | None, str]]:
    """Each plane with an unknown value, and the first one that differs from another, which follows.
    The text is the first release with the problem."""
    for variable in PLANES:
        planes = _planes(deployment, variable)
        known = [plane for plane in planes if plane.value in plane.accepted]
        for unknown in (plane for plane in planes if plane not in known):
            since = REMOVED.get((variable, unknown.value)) or READ.get(variable, LATER)
            yield unknown, None, since
        releases = READ if all(plane.is_set for plane in planes) else DEFAULT
        other = next((plane for plane in known if plane.value != known[0].value), None)
        if other is not None:
            yield other, known[0], releases.get(variable, LATER)


def _planes(deployment: ServingDeployment, variable: str) -> list[Plane]:
    """The plane of each worker and frontend, by the first of its processes."""
    planes = {}
    for component in deployment.with_role(*WORKERS, Role.FRONTEND):
        for launch in component.launches:
            if component.name in planes or not (launch.module or "").startswith("dynamo."):
                continue
            flag = _flag(variable)
            by_flag = flag_value(launch.argv, flag) is not None
            what, name = ("args", flag) if by_flag else ("env", variable)
            configured = plane_of(launch, variable)
            planes[component.name] = Plane(
                component=component.name,
                variable=variable,
                value=configured or PLANES[variable][0],
                is_set=bool(configured),
                location=Location(component.name, what, (name,)),
            )
    return [*planes.values()]


def _flag(variable: str) -> str:
    """`--request-plane` of DYN_REQUEST_PLANE."""
    return "--" + variable.removeprefix("DYN_").lower().replace("_", "-")
