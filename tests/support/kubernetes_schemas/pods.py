"""Check pod templates: what an API server refuses, and whether their pods can start.

Used by `builtin` for Deployments and similar kinds, and by tests for custom resources. The places
are those that an API server names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.kubernetes_schemas.structure import MISSING
from tests.support.kubernetes_schemas.syntax import (
    LABEL_1123,
    PORT_NAME,
    SUBDOMAIN,
    Problem,
    name_fault,
    quantity,
    under,
)

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HANDLERS = ("exec", "grpc", "httpGet", "sleep", "tcpSocket")
VARIABLE = re.compile(r"[ -<>-~]+")  # printable ASCII but "="
FIELD_PATH = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
STANDARD = re.compile(r"cpu|memory|storage|ephemeral-storage|hugepages-.+|.+/.+")  # resources
EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
# The field that names what a volume or a variable comes from.
SOURCES = {
    "configMap": "name",
    "hostPath": "path",
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
}
REFERENCES = {"configMapKeyRef": ("name", "key"), "secretKeyRef": ("name", "key")}


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
            (under(self.place, "spec", kind, index), container)
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


def pod_problems(template: Template, *, volumes: Collection[str] = ()) -> Iterator[Problem]:
    """``volumes``: names that a controller adds to the template."""
    yield from refused_problems(template, volumes=volumes)
    for place, container in template.containers:
        yield from _repeated_variables(container, place)
        yield from _unknown_ports(container, place)


def refused_problems(template: Template, *, volumes: Collection[str] = ()) -> Iterator[Problem]:
    """Only what an API server refuses."""
    seen: set[str] = set()
    spec = under(template.place, "spec")
    if not template.spec["containers"]:
        yield under(spec, "containers"), MISSING
    for place, container in template.containers:
        name = container.get("name")
        yield from _fault(under(place, "name"), "container name", name_fault(name, LABEL_1123, 63))
        if name in seen:
            yield under(place, "name"), f"second container {name}"
        seen.add(str(name))
        if not container.get("image"):
            yield under(place, "image"), MISSING
        yield from _environment(container, place)
        yield from _ports(container, place, is_on_host=bool(template.spec.get("hostNetwork")))
        yield from _handlers(container, place)
        yield from _resources(container.get("resources") or {}, under(place, "resources"))
    yield from _volumes(template, {*volumes})
    yield from _placement(template.spec, spec)


def _environment(container: Mapping[str, Any], place: str) -> Iterator[Problem]:
    for index, entry in enumerate(container.get("env") or ()):
        where, name = under(place, "env", index), entry.get("name")
        if not VARIABLE.fullmatch(name or ""):
            yield under(where, "name"), f"{name!r} is not the name of a variable"
        source = entry.get("valueFrom")
        if source is None:
            continue
        from_ = under(where, "valueFrom")
        if entry.get("value"):
            yield from_, f"{name} has value and valueFrom"
        elif len(source) != 1:
            yield from_, "must name one source"
        path = (source.get("fieldRef") or {}).get("fieldPath")
        if path is not None and not FIELD_PATH.fullmatch(path):
            yield under(from_, "fieldRef", "fieldPath"), f"{path!r} is no field of a pod"
        for kind, fields in REFERENCES.items():
            for field in fields if kind in source else ():
                if not source[kind].get(field):
                    yield under(from_, kind, field), MISSING
    for index, entry in enumerate(container.get("envFrom") or ()):
        sources = [k for k in ("configMapRef", "secretRef") if entry.get(k) is not None]
        where = under(place, "envFrom", index)
        if len(sources) != 1:
            yield where, "must name one source"
        for kind in sources:
            if not entry[kind].get("name"):
                yield under(where, kind, "name"), MISSING


def _repeated_variables(container: Mapping[str, Any], place: str) -> Iterator[Problem]:
    names = [entry.get("name") for entry in container.get("env") or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield under(place, "env", index), f"second {name}"


def _ports(container: Mapping[str, Any], place: str, *, is_on_host: bool) -> Iterator[Problem]:
    declared: set[str] = set()
    for index, port in enumerate(container.get("ports") or ()):
        where = under(place, "ports", index)
        name = port.get("name")
        if name is not None:
            yield from _fault(under(where, "name"), "port name", port_name_fault(name))
            if name in declared:
                yield under(where, "name"), f"second port {name}"
            declared.add(name)
        number = port.get("containerPort")
        yield from number_problems(number, under(where, "containerPort"))
        if is_on_host and port.get("hostPort", number) != number:
            yield under(where, "hostPort"), "must match containerPort with hostNetwork"
    for where, target in _referenced_ports(container, place):
        if isinstance(target, str):
            yield from _fault(where, "port name", port_name_fault(target))
        else:
            yield from number_problems(target, where)


def _unknown_ports(container: Mapping[str, Any], place: str) -> Iterator[Problem]:
    declared = {port.get("name") for port in container.get("ports") or ()} - {None}
    for where, target in _referenced_ports(container, place):
        if isinstance(target, str) and target not in declared:
            yield where, f"port {target!r} is not a port of the container"


def _handlers(container: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Each probe and hook has one way to ask."""
    for where, handler in _handlers_of(container, place):
        named = [kind for kind in HANDLERS if handler.get(kind) is not None]
        if not named:
            yield where, "must specify a handler type"
        for kind in named[1:]:
            yield under(where, kind), "may not specify more than 1 handler type"
        is_repeated = handler.get("successThreshold", 1) != 1
        if is_repeated and where.endswith(("livenessProbe", "startupProbe")):
            yield under(where, "successThreshold"), "must be 1"


def _handlers_of(
    container: Mapping[str, Any], place: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    hooks = container.get("lifecycle") or {}
    for name in PROBES:
        if container.get(name) is not None:
            yield under(place, name), container[name]
    for name, hook in hooks.items():
        if isinstance(hook, Mapping):
            yield under(place, "lifecycle", name), hook


def _referenced_ports(container: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """The ports that probes and hooks use."""
    for where, handler in _handlers_of(container, place):
        for kind in ("httpGet", "tcpSocket"):
            if handler.get(kind):
                yield under(where, kind, "port"), handler[kind].get("port")


def port_name_fault(name: object) -> str | None:
    return name_fault(name, PORT_NAME, 15)


def number_problems(number: object, place: str) -> Iterator[Problem]:
    if not isinstance(number, int) or not 0 < number < 65536:
        yield place, f"{number!r} is not a port number"


def _resources(resources: Mapping[str, Any], place: str) -> Iterator[Problem]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{under(place, kind)}[{name}]"
            if not STANDARD.fullmatch(name):
                yield where, "must be a standard resource type or fully qualified"
            yield from quantity_problems(amount, where)
    for name, amount in requests.items():
        requested, limit = quantity(amount), quantity(limits.get(name, amount))
        if requested is None or limit is None:
            continue
        if _is_extended(name) and name not in limits:
            yield under(place, "limits"), f"{name} needs an equal limit"
        elif _is_extended(name) and requested != limit:
            yield under(place, "requests"), f"{name} needs an equal limit"
        elif requested > limit:
            yield under(place, "requests"), f"{name} {amount} is above the limit {limits[name]}"
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            number = quantity(amount)
            if _is_extended(name) and number is not None and number.denominator != 1:
                yield under(place, kind, name), f"{amount} is not an integer"


def _is_extended(name: str) -> bool:
    return "/" in name and not name.startswith("requests.")


def quantity_problems(amount: Any, place: str) -> Iterator[Problem]:
    number = quantity(amount)
    if number is None:
        yield place, f"{amount!r} is not a quantity"
    elif number < 0:
        yield place, f"{amount!r} is negative"


def _volumes(template: Template, known: set[str]) -> Iterator[Problem]:
    base = under(template.place, "spec", "volumes")
    declared: set[str] = set()
    for index, volume in enumerate(template.spec.get("volumes") or ()):
        where, name = under(base, index), volume.get("name")
        yield from _fault(under(where, "name"), "volume name", name_fault(name, LABEL_1123, 63))
        if name in declared:
            yield under(where, "name"), f"second volume {name}"
        declared.add(name)
        sources = [kind for kind in volume if kind != "name"]  # none is an emptyDir
        for kind in sources[1:]:
            yield under(where, kind), "may not specify more than 1 volume type"
        for kind in sources:
            field = SOURCES.get(kind)
            if field and not volume[kind].get(field):
                yield under(where, kind, field), MISSING
        size = (volume.get("emptyDir") or {}).get("sizeLimit")
        if size is not None:
            yield from quantity_problems(size, under(where, "emptyDir", "sizeLimit"))
    for place, container in template.containers:
        paths: set[str] = set()
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            where = under(place, "volumeMounts", index)
            if mount.get("name") not in declared | known:
                yield under(where, "name"), f"no volume is named {mount.get('name')!r}"
            if ".." in str(mount.get("subPath")).split("/"):
                yield under(where, "subPath"), "must not contain '..'"
            if mount.get("mountPath") in paths:
                yield under(where, "mountPath"), f"second mount at {mount['mountPath']}"
            paths.add(mount.get("mountPath"))


def _placement(spec: Mapping[str, Any], place: str) -> Iterator[Problem]:
    for field in ("priorityClassName", "serviceAccountName"):
        if spec.get(field):
            yield from _fault(under(place, field), "name", name_fault(spec[field], SUBDOMAIN, 253))
    if spec.get("dnsPolicy") == "None" and not spec.get("dnsConfig"):
        yield under(place, "dnsConfig"), MISSING
    for index, entry in enumerate(spec.get("tolerations") or ()):
        where, operator = under(place, "tolerations", index), entry.get("operator")
        if not entry.get("key") and operator != "Exists":
            yield under(where, "operator"), "must be Exists without a key"
        if operator == "Exists" and entry.get("value"):
            yield under(where, "operator"), "Exists takes no value"
        if entry.get("effect") not in (None, "", *EFFECTS):
            yield under(where, "effect"), f"{entry['effect']!r} is not one of {', '.join(EFFECTS)}"
    for index, entry in enumerate(spec.get("topologySpreadConstraints") or ()):
        where = under(place, "topologySpreadConstraints", index)
        if entry.get("maxSkew", 1) < 1:
            yield under(where, "maxSkew"), "must be greater than zero"
        if not entry.get("topologyKey"):
            yield under(where, "topologyKey"), MISSING


def _fault(place: str, what: str, fault: str | None) -> Iterator[Problem]:
    if fault:
        yield place, f"{what} {fault}"
