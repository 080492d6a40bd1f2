"""Rules about the request plane, the event plane and the discovery backend."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Launch, Role
from penstock.manifests.flags import flag_value
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

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


def different_planes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for variable, values in PLANES.items():
        configured: dict[str, str] = {}
        locations: dict[str, Location] = {}
        unset: set[str] = set()
        for component in deployment.with_role(*WORKERS, Role.FRONTEND):
            for launch in component.launches:
                if launch.module and launch.module.startswith("dynamo."):
                    given = _plane(launch, variable)
                    unset |= set() if given or component.name in configured else {component.name}
                    configured.setdefault(component.name, given or values[0])
                    locations.setdefault(component.name, _location_of(component, launch, variable))
        for name, value in configured.items():
            if value not in values:
                yield RuleResult(
                    location=locations[name],
                    message=f"{locations[name].path[0]} is {value}, which is not one of "
                    f"{', '.join(values)}",
                    fix=_set(locations[name], values[0]),
                    versions=_since(REMOVED.get((variable, value)) or READ.get(variable, LATER)),
                )
        known = {name: value for name, value in configured.items() if value in values}
        first = next(iter(known.values()), "")
        for name, value in known.items():
            if value != first:
                yield RuleResult(
                    location=locations[name],
                    message=f"{name} has {variable} {value}, but {next(iter(known))} has {first}",
                    fix=_set(locations[name], first),
                    versions=_since((DEFAULT if unset else READ).get(variable, LATER)),
                )
                break


def _since(release: str) -> Versions:
    return Versions(dynamo=f">={release}")


def _flag(variable: str) -> str:
    """`--request-plane` of DYN_REQUEST_PLANE."""
    return "--" + variable.removeprefix("DYN_").lower().replace("_", "-")


def _plane(launch: Launch, variable: str) -> str | None:
    """The configured plane; a flag takes precedence over its variable."""
    return flag_value(launch.argv, _flag(variable)) or launch.env.get(variable)


def _location_of(component: Component, launch: Launch, variable: str) -> Location:
    by_flag = flag_value(launch.argv, _flag(variable)) is not None
    return Location(
        component.name, *(("args", (_flag(variable),)) if by_flag else ("env", (variable,)))
    )


def _set(location: Location, value: str) -> Fix:
    name = str(location.path[0])
    text = f"Set {name} to {value} on all components."
    if location.what == "args":
        return Fix(text=text, args=(name, value))
    return Fix(text=text, env={name: value})


def nats_mismatch(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for launch in component.launches:
            uses = [
                name
                for name in ("DYN_REQUEST_PLANE", "DYN_EVENT_PLANE")
                if _plane(launch, name) == "nats"
            ]
            if uses and not launch.env.get("NATS_SERVER"):
                yield RuleResult(
                    location=Location(component.name, "env", (uses[0],)),
                    message=f"{uses[0]} is nats, but NATS_SERVER is unset",
                    fix=Fix(
                        text="Set NATS_SERVER to the address of NATS, or leave the plane at "
                        "its default.",
                        env={"NATS_SERVER": "nats://dynamo-platform-nats.dynamo-system:4222"},
                        graph={
                            "infrastructure.nats_url": "nats://dynamo-platform-nats.dynamo-system:4222"
                        },
                    ),
                    # A platform installed with NATS sets its address in every pod.
                    level=Level.NOTE if deployment.is_graph else None,
                )
            elif launch.env.get("NATS_SERVER") and not uses and launch.module == "dynamo.frontend":
                yield RuleResult(
                    location=Location(component.name, "env", ("NATS_SERVER",)),
                    message="NATS_SERVER is set, but no plane uses NATS",
                    fix=Fix(text="Remove NATS_SERVER.", env={"NATS_SERVER": None}),
                    level=Level.NOTE,
                )
