"""Rules of the planes that components talk over."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.engine_files import flag_value
from penstock.serving.deployment import ServingDeployment

PLANES = {
    "DYN_REQUEST_PLANE": ("tcp", "nats"),
    "DYN_EVENT_PLANE": ("zmq", "nats"),
    "DYN_DISCOVERY_BACKEND": ("kubernetes", "etcd", "file", "mem"),
}


@rule(
    id="PS512",
    title="components on different planes",
    level=Level.ERROR,
    cause="Request plane, event plane or discovery differ between components, or have an "
    "unknown name.",
    effect="Components do not find each other, or HTTP 500 (invalid TCP address).",
    remedy="One plane for all.",
    source="dynamo#5245; docs.nvidia.com/dynamo/v1.6.1/reference/compatibility",
)
def planes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for variable, words in PLANES.items():
        said: dict[str, str] = {}
        places: dict[str, Location] = {}
        for component in deployment.components:
            for launch in component.launches:
                if launch.module and launch.module.startswith("dynamo."):
                    said.setdefault(component.name, _plane(launch, variable) or words[0])
                    places.setdefault(component.name, _place(component, launch, variable))
        for name, value in said.items():
            if value not in words:
                yield RuleResult(
                    location=places[name],
                    message=f"{places[name].path[0]} {value}",
                    fix=_say(places[name], f"one of {', '.join(words)}", words[0]),
                )
        known = {name: value for name, value in said.items() if value in words}
        first = next(iter(known.values()), "")
        for name, value in known.items():
            if value != first:
                yield RuleResult(
                    location=places[name],
                    message=f"{name} has {variable} {value}, {next(iter(known))} {first}",
                    fix=_say(places[name], "one plane for all components", first),
                )
                break


def _flag(variable: str) -> str:
    """`--request-plane` of DYN_REQUEST_PLANE."""
    return "--" + variable.removeprefix("DYN_").lower().replace("_", "-")


def _plane(launch: Launch, variable: str) -> str | None:
    """What the launch says: a flag wins over its variable."""
    return flag_value(launch, _flag(variable)) or launch.env.get(variable)


def _place(component: Component, launch: Launch, variable: str) -> Location:
    by_flag = flag_value(launch, _flag(variable)) is not None
    return Location(
        component.name, *(("args", (_flag(variable),)) if by_flag else ("env", (variable,)))
    )


def _say(location: Location, words: str, value: str) -> Fix:
    name = str(location.path[0])
    return (
        Fix(text=words, args=(name, value))
        if location.what == "args"
        else Fix(text=words, env={name: value})
    )


@rule(
    id="PS513",
    title="NATS without an address, or an address without NATS",
    level=Level.WARNING,
    cause="A plane goes over NATS, which the platform chart no longer installs by default, and "
    "NATS_SERVER is unset; or it is set and unused.",
    effect="Connection refused on localhost:4222 at the start.",
    remedy="Set NATS_SERVER, or leave planes at tcp and zmq.",
    source="dynamo#11951, dynamo#11921",
)
def no_nats(deployment: ServingDeployment) -> Iterable[RuleResult]:
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
                    message=f"{uses[0]} is nats and NATS_SERVER is unset",
                    fix=Fix(
                        text="say where it is, or leave the plane at its default",
                        env={"NATS_SERVER": "nats://dynamo-platform-nats.dynamo-system:4222"},
                        graph={
                            "infrastructure.nats_url": "nats://dynamo-platform-nats.dynamo-system:4222"
                        },
                    ),
                    # A platform that was installed with NATS gives its address to every pod.
                    level=Level.NOTE if deployment.is_graph else None,
                )
            elif launch.env.get("NATS_SERVER") and not uses and launch.module == "dynamo.frontend":
                yield RuleResult(
                    location=Location(component.name, "env", ("NATS_SERVER",)),
                    message="NATS_SERVER is set and no plane uses NATS",
                    fix=Fix(text="remove it", env={"NATS_SERVER": None}),
                    level=Level.NOTE,
                )
