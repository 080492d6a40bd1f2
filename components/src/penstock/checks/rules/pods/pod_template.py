"""Rules about pods: shared memory, resources, devices, privileges and node selection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.engines.settings import Location
from penstock.hardware import gpu_of_product
from penstock.manifests.cursor import Cursor
from penstock.manifests.pods import Pod
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.significant import plain_number

UNITS = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}
GIB = 2**30
SHM = "/dev/shm"  # noqa: S108  a volume of the pod
DEFAULT_SHM = 8 * GIB  # the operator's default
SMALL_SHM = GIB  # NCCL with several GPUs has failed below this


def quantity(value: Any) -> float | None:
    """Bytes of a Kubernetes quantity; None if the value is not a quantity."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]i?|Ki)?", str(value))
    return float(found[1]) * UNITS[found[2] or ""] if found else None


def gib(size: float) -> str:
    return f"{plain_number(round(size / GIB, 2))}Gi"


def shared_memory(pod: Pod) -> float | None:
    """Bytes of /dev/shm: 0 if disabled, the operator's default if unset, None if unreadable."""
    size = pod.cursor["sharedMemorySize"]
    alpha = pod.cursor["sharedMemory"]
    if alpha["disabled"].value is True:
        return 0.0
    value = size.value if not size.is_absent else alpha["size"].value
    return float(DEFAULT_SHM) if value is None else quantity(value)


def _memory_limit(pod: Pod) -> float | None:
    main = pod.containers[0].cursor["resources"]["limits"]["memory"].value
    own = pod.resources["limits"]["memory"].value
    value = main if main is not None else own
    return None if value is None else quantity(value)


def no_shared_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        shm = shared_memory(worker.pod)
        if worker.world > 1 and shm is not None and shm < SMALL_SHM and not _mounts_shm(worker.pod):
            fields: dict[str, object] = {"sharedMemorySize": "64Gi"}
            if worker.pod.cursor["sharedMemory"]["disabled"].value is True:  # v1alpha1
                fields["sharedMemory/disabled"] = False
            yield RuleResult(
                location=worker.location("field", "sharedMemorySize"),
                message=f"{gib(shm)} of shared memory is too little for {worker.world} GPUs",
                fix=Fix(
                    text="Set the shared memory to 64Gi, as in published recipes.", fields=fields
                ),
            )


def _mounts_shm(pod: Pod) -> bool:
    mounts = pod.containers[0].cursor["volumeMounts"].value
    listed = mounts if isinstance(mounts, list) else []
    return any(isinstance(m, dict) and m.get("mountPath") == SHM for m in listed)


def little_shared_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        keys = ("sharedMemorySize", "sharedMemory")
        is_set = any(not worker.pod.cursor[key].is_absent for key in keys)
        if worker.world > 1 and not is_set and not _mounts_shm(worker.pod):
            yield RuleResult(
                location=worker.location("field", "sharedMemorySize"),
                message=f"{worker.name} has {worker.world} GPUs and the default 8Gi of shared "
                "memory",
                fix=Fix(
                    text="Set a size between 64Gi and 128Gi, as in published recipes.",
                    fields={"sharedMemorySize": "64Gi"},
                ),
            )


def shm_above_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        size, limit = shared_memory(worker.pod), _memory_limit(worker.pod)
        if size and limit and size >= limit:
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "memory"),
                message=f"the memory limit is {gib(limit)}, but /dev/shm alone may use {gib(size)}",
                fix=Fix(
                    text="Add the shared memory to the limit.",
                    fields={"main/resources/limits/memory": gib(limit + size)},
                ),
                level=None if worker.world > 1 else Level.NOTE,
            )


def unequal_resources(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            resources = container.cursor["resources"]
            limits, requests = resources["limits"].value, resources["requests"].value
            for name, value in requests.items() if isinstance(requests, Mapping) else ():
                if "/" not in str(name):
                    continue
                limit = limits.get(name) if isinstance(limits, Mapping) else None
                if str(limit) != str(value):
                    yield RuleResult(
                        location=Location(component.name, "field", ("main", "resources")),
                        message=f"{name} has request {value} and "
                        f"{'no limit' if limit is None else f'limit {limit}'}",
                        fix=Fix(
                            text="Set both to the same value.",
                            fields={f"main/resources/limits/{str(name).replace('/', '~1')}": value},
                        ),
                    )


def reserved_container(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        spec = pod.spec
        inits = spec.get("initContainers")
        for index, init in enumerate(inits if isinstance(inits, list) else []):
            if isinstance(init, dict) and init.get("name") == "runtime":
                yield RuleResult(
                    location=Location(component.name, "field", ("pod", "initContainers", index)),
                    message="an init container named runtime enables sidecar mode",
                    fix=Fix(text="Rename the init container."),
                )


def privileged(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            if container.cursor["securityContext"]["privileged"].value is True:
                own = deployment.pods[component.name].resources["limits"]["custom"].value
                named = [*_limits(container.cursor), *(own if isinstance(own, Mapping) else ())]
                yield RuleResult(
                    location=Location(
                        component.name, "field", ("main", "securityContext", "privileged")
                    ),
                    message=f"a container of {component.name} is privileged",
                    fix=_unprivileged(str(key) for key in named),
                )


def _unprivileged(resources: Iterable[str]) -> Fix:
    """A device plugin grants access to its devices. Without one, as with /dev/infiniband by
    hostPath, the device cgroup denies it to a container that is not privileged."""
    if not any("rdma" in name or "/ib" in name for name in resources):
        return Fix(
            text="Request the devices that the container needs from a device plugin first; "
            "without one, only a privileged container has access to them."
        )
    return Fix(
        text="Use runAsUser: 0 with the capability IPC_LOCK instead: the RDMA resource grants "
        "access to the devices.",
        fields={
            "main/securityContext/privileged": False,
            "main/securityContext/runAsUser": 0,
            "main/securityContext/capabilities/add": ["IPC_LOCK"],
        },
    )


def _limits(container: Cursor) -> Iterable[str]:
    limits = as_mapping(container["resources"]["limits"].value)
    return [name for name, amount in limits.items() if str(amount) != "0"]


def host_ports(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        spec = deployment.pods[component.name].spec
        fills_node = component.gpus // max(1, component.nodes) >= (deployment.gpus_per_node or 8)
        if spec.get("hostNetwork") is True and component.replicas > 1 and not fills_node:
            yield RuleResult(
                location=Location(component.name, "field", ("pod", "hostNetwork")),
                message=f"{component.replicas} replicas share the ports of the host network",
                fix=Fix(text="Remove hostNetwork, or place each replica on its own node."),
            )


def other_gpu(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        selector = worker.pod.spec.get("nodeSelector")
        label = selector.get("nvidia.com/gpu.product") if isinstance(selector, Mapping) else None
        gpu = gpu_of_product(str(label)) if label else None
        if gpu and deployment.gpu and gpu is not deployment.gpu:
            yield RuleResult(
                location=worker.location("field", "pod", "nodeSelector"),
                message=f"{worker.name} selects nodes with {label}, but hardware.gpu is "
                f"{deployment.gpu.name}",
                fix=Fix(
                    text="Name the same GPU in both.",
                    fields={"pod/nodeSelector": {"nvidia.com/gpu.product": deployment.gpu.product}},
                ),
            )


def no_arm_toleration(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for component in deployment.components if gpu and gpu.is_grace else ():
        spec = deployment.pods[component.name].spec
        if gpu and component.gpus and not _tolerates_arm(spec.get("tolerations")):
            yield RuleResult(
                location=Location(component.name, "field", ("pod", "tolerations")),
                message=f"{component.name} does not tolerate the arm64 taint of {gpu.name} nodes",
                fix=Fix(
                    text="Add a toleration for kubernetes.io/arch=arm64.",
                    fields={
                        "pod/tolerations": [
                            {
                                "key": "kubernetes.io/arch",
                                "operator": "Equal",
                                "value": "arm64",
                                "effect": "NoSchedule",
                            }
                        ]
                    },
                ),
            )


def _tolerates_arm(tolerations: Any) -> bool:
    for one in tolerations if isinstance(tolerations, list) else ():
        key, value = (one.get("key"), one.get("value")) if isinstance(one, dict) else ("", None)
        exists = isinstance(one, dict) and one.get("operator") == "Exists"
        if (exists and key in (None, "kubernetes.io/arch")) or value == "arm64":
            return True
    return False


def fractional_gpu(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        for side in ("limits", "requests"):
            values = worker.pod.containers[0].cursor["resources"][side].value
            text = values.get("nvidia.com/gpu") if isinstance(values, Mapping) else None
            if isinstance(text, float) or (isinstance(text, str) and not text.isdigit()):
                yield RuleResult(
                    location=worker.location("field", "main", "resources"),
                    message=f"nvidia.com/gpu is {text}, which is not an integer",
                    fix=Fix(text="Use an integer."),
                )


def host_cache_above_memory_limit(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        host = positive_int(worker.get("kv_cache_config.host_cache_size"))
        limit = _memory_limit(worker.pod)
        shm = shared_memory(worker.pod) or 0
        if not worker.is_trtllm or not host or not limit:
            continue
        cache = host * max(1, worker.world // worker.component.nodes)  # of the ranks in one pod
        if cache + shm >= limit:
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "memory"),
                message=f"the host KV cache ({gib(cache)}) and shared memory ({gib(shm)}) reach "
                f"the memory limit of {gib(limit)}",
                fix=Fix(
                    text="Raise the memory limit.",
                    fields={"main/resources/limits/memory": gib(cache + shm + 32 * GIB)},
                ),
                # The cache is allocated at startup, shared memory when it is written.
                level=None if cache >= limit else Level.WARNING,
            )
