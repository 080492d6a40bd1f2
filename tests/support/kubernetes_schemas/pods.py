"""Check pod templates: whether their pods can start.

Used by `builtin` for Deployments and similar kinds, and by tests for custom resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.kubernetes_schemas.syntax import (
    LABEL_1123,
    PORT_NAME,
    Problem,
    name_fault,
    quantity,
    under,
)

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


@dataclass(frozen=True, kw_only=True)
class Template:
    """A pod template and its place; a Pod is its own template."""

    place: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def containers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """(place, container), init containers included."""
        return [
            (under(under(under(self.place, "spec"), kind), index), container)
            for kind in ("initContainers", "containers")
            for index, container in enumerate(self.spec.get(kind) or ())
        ]


def templates(value: Any, place: str = "") -> Iterator[Template]:
    """Every mapping below ``value`` whose `spec` has a list of containers."""
    if isinstance(value, Mapping):
        spec = value.get("spec")
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
            labels = (value.get("metadata") or {}).get("labels") or {}
            yield Template(place=place, labels=labels, spec=spec)
            return
        for key, item in value.items():
            yield from templates(item, under(place, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from templates(item, under(place, index))


def pod_problems(
    template: Template, *, volumes: Collection[str] = (), ports: Collection[str] = ()
) -> Iterator[Problem]:
    """``volumes`` and ``ports``: names that a controller adds to the template."""
    seen: set[str] = set()
    for place, container in template.containers:
        name = container.get("name")
        yield from _fault(under(place, "name"), "container name", name_fault(name, LABEL_1123, 63))
        if name in seen:
            yield under(place, "name"), f"second container {name}"
        seen.add(str(name))
        yield from _environment(container, place)
        yield from _ports(container, place, {*ports})
        yield from _resources(container.get("resources") or {}, under(place, "resources"))
    yield from _volumes(template, {*volumes})


def _environment(container: Mapping[str, Any], place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, entry in enumerate(container.get("env") or ()):
        where = under(under(place, "env"), index)
        name = entry.get("name")
        if name in seen:
            yield where, f"second {name}"
        seen.add(name)
        if entry.get("value") and entry.get("valueFrom"):
            yield where, f"{name} has value and valueFrom"


def _ports(container: Mapping[str, Any], place: str, known: set[str]) -> Iterator[Problem]:
    declared: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        where = under(under(place, "ports"), index)
        name = port.get("name")
        if name is not None:
            yield from _fault(where, "port name", port_name_fault(name))
            if name in declared:
                yield where, f"second port {name}"
            declared.add(name)
        yield from number_problems(port.get("containerPort"), where)
    for where, target in _referenced_ports(container, place):
        if isinstance(target, str) and target not in declared | known:
            yield where, f"port {target!r} is not a port of the container"
        elif not isinstance(target, str):
            yield from number_problems(target, where)


def _referenced_ports(container: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """The ports that probes and hooks use."""
    hooks = container.get("lifecycle") or {}
    handlers = [(under(place, probe), container.get(probe)) for probe in PROBES]
    handlers += [(under(under(place, "lifecycle"), hook), hooks.get(hook)) for hook in hooks]
    for where, handler in handlers:
        for kind in ("httpGet", "tcpSocket"):
            if handler and handler.get(kind):
                yield under(under(where, kind), "port"), handler[kind].get("port")


def port_name_fault(name: object) -> str | None:
    return name_fault(name, PORT_NAME, 15)


def number_problems(number: object, place: str) -> Iterator[Problem]:
    if not isinstance(number, int) or not 0 < number < 65536:
        yield place, f"{number!r} is not a port number"


def _resources(resources: Mapping[str, Any], place: str) -> Iterator[Problem]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from quantity_problems(amount, under(under(place, kind), name))
    for name, amount in requests.items():
        requested, limit = quantity(amount), quantity(limits.get(name, amount))
        where = under(under(place, "requests"), name)
        if requested is None or limit is None:
            continue
        if requested > limit:
            yield where, f"{amount} is above the limit {limits[name]}"
        elif _is_extended(name) and (requested != limit or name not in limits):
            yield where, "an extended resource needs an equal limit"
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            number = quantity(amount)
            if _is_extended(name) and number is not None and number.denominator != 1:
                yield under(under(place, kind), name), f"{amount} is not an integer"


def _is_extended(name: str) -> bool:
    return "/" in name and not name.startswith("requests.")


def quantity_problems(amount: Any, place: str) -> Iterator[Problem]:
    number = quantity(amount)
    if number is None:
        yield place, f"{amount!r} is not a quantity"
    elif number < 0:
        yield place, f"{amount!r} is negative"


def _volumes(template: Template, known: set[str]) -> Iterator[Problem]:
    base = under(under(template.place, "spec"), "volumes")
    declared: set[str] = set()
    for index, volume in enumerate(template.spec.get("volumes") or ()):
        where, name = under(base, index), volume.get("name")
        yield from _fault(where, "volume name", name_fault(name, LABEL_1123, 63))
        if name in declared:
            yield where, f"second volume {name}"
        declared.add(name)
        size = (volume.get("emptyDir") or {}).get("sizeLimit")
        if size is not None:
            yield from quantity_problems(size, under(under(where, "emptyDir"), "sizeLimit"))
    for place, container in template.containers:
        paths: set[str] = set()
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            where = under(under(place, "volumeMounts"), index)
            if mount.get("name") not in declared | known:
                yield where, f"no volume is named {mount.get('name')!r}"
            if mount.get("mountPath") in paths:
                yield where, f"second mount at {mount['mountPath']}"
            paths.add(mount.get("mountPath"))


def _fault(place: str, what: str, fault: str | None) -> Iterator[Problem]:
    if fault:
        yield place, f"{what} {fault}"
