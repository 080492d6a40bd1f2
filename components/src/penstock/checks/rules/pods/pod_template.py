"""Rules about pods: shared memory, resources, devices, privileges and node selection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import HARDWARE, KUBERNETES, OPERATOR, PENSTOCK, Versions
from penstock.engines.settings import Location
from penstock.hardware import gpu_of_product
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import Engine
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


@rule(
    id="PS701",
    title="too little shared memory for several GPUs",
    level=Level.ERROR,
    cause="NCCL and the engine's processes communicate through /dev/shm, which is disabled or "
    "tiny.",
    effect="The engine fails with “unhandled system error” or a bus error, at once or under load.",
    remedy="Set sharedMemorySize to 64Gi.",
    source="dynamo#1408, dynamo#7550",
    versions=KUBERNETES,
)
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


@rule(
    id="PS702",
    title="shared memory has the default of 8Gi",
    level=Level.NOTE,
    cause="The operator's default is 8Gi; published TensorRT-LLM recipes use 64 to 128Gi.",
    effect="No failure is known from this setting alone.",
    remedy="Set shared_memory.",
    source="recipes/gpt-oss-120b/trtllm/disagg@04521f47; AISimulate generator rules",
    versions=OPERATOR,
)
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


@rule(
    id="PS703",
    title="shared memory exceeds the memory limit",
    level=Level.WARNING,
    cause="The contents of /dev/shm count against the container's memory limit.",
    effect="A child process of the engine is OOM-killed under load, while the health check passes.",
    remedy="Set the limit to the memory of the processes plus shared memory.",
    source="Kubernetes, emptyDir with medium Memory; Dynamo 1.3 and 1.4 known issues",
    versions=KUBERNETES,
    other_levels=(Level.NOTE,),
    exceptions="It is a note for a worker with one GPU, which uses little shared memory.",
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


@rule(
    id="PS704",
    title="requests and limits of an extended resource differ",
    level=Level.ERROR,
    cause="Extended resources (GPUs, RDMA) cannot be overcommitted.",
    effect="The API server rejects the pod.",
    remedy="Set only the limit, or both to the same value.",
    source="Kubernetes, manage-gpus/scheduling-gpus",
    versions=KUBERNETES,
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


@rule(
    id="PS709",
    title="reserved init container name",
    level=Level.ERROR,
    cause="The name `runtime` is reserved: it enables the operator's sidecar mode.",
    effect="The operator builds a different pod, or rejects it with multinode, checkpoints or "
    "failover.",
    remedy="Rename the init container.",
    source="Dynamo 1.6.0 chart notes",
    versions=Versions(dynamo=">=1.6"),
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


@rule(
    id="PS711",
    title="privileged container",
    level=Level.NOTE,
    cause="RDMA devices of a device plugin need at most IPC_LOCK, not a privileged container.",
    effect="The restricted pod security standard rejects the pod, and the container can access the "
    "node.",
    remedy="Request the RDMA devices as a resource, and use runAsUser: 0 with capabilities: {add: "
    "[IPC_LOCK]}: only root keeps an added capability.",
    source="disagg-communication.md@03bc1963; nvidia-container-toolkit#2037; Kubernetes pod "
    "security standards",
    versions=KUBERNETES,
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


@rule(
    id="PS712",
    title="several replicas with hostNetwork",
    level=Level.WARNING,
    cause="Two pods on one node use the same ports 8000, 9090 and 19090.",
    effect="The second pod fails with “Address already in use” in a crash loop.",
    remedy="Remove hostNetwork.",
    source="dynamo#7366",
    versions=KUBERNETES,
)
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


@rule(
    id="PS717",
    title="node selector and hardware.gpu differ",
    level=Level.WARNING,
    cause="The node selector names another GPU than `hardware.gpu`.",
    effect="The checks apply to the wrong GPU.",
    remedy="Name the same GPU in both.",
    source="penstock.hardware",
    versions=PENSTOCK,
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


@rule(
    id="PS718",
    title="no toleration for arm64 nodes",
    level=Level.NOTE,
    cause="GB200 and GB300 nodes are arm64, and many clusters taint them.",
    effect="Pods stay Pending because of the untolerated taint.",
    remedy="Tolerate kubernetes.io/arch=arm64.",
    source="recipes/gpt-oss-120b/trtllm/agg@668dd11d; dynamo#6947",
    versions=HARDWARE,
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


@rule(
    id="PS719",
    title="fraction of a GPU",
    level=Level.ERROR,
    cause="The device plugin counts nvidia.com/gpu in integers.",
    effect="The API server rejects the pod.",
    remedy="Request an integer. MIG slices have resource names of their own.",
    source="Kubernetes, manage-gpus/scheduling-gpus",
    versions=KUBERNETES,
)
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


@rule(
    id="PS720",
    title="the host KV cache exceeds the memory limit",
    level=Level.ERROR,
    cause="host_cache_size of all ranks plus shared memory reaches the memory limit.",
    effect="The container is OOM-killed when the cache fills.",
    remedy="Raise the limit.",
    source="TensorRT-LLM llm_args.py (host_cache_size); Kubernetes, emptyDir",
    versions=KUBERNETES,
    engines=(Engine.TRTLLM,),
    other_levels=(Level.WARNING,),
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
