"""The components of a deployment as manifests hold them, in a form that can be compared.

`diff` calls it for both sides: a DynamoGraphDeployment's components, or plain Deployments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.manifests.scalers import Scaler, adapter_name, scalers

Object = Mapping[str, Any]

COMPONENT = "app.kubernetes.io/component"
# The chart's own labels of pods, which nobody else sets.
POD_GRAPH = "penstock/graph"
POD_COMPONENT = "penstock/component"
DGD = "DynamoGraphDeployment"
# A component of platform plain, on one node a replica or on several.
PLAIN, GROUPED = "Deployment", "LeaderWorkerSet"
FRONTEND = "frontend"
# The generation of plain workers: it follows from the rest, so it is no reason of its own.
GENERATION = "DYN_NAMESPACE_WORKER_SUFFIX"
# Of a DGD's component; the operator's hash of a generation holds none of them.
NO_RESTART = ("name", "type", "replicas", "scalingAdapter")
# The ConfigMap's name, which follows from its text: told where no value of the text differs.
CONFIG_FILE = "the text of config"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One component. ``gpus`` are those of one replica over all its ``nodes``; ``spec`` is all that
    restarts its pods when it changes, with flags, variables and the engine's file as mappings.
    ``scaler``: what owns the replicas, where the graph does not; they are then the fewest."""

    name: str
    type: str
    replicas: int
    scaler: Scaler | None
    nodes: int
    gpus: int
    spec: Mapping[str, Any]

    @property
    def is_worker(self) -> bool:
        return self.type in ("prefill", "decode", "worker")


def workloads(objects: Iterable[Object]) -> dict[str, Workload]:
    """Components by name, in the order of the manifests."""
    listed = list(objects)
    maps = (o for o in listed if o["kind"] == "ConfigMap")
    files = {o["metadata"]["name"]: o.get("data") or {} for o in maps}
    owners = scalers(listed)
    return {workload.name: workload for o in listed for workload in _of(o, files, owners)}


def _of(
    manifest: Object, files: Mapping[str, Object], owners: Mapping[str, Scaler]
) -> Iterator[Workload]:
    spec = manifest.get("spec") or {}
    graph = manifest["metadata"]["name"]
    if manifest["kind"] == DGD:
        for component in spec.get("components", ()):
            nodes = int((component.get("multinode") or {}).get("nodeCount", 1))
            rest = {k: v for k, v in component.items() if k not in NO_RESTART}
            template = rest.pop("podTemplate", {})
            scaler = None
            if component.get("scalingAdapter") is not None:
                scaler = owners.get(adapter_name(graph, component["name"]), Scaler())
            yield _workload(component, nodes, template, rest, files, scaler)
    elif manifest["kind"] in (PLAIN, GROUPED):
        name = (manifest["metadata"].get("labels") or {}).get(COMPONENT)
        if name:
            component = {
                "name": name,
                "type": name,
                **{k: spec[k] for k in spec if k == "replicas"},
            }
            scaler = owners.get(graph)
            if scaler is None and "replicas" not in spec:
                scaler = Scaler()
            group = spec.get("leaderWorkerTemplate", {})
            nodes = int(group.get("size", 1))
            template = spec.get("template") or group.get("leaderTemplate", {})
            rest = {}
            if manifest["kind"] == GROUPED:
                others = _readable(group.get("workerTemplate", {}), files)
                rest = {"nodes": nodes, "other nodes": others}
            yield _workload(component, nodes, template, rest, files, scaler)


def _workload(
    component: Object,
    nodes: int,
    template: Object,
    rest: Object,
    files: Mapping[str, Object],
    scaler: Scaler | None,
) -> Workload:
    pod = template.get("spec", {})
    gpus = [_count(c.get("resources")) for c in pod.get("containers", ())]
    return Workload(
        name=str(component["name"]),
        type=str(component.get("type", component["name"])),
        replicas=int(component.get("replicas", scaler.least if scaler else 1)),
        scaler=scaler,
        nodes=nodes,
        gpus=sum(gpus) * nodes,
        spec={**rest, **_readable(template, files)},
    )


def _count(resources: Object | None) -> int:
    return int(((resources or {}).get("limits") or {}).get("nvidia.com/gpu", 0))


def _readable(template: Object, files: Mapping[str, Object]) -> dict[str, Any]:
    """The template with what has names as mappings, and files in place of their ConfigMaps."""
    pod = dict(template.get("spec", {}))
    found: dict[str, Any] = {}
    if metadata := template.get("metadata"):
        found["metadata"] = metadata
    for kind in ("initContainers", "containers"):
        for container in pod.pop(kind, ()):
            main = container["name"] == "main"
            target = found if main else found.setdefault(kind, {}).setdefault(container["name"], {})
            target.update(_container(container))
    volumes = {volume["name"]: dict(volume) for volume in pod.pop("volumes", ())}
    for volume in volumes.values():
        wanted = str((volume.get("configMap") or {}).get("name", ""))
        if wanted in files:
            found[CONFIG_FILE] = wanted
            volume.pop("configMap")
            found["config"] = {name: _parsed(text) for name, text in files[wanted].items()}
            if len(found["config"]) == 1:
                (found["config"],) = found["config"].values()
    if rest := {name: volume for name, volume in volumes.items() if volume.keys() != {"name"}}:
        pod["volumes"] = rest
    return {**found, "pod": pod}


def _container(container: Object) -> dict[str, Any]:
    rest = {k: v for k, v in container.items() if k not in ("name", "args", "env")}
    flags = _flags(container.get("args", ()))
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env", ())}
    env.pop(GENERATION, None)
    return {**rest, **({"args": flags} if flags else {}), **({"env": env} if env else {})}


def _flags(args: Iterable[str]) -> dict[str, Any]:
    """Flags with all their values; what stands alone is on."""
    found: dict[str, list[str]] = {}
    last = "…"
    for arg in args:
        if re.match(r"--?[A-Za-z]", arg):
            last, equals, value = arg.partition("=")
            found.setdefault(last, []).extend([value] if equals else [])
        else:
            found.setdefault(last, []).append(arg)
    return {flag: _said(" ".join(values)) if values else True for flag, values in found.items()}


def _said(text: str) -> Any:
    """A value that is a JSON object, such as the planner's, as one."""
    return _parsed(text) if text.startswith("{") else text


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
