"""Rules of pods: memory, devices, probes, grace, rights, what the image and the volumes are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import Location
from penstock.hardware import gpu_of_product
from penstock.manifests.cursor import Cursor
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import Pod
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
GIB = 2**30
SHM = "/dev/shm"  # noqa: S108  the pod's, which nobody else writes
DEFAULT_SHM = 8 * GIB  # the operator's
SMALL_SHM = GIB  # below this NCCL of several GPUs has failed


def quantity(value: Any) -> float | None:
    """Bytes of a Kubernetes quantity; None where it is none."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGTP]i?|Ki)?", str(value))
    return float(found[1]) * UNITS[found[2] or ""] if found else None


def gib(size: float) -> str:
    return f"{round(size / GIB, 2):g}Gi"


def shared_memory(pod: Pod) -> float | None:
    """Bytes of /dev/shm: 0 where switched off, the operator's where unset, None if unreadable."""
    said = pod.cursor["sharedMemorySize"]
    alpha = pod.cursor["sharedMemory"]
    if alpha["disabled"].value is True:
        return 0.0
    value = said.value if not said.is_absent else alpha["size"].value
    return float(DEFAULT_SHM) if value is None else quantity(value)


def _memory_limit(pod: Pod) -> float | None:
    main = pod.containers[0].cursor["resources"]["limits"]["memory"].value
    own = pod.resources["limits"]["memory"].value
    value = main if main is not None else own
    return None if value is None else quantity(value)


def one_each(deployment: ServingDeployment) -> Iterator[Worker]:
    seen = set()
    for worker in deployment.workers:
        if worker.name not in seen and worker.engine is not Engine.MOCKER:
            seen.add(worker.name)
            yield worker


@rule(
    id="PS701",
    title="no shared memory for several GPUs",
    level=Level.ERROR,
    cause="NCCL and the engine's processes talk through /dev/shm; it is off or tiny.",
    effect="“unhandled system error” or a bus error at the start or under load.",
    remedy="sharedMemorySize 64Gi.",
    source="dynamo#1408, dynamo#7550",
)
def no_shared_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        size = shared_memory(worker.pod)
        has_volume = _mounts_shm(worker.pod)
        if worker.world > 1 and size is not None and size < SMALL_SHM and not has_volume:
            fields: dict[str, object] = {"sharedMemorySize": "64Gi"}
            if worker.pod.cursor["sharedMemory"]["disabled"].value is True:  # v1alpha1
                fields["sharedMemory/disabled"] = False
            yield RuleResult(
                location=worker.location("field", "sharedMemorySize"),
                message=f"{gib(size)} of shared memory for {worker.world} GPUs",
                fix=Fix(text="give it what the recipes give", fields=fields),
            )


def _mounts_shm(pod: Pod) -> bool:
    mounts = pod.containers[0].cursor["volumeMounts"].value
    listed = mounts if isinstance(mounts, list) else []
    return any(isinstance(m, dict) and m.get("mountPath") == SHM for m in listed)


@rule(
    id="PS702",
    title="shared memory left at 8Gi",
    level=Level.NOTE,
    cause="The operator's default; published TensorRT-LLM recipes have 64 to 128Gi.",
    effect="Not known to fail by itself.",
    remedy="Set shared_memory.",
    source="recipes/gpt-oss-120b/trtllm/disagg@04521f47; AISimulate generator rules",
)
def little_shared_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        keys = ("sharedMemorySize", "sharedMemory")
        said = any(not worker.pod.cursor[key].is_absent for key in keys)
        if worker.world > 1 and not said and not _mounts_shm(worker.pod):
            yield RuleResult(
                location=worker.location("field", "sharedMemorySize"),
                message=f"the operator's 8Gi of shared memory for {worker.world} GPUs",
                fix=Fix(
                    text="published recipes have 64 to 128Gi", fields={"sharedMemorySize": "64Gi"}
                ),
            )


@rule(
    id="PS703",
    title="shared memory above the memory limit",
    level=Level.ERROR,
    cause="What /dev/shm holds counts against the container's memory limit.",
    effect="The engine's child is killed for memory under load; health stays green.",
    remedy="Limit = what the processes need + shared memory.",
    source="Kubernetes, emptyDir with medium Memory; Dynamo 1.3 and 1.4 known issues",
)
def shm_above_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        size, limit = shared_memory(worker.pod), _memory_limit(worker.pod)
        if size and limit and size >= limit:
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "memory"),
                message=f"memory limit {gib(limit)}, and /dev/shm may take {gib(size)} of it",
                fix=Fix(
                    text="count shared memory on top",
                    fields={"main/resources/limits/memory": gib(limit + size)},
                ),
            )


@rule(
    id="PS704",
    title="requests that are not the limits",
    level=Level.ERROR,
    cause="Extended resources (GPUs, RDMA) cannot be overcommitted.",
    effect="The API server refuses the pod.",
    remedy="Give the limit, or both alike.",
    source="Kubernetes, manage-gpus/scheduling-gpus",
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
                        message=f"requests {name}: {value}, limits "
                        f"{'has none' if limit is None else limit}",
                        fix=Fix(
                            text="make them equal",
                            fields={f"main/resources/limits/{str(name).replace('/', '~1')}": value},
                        ),
                    )


@rule(
    id="PS709",
    title="an init container called runtime",
    level=Level.ERROR,
    cause="The name is reserved: it switches the operator's sidecar mode on.",
    effect="The pod is built differently, or refused with multinode, checkpoints or failover.",
    remedy="Call it otherwise.",
    source="Dynamo 1.6.0 chart notes",
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
                    message="an init container called runtime switches sidecar mode on",
                    fix=Fix(text="call it otherwise"),
                )


@rule(
    id="PS711",
    title="a privileged container",
    level=Level.WARNING,
    cause="RDMA over InfiniBand or RoCE needs IPC_LOCK, not the whole node.",
    effect="Refused by restricted pod security; a way out of the container.",
    remedy="capabilities: {add: [IPC_LOCK]}; EFA is the exception.",
    source="disagg-communication.md@03bc1963; Kubernetes pod security standards",
)
def privileged(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for container in deployment.pods[component.name].containers:
            if container.cursor["securityContext"]["privileged"].value is True:
                own = deployment.pods[component.name].resources["limits"]["custom"].value
                named = [*_limits(container.cursor), *(own if isinstance(own, Mapping) else ())]
                efa = any("efa" in str(key) for key in named)
                yield RuleResult(
                    location=Location(
                        component.name, "field", ("main", "securityContext", "privileged")
                    ),
                    message=f"a container of {component.name} is privileged",
                    fix=Fix(
                        text="IPC_LOCK is enough for RDMA",
                        fields={
                            "main/securityContext/privileged": False,
                            "main/securityContext/capabilities/add": ["IPC_LOCK"],
                        },
                    ),
                    level=Level.NOTE if efa else None,
                )


def _limits(container: Cursor) -> Iterable[str]:
    value = container["resources"]["limits"].value
    return value if isinstance(value, Mapping) else ()


@rule(
    id="PS712",
    title="replicas on the host's network",
    level=Level.WARNING,
    cause="Two pods on one node want the same ports 8000, 9090, 19090.",
    effect="“Address already in use”, in a crash loop.",
    remedy="Leave hostNetwork out.",
    source="dynamo#7366",
)
def host_ports(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        spec = deployment.pods[component.name].spec
        whole_node = component.gpus // max(1, component.nodes) >= (deployment.gpus_per_node or 8)
        if spec.get("hostNetwork") is True and component.replicas > 1 and not whole_node:
            yield RuleResult(
                location=Location(component.name, "field", ("pod", "hostNetwork")),
                message=f"{component.replicas} replicas on the host's network with one set of "
                "ports",
                fix=Fix(text="leave hostNetwork out, or keep replicas on nodes of their own"),
            )


@rule(
    id="PS717",
    title="another GPU than the graph is for",
    level=Level.ERROR,
    cause="The node selector names another GPU than `hardware.gpu`.",
    effect="Everything checked here was checked for the wrong GPU.",
    remedy="Name one.",
    source="penstock.hardware",
)
def other_gpu(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        selector = worker.pod.spec.get("nodeSelector")
        label = selector.get("nvidia.com/gpu.product") if isinstance(selector, Mapping) else None
        gpu = gpu_of_product(str(label)) if label else None
        if gpu and deployment.gpu and gpu is not deployment.gpu:
            yield RuleResult(
                location=worker.location("field", "pod", "nodeSelector"),
                message=f"{worker.name} goes to nodes with {label}, and the graph is for "
                f"{deployment.gpu.name}",
                fix=Fix(
                    text="name one GPU",
                    fields={"pod/nodeSelector": {"nvidia.com/gpu.product": deployment.gpu.product}},
                ),
            )


@rule(
    id="PS718",
    title="Grace nodes without the toleration",
    level=Level.NOTE,
    cause="GB200 and GB300 nodes are arm64, and many clusters taint them.",
    effect="Pods stay Pending: untolerated taint.",
    remedy="Tolerate kubernetes.io/arch=arm64.",
    source="recipes/gpt-oss-120b/trtllm/agg@668dd11d; dynamo#6947",
)
def arm_untolerated(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for component in deployment.components if gpu and gpu.is_grace else ():
        spec = deployment.pods[component.name].spec
        if gpu and component.gpus and not _tolerates_arm(spec.get("tolerations")):
            yield RuleResult(
                location=Location(component.name, "field", ("pod", "tolerations")),
                message=f"{component.name} does not tolerate the arm64 taint of {gpu.name} nodes",
                fix=Fix(
                    text="tolerate it",
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
    title="a part of a GPU",
    level=Level.ERROR,
    cause="nvidia.com/gpu counts whole GPUs.",
    effect="The API server refuses the pod.",
    remedy="A whole number; MIG slices have resources of their own.",
    source="Kubernetes, manage-gpus/scheduling-gpus",
)
def more_gpus_requested(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """The device plugin counts whole GPUs; a fraction is refused at admission."""
    for worker in one_each(deployment):
        for side in ("limits", "requests"):
            values = worker.pod.containers[0].cursor["resources"][side].value
            text = values.get("nvidia.com/gpu") if isinstance(values, Mapping) else None
            if isinstance(text, float) or (isinstance(text, str) and not text.isdigit()):
                yield RuleResult(
                    location=worker.location("field", "main", "resources"),
                    message=f"nvidia.com/gpu: {text}",
                    fix=Fix(text="write a whole number"),
                )


@rule(
    id="PS720",
    title="a host KV cache above the memory limit",
    level=Level.ERROR,
    cause="host_cache_size of all ranks and shared memory together fill the memory limit.",
    effect="Killed for memory when the cache fills.",
    remedy="Raise the limit.",
    source="TensorRT-LLM llm_args.py (host_cache_size); Kubernetes, emptyDir",
)
def unlimited_memory(deployment: ServingDeployment) -> Iterable[RuleResult]:
    """Offload to host memory without a limit to count it against."""
    for worker in one_each(deployment):
        host = positive_int(worker.get("kv_cache_config.host_cache_size"))
        limit = _memory_limit(worker.pod)
        shm = shared_memory(worker.pod) or 0
        if not worker.is_trtllm or not host or not limit:
            continue
        cache = host * max(1, worker.world // worker.component.nodes)  # of the ranks in one pod
        if cache + shm >= limit:
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "memory"),
                message=f"memory limit {gib(limit)}; host KV cache {gib(cache)} and "
                f"shared memory {gib(shm)} fill it",
                fix=Fix(
                    text="grant more",
                    fields={"main/resources/limits/memory": gib(cache + shm + 32 * GIB)},
                ),
            )
