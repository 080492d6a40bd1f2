"""Rules about amounts of memory and time that cannot be meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS
from penstock.significant import limit_text

# What the API server accepts (resource.ParseQuantity); sizes in bytes or cores.
QUANTITY = re.compile(r"([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")
SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
MIB, GIB, TIB = 2**20, 2**30, 2**40
LEAST_PROCESS = 64 * MIB  # less than a Python process that has imported nothing heavy
LEAST_GPU_WORKER = GIB  # CUDA alone maps more host memory
MOST_MEMORY, MOST_CORES = 64 * TIB, 2048  # of any node
LONGEST_GRACE_S = 2 * 3600


def size_of(text: Any) -> float | None:
    """A quantity in bytes or cores; None if the API server does not read it."""
    found = QUANTITY.fullmatch(str(text))
    if isinstance(text, bool) or found is None or found[1].count(".") > 1:
        return None
    suffix = found[2] or ""
    try:
        number = float(found[1])
    except ValueError:
        return None
    return number * (float(f"1{suffix}") if suffix[:1] in "eE" and suffix[1:] else SUFFIXES[suffix])


def _amounts(deployment: ServingDeployment) -> Iterator[tuple[Location, str, str, Any]]:
    """(place, component, name, value) of cpu, memory and shared memory."""
    for component in deployment.components:
        pod = deployment.pods[component.name]
        for cursor, is_main in (
            (pod.containers[0].cursor["resources"], True),
            (pod.resources, False),
        ):
            for side in ("limits", "requests"):
                values = cursor[side].value
                for name in ("cpu", "memory") if isinstance(values, Mapping) else ():
                    if isinstance(values, Mapping) and values.get(name) is not None:
                        place = Location(component.name, "field", ("main", "resources", side, name))
                        yield place, component.name, name, values[name]
            if is_main:
                size = pod.cursor["sharedMemorySize"]
                alpha = pod.cursor["sharedMemory"]["size"]
                shared = size.value if not size.is_absent else alpha.value
                if shared is not None:
                    place = Location(component.name, "field", ("sharedMemorySize",))
                    yield place, component.name, "shared memory", shared


def _least(deployment: ServingDeployment, component: str, name: str) -> int:
    found = deployment.component(component)
    uses_gpu = found.role in WORKERS and found.gpus and found.engine is not Engine.MOCKER
    if name == "memory" and uses_gpu:
        return LEAST_GPU_WORKER
    return LEAST_PROCESS if name == "memory" and found.role is not Role.OTHER else MIB


def impossible_amount(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, component, name, value in _amounts(deployment):
        size = size_of(value)
        if size is None:
            continue
        if name == "cpu":
            if size > MOST_CORES:
                text = f"{value} is {size:,.0f} cores, more than any node has"
                yield _amount(location, name, text, f"{value}m" if str(value).isdigit() else "")
        elif size > MOST_MEMORY:
            yield _amount(location, name, f"{value} is {size / TIB:,.0f} TiB", "")
        elif size < _least(deployment, component, name) and not (name != "memory" and size == 0):
            shown = f"{size:,.0f} bytes" if size >= 1 or size == 0 else f"{limit_text(size)} bytes"
            digits = re.match(r"[0-9]+", str(value))
            is_unit_missing = digits is not None and size < 2**20
            near = f"{digits[0]}Gi" if digits and is_unit_missing and int(digits[0]) else ""
            yield _amount(location, name, f"{value} is {shown}", near)


def _amount(location: Location, name: str, text: str, near: str) -> RuleResult:
    path = "/".join(str(step) for step in location.path)
    return RuleResult(
        location=location,
        message=f"the {name} {text}",
        fix=Fix(text=f"Did you mean {near}?", fields={path: near})
        if near
        else Fix(text="Write the amount that the container needs, with its unit."),
    )


def no_quantity(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for location, _, name, value in _amounts(deployment):
        if (
            isinstance(value, (str, int, float))
            and size_of(value) is None
            and "$" not in str(value)
        ):
            found = re.fullmatch(r"([0-9.]+)\s*([KMGT])i?[bB]?", str(value), re.IGNORECASE)
            near = f"{found[1]}{found[2].upper()}i" if found else ""
            path = "/".join(str(step) for step in location.path)
            yield RuleResult(
                location=location,
                message=f"the {name} {value!r} is not a Kubernetes quantity",
                fix=Fix(text=f"Write {near}.", fields={path: near})
                if near
                else Fix(text="Write an amount such as 64Gi."),
            )


def long_grace_period(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if component.grace_s > LONGEST_GRACE_S:
            yield RuleResult(
                location=Location("", "graph", ("drain_timeout_s",))
                if deployment.is_graph
                else Location(component.name, "field", ("pod", "terminationGracePeriodSeconds")),
                message=f"a stopping pod may take {component.grace_s:,} s "
                f"({component.grace_s / 3600:.0f} hours)",
                fix=Fix(text="Give the time in seconds, such as 180."),
            )
            if deployment.is_graph:
                return
