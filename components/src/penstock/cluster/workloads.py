"""The components of a deployment, read from its manifests into a comparable form.

Reads DynamoGraphDeployment components, Deployments and LeaderWorkerSets alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.manifests.pods import V1BETA1
from penstock.manifests.scalers import Scaler, adapter_name, scalers
from penstock.strict_yaml.loader import load

Object = Mapping[str, Any]

# Labels of every object of the chart.
NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
# Pod labels that only our chart sets.
POD_GRAPH = "penstock/graph"
POD_COMPONENT = "penstock/component"
DGD = "DynamoGraphDeployment"
# Components on `platform: plain`, with one node or several nodes per replica.
DEPLOYMENT, LEADER_WORKER_SET = "Deployment", "LeaderWorkerSet"
# Kinds that own pods: the components and etcd.
WORKLOAD_VERSIONS = {
    DGD: V1BETA1,
    DEPLOYMENT: "apps/v1",
    LEADER_WORKER_SET: "leaderworkerset.x-k8s.io/v1",
    "StatefulSet": "apps/v1",
}
WORKLOAD_KINDS = tuple(WORKLOAD_VERSIONS)
# The kinds that the chart can render, with their API groups.
CHART_KINDS: Mapping[str, str] = {
    "BackendTrafficPolicy": "gateway.envoyproxy.io",
    "ClientTrafficPolicy": "gateway.envoyproxy.io",
    "ComputeDomain": "resource.nvidia.com",
    "ConfigMap": "",
    "Deployment": "apps",
    "DynamoGraphDeployment": "nvidia.com",
    "EnvoyExtensionPolicy": "gateway.envoyproxy.io",
    "Gateway": "gateway.networking.k8s.io",
    "HTTPRoute": "gateway.networking.k8s.io",
    "HorizontalPodAutoscaler": "autoscaling",
    "Job": "batch",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    "NetworkPolicy": "networking.k8s.io",
    "PersistentVolumeClaim": "",
    "PodDisruptionBudget": "policy",
    "PodMonitor": "monitoring.coreos.com",
    "RoleBinding": "rbac.authorization.k8s.io",
    "ScaledObject": "keda.sh",
    "SecurityPolicy": "gateway.envoyproxy.io",
    "Service": "",
    "ServiceAccount": "",
    "StatefulSet": "apps",
}
# The kinds that the controllers create between an object of the chart and its pods.
CREATED_KINDS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("ReplicaSet",),
    "LeaderWorkerSet": ("StatefulSet",),
    "DynamoGraphDeployment": (
        "Deployment",
        "DynamoComponentDeployment",
        "LeaderWorkerSet",
        "PodClique",
        "PodCliqueScalingGroup",
        "PodCliqueSet",
        "ReplicaSet",
        "StatefulSet",
    ),
}
GROUPS: Mapping[str, str] = {
    **CHART_KINDS,
    "DynamoComponentDeployment": "nvidia.com",
    "PodClique": "grove.io",
    "PodCliqueScalingGroup": "grove.io",
    "PodCliqueSet": "grove.io",
    "ReplicaSet": "apps",
}
# Resource name by kind: of every kind that penstock reads or writes.
PLURALS = {
    kind: re.sub("(?<=[^aeiou])y$", "ie", kind.lower()) + "s"
    for kind in (*GROUPS, "Event", "Pod", "Secret")
}
FRONTEND = "frontend"
NAMESPACE_VARIABLE = "DYN_NAMESPACE"
# The generation of workers. On `platform: plain`, the chart derives it from the rest of the pod, so
# it is not a change of its own.
GENERATION_VARIABLE = "DYN_NAMESPACE_WORKER_SUFFIX"
# Fields of a DGD's component that the operator's worker hash excludes.
NO_RESTART = ("name", "type", "replicas", "scalingAdapter")
# The spec key of the ConfigMap's name. The name contains a hash of the ConfigMap's text, so it is
# reported only if no value in the text differs.
CONFIG_MAP_NAME = "configMap.name"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One component: a pool of workers or the frontend."""

    name: str
    type: str
    # The autoscaler's minimum if there is a scaler and the manifest sets no number.
    replicas: int
    # The autoscaler that owns the number of replicas; None if the graph sets it.
    scaler: Scaler | None
    # Nodes of one replica.
    nodes: int
    # GPUs of one replica, over all its nodes.
    gpus: int
    # Everything whose change restarts the pods; flags, variables and config files as mappings.
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
    return {workload.name: workload for o in listed for workload in _workloads_of(o, files, owners)}


def key_of(manifest: Object) -> tuple[str, str]:
    """The kind and the name, which tell the objects of a release apart."""
    return manifest["kind"], manifest["metadata"]["name"]


def named(kind: str, name: str) -> Object:
    """The identity of an object, for a request or a message about it."""
    return {"kind": kind, "metadata": {"name": name}}


def labels_of(manifest: Object) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}


def annotations_of(manifest: Object) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


def status_of(manifest: Object) -> Object:
    return manifest.get("status") or {}


def condition_of(manifest: Object, kind: str) -> Object:
    """The condition of that type in the object's status; empty without one."""
    conditions = status_of(manifest).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def is_rolling(graph: Object) -> bool:
    """Whether the operator reports a rolling update in progress."""
    update = status_of(graph).get("rollingUpdate") or {}
    return update.get("phase") in ("Pending", "InProgress")


def component_of(manifest: Object) -> str:
    """The graph's component to which a pod belongs; "" for a pod of something else."""
    return labels_of(manifest).get(POD_COMPONENT, "")


def namespace_of(pod: Object) -> str:
    """The Dynamo namespace in which a pod registers itself: of workers, that of their generation.

    "" if the variables of the pod do not state it.
    """
    names = (NAMESPACE_VARIABLE, GENERATION_VARIABLE)
    entries = [e for c in pod["spec"]["containers"] for e in c.get("env") or ()]
    values = {e["name"]: e.get("value") for e in entries if e["name"] in names}
    if NAMESPACE_VARIABLE not in values or None in values.values():
        return ""
    return "-".join(values[name] for name in names if name in values)


def outside_the_pods(manifest: Object) -> dict[str, Any]:
    """The content without metadata and status, and without what `workloads` reads of components."""
    rest = {k: v for k, v in manifest.items() if k not in ("metadata", "status")}
    if manifest["kind"] in (DGD, DEPLOYMENT, LEADER_WORKER_SET):
        of_pods = ("components", "replicas", "template", "leaderWorkerTemplate")
        rest["spec"] = {k: v for k, v in manifest.get("spec", {}).items() if k not in of_pods}
    return rest


def pod_templates(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """The component and template of each kind of pod; two for pools on several nodes."""
    for manifest in objects:
        spec = manifest.get("spec") or {}
        for component in spec.get("components", ()):
            yield component["name"], component.get("podTemplate") or {}
        name = labels_of(manifest).get(COMPONENT, "")
        group = spec.get("leaderWorkerTemplate", {})
        for template in (
            spec.get("template"),
            group.get("leaderTemplate"),
            group.get("workerTemplate"),
        ):
            if template:
                yield name, template


def mounted_config_maps(objects: Iterable[Object]) -> set[str]:
    """The names of the ConfigMaps in the volumes of pods."""
    return {
        str(volume["configMap"]["name"])
        for _, template in pod_templates(objects)
        for volume in (template.get("spec") or {}).get("volumes") or ()
        if "configMap" in volume
    }


def _workloads_of(
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
    elif manifest["kind"] in (DEPLOYMENT, LEADER_WORKER_SET):
        name = labels_of(manifest).get(COMPONENT)
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
            if manifest["kind"] == LEADER_WORKER_SET:
                followers = _comparable(group.get("workerTemplate", {}), files)
                rest = {"nodes": nodes, "workerTemplate": followers}
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
    gpus = [_gpu_limit(c.get("resources")) for c in pod.get("containers", ())]
    return Workload(
        name=str(component["name"]),
        type=str(component.get("type", component["name"])),
        replicas=int(component.get("replicas", scaler.min_replicas if scaler else 1)),
        scaler=scaler,
        nodes=nodes,
        gpus=sum(gpus) * nodes,
        spec={**rest, **_comparable(template, files)},
    )


def _gpu_limit(resources: Object | None) -> int:
    return int(((resources or {}).get("limits") or {}).get("nvidia.com/gpu", 0))


def _comparable(template: Object, files: Mapping[str, Object]) -> dict[str, Any]:
    """The pod template with named lists as mappings, and config files inlined from ConfigMaps."""
    pod = dict(template.get("spec", {}))
    spec: dict[str, Any] = {}
    if metadata := template.get("metadata"):
        spec["metadata"] = metadata
    for kind in ("initContainers", "containers"):
        for container in pod.pop(kind, ()):
            main = container["name"] == "main"
            target = spec if main else spec.setdefault(kind, {}).setdefault(container["name"], {})
            target.update(_container(container))
    volumes = {volume["name"]: dict(volume) for volume in pod.pop("volumes", ())}
    for volume in volumes.values():
        config_map = str((volume.get("configMap") or {}).get("name", ""))
        if config_map in files:
            spec[CONFIG_MAP_NAME] = config_map
            volume.pop("configMap")
            spec["config"] = {name: _parsed(text) for name, text in files[config_map].items()}
            if len(spec["config"]) == 1:
                (spec["config"],) = spec["config"].values()
    if rest := {name: volume for name, volume in volumes.items() if volume.keys() != {"name"}}:
        pod["volumes"] = rest
    return {**spec, "pod": pod}


def _container(container: Object) -> dict[str, Any]:
    rest = {k: v for k, v in container.items() if k not in ("name", "args", "env")}
    flags = _flags(container.get("args", ()))
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in container.get("env", ())}
    env.pop(GENERATION_VARIABLE, None)
    return {**rest, **({"args": flags} if flags else {}), **({"env": env} if env else {})}


def _flags(args: Iterable[str]) -> dict[str, Any]:
    """Each flag with all its values joined by spaces; True for a flag without a value."""
    flags: dict[str, list[str]] = {}
    last = "…"
    for arg in args:
        if re.match(r"--?[A-Za-z]", arg):
            last, equals, value = arg.partition("=")
            flags.setdefault(last, []).extend([value] if equals else [])
        else:
            flags.setdefault(last, []).append(arg)
    return {flag: _value(" ".join(values)) if values else True for flag, values in flags.items()}


def _value(text: str) -> Any:
    """A JSON object parsed, such as the planner's --config; other text unchanged."""
    return _parsed(text) if text.startswith("{") else text


def _parsed(text: str) -> Any:
    try:
        return load(text)
    except yaml.YAMLError:
        return text
