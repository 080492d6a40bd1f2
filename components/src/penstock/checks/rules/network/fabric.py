"""Rules of the network under the hand-off: RDMA devices, NVLink over nodes, EFA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

NIC_WORDS = ("rdma/", "efa", "infiniband", "hca", "roce", "mofed")
MNNVL = {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1", "UCX_CUDA_IPC_ENABLE_MNNVL": "1"}

CHANNEL = "compute-domain-channel"
CLAIM = {"pod/resourceClaims": [{"name": CHANNEL, "resourceClaimTemplateName": CHANNEL}]}


def moving(deployment: ServingDeployment) -> Iterator[Worker]:
    """The GPU workers whose KV leaves their pod, one of each component."""
    if not deployment.is_disaggregated:
        return
    seen = set()
    for worker in deployment.pool(Role.PREFILL, Role.DECODE):
        if worker.component.gpus and worker.engine is not Engine.MOCKER and worker.name not in seen:
            seen.add(worker.name)
            yield worker


def amounts(worker: Worker, side: str = "limits") -> dict[str, int]:
    """Whole amounts of the main container's resources; v1alpha1's own ones too."""
    main = worker.pod.containers[0].cursor["resources"][side]
    custom = worker.pod.resources[side]["custom"]
    values: dict[str, Any] = {}
    for cursor in (custom, main):
        if isinstance(cursor.value, Mapping):
            values |= cursor.value
    return {k: int(str(v)) for k, v in values.items() if str(v).isdigit()}


def nics(worker: Worker) -> dict[str, int]:
    """RDMA devices by resource name."""
    return {k: v for k, v in amounts(worker).items() if any(w in k.lower() for w in NIC_WORDS)}


def _claims_devices(worker: Worker) -> bool:
    """DRA claims may bring network devices, which nothing here counts."""
    return bool(worker.pod.claims.value)


def _on_the_host(worker: Worker) -> bool:
    spec = worker.pod.spec
    return spec.get("hostNetwork") is True or _security(worker).get("privileged") is True


def _security(worker: Worker) -> Mapping[str, Any]:
    value = worker.pod.containers[0].cursor["securityContext"].value
    return value if isinstance(value, Mapping) else {}


def _has_other_network(worker: Worker) -> bool:
    """Devices by other means: DRA claims, the host's network, a CNI's annotation, a resource
    called otherwise."""
    template = worker.pod.cursor.at("podTemplate", "metadata", "annotations").value
    alpha = worker.pod.cursor["extraPodMetadata"]["annotations"].value
    names = [str(n) for found in (template, alpha) if isinstance(found, Mapping) for n in found]
    by_cni = any("networks" in name or "interfaces" in name for name in names)
    others = [n for n in amounts(worker) if "/" in n and not n.endswith("/gpu")]
    return _claims_devices(worker) or _on_the_host(worker) or by_cni or bool(others)


def _shares_a_pod(deployment: ServingDeployment) -> bool:
    """Both roles in one pod reach each other over shared memory and NVLink."""
    names = {w.name for w in deployment.pool(Role.PREFILL)}
    return any(w.name in names for w in deployment.pool(Role.DECODE))


@rule(
    id="PS431",
    title="KV over TCP",
    level=Level.WARNING,
    cause="Pods cannot use NVLink between them, and this one asks for no RDMA device; UCX then "
    "takes TCP and says nothing.",
    effect="A first token after 98 s instead of 0.2 to 0.5 s; 1803 ms a transfer instead of 3.",
    remedy="One RDMA device a GPU, IPC_LOCK, and UCX_TLS without tcp.",
    source="disagg-communication.md@03bc1963; dynamo#6370, dynamo#622, dynamo#1314, nixl#1097",
)
def no_rdma(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if _shares_a_pod(deployment):
        return
    for worker in moving(deployment):
        if not nics(worker) and not _has_other_network(worker):
            tcp = worker.env("UCX_TLS") or ""
            chosen = "tcp" in tcp.split(",") and not tcp.startswith("^")
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "rdma"),
                message=f"{worker.name} asks for no RDMA device, so its KV goes over TCP",
                fix=Fix(
                    text="ask for one device a GPU",
                    fields={"main/resources/limits/rdma~1ib": str(_gpus(worker))},
                    graph={"kv_transfer.transport": "rdma"},
                ),
                level=Level.NOTE if chosen else None,
            )


def _gpus(worker: Worker) -> int:
    return worker.component.gpus // max(1, worker.component.nodes)


@rule(
    id="PS432",
    title="fewer RDMA devices than GPUs",
    level=Level.WARNING,
    cause="Several GPUs share a device.",
    effect="Transfers at a fraction of the speed.",
    remedy="One device a GPU.",
    source="disagg-communication.md@03bc1963",
)
def fewer_devices(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving(deployment):
        devices = nics(worker)
        count, name = sum(devices.values()), next(iter(devices), "")
        if not count or count >= _gpus(worker) or any("efa" in n or "shared" in n for n in devices):
            continue
        yield RuleResult(
            location=worker.location("field", "main", "resources", "limits", "rdma"),
            message=f"{count} of {name} for {_gpus(worker)} GPUs",
            fix=Fix(
                text="one a GPU, unless one admits to all of the node's",
                fields={f"main/resources/limits/{name.replace('/', '~1')}": str(_gpus(worker))},
            ),
            # Some clusters count admissions, not devices: one token opens all of the node's.
            level=Level.NOTE if count == 1 else None,
        )


@rule(
    id="PS433",
    title="RDMA without IPC_LOCK",
    level=Level.WARNING,
    cause="Registering memory locks pages, which needs the capability where the limit is low.",
    effect="ibv_reg_mr fails, and UCX falls back to TCP or ends the worker.",
    remedy="capabilities: {add: [IPC_LOCK]}.",
    source="disagg-communication.md@03bc1963",
)
def no_ipc_lock(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving(deployment):
        security = _security(worker)
        added = (security.get("capabilities") or {}).get("add") or []
        if nics(worker) and "IPC_LOCK" not in added and not security.get("privileged"):
            yield RuleResult(
                location=worker.location("field", "main", "securityContext"),
                message=f"{worker.name} has RDMA devices and no capability IPC_LOCK",
                fix=Fix(
                    text="add it", fields={"main/securityContext/capabilities/add": ["IPC_LOCK"]}
                ),
            )


@rule(
    id="PS438",
    title="NVLink over nodes that is not switched on",
    level=Level.WARNING,
    cause="A worker spans nodes of an NVL72 rack without NCCL's and UCX's variables for it.",
    effect="All-reduces go over the network.",
    remedy="NCCL_MNNVL_ENABLE, NCCL_CUMEM_ENABLE, UCX_CUDA_IPC_ENABLE_MNNVL, and a ComputeDomain.",
    source="disagg-communication.md@03bc1963; recipes/deepseek-r1/trtllm/disagg/wide_ep/gb200",
)
def half_mnnvl(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        gpu = deployment.gpu
        if gpu is None or not gpu.is_grace or worker.component.nodes < 2:
            continue
        wanted = {n: v for n, v in MNNVL.items() if deployment.is_disaggregated or "UCX" not in n}
        missing = {n: v for n, v in wanted.items() if not worker.env(n)}
        if missing:
            yield RuleResult(
                location=worker.location("env", next(iter(missing))),
                message=f"{worker.name} spans {worker.component.nodes} nodes of {gpu.name} without "
                f"{', '.join(missing)}",
                fix=Fix(
                    text="set them, and claim a ComputeDomain",
                    env=dict(missing),
                    fields={} if _claims_devices(worker) else CLAIM,
                ),
            )


@rule(
    id="PS439",
    title="NVLink over nodes without a ComputeDomain",
    level=Level.ERROR,
    cause="UCX_CUDA_IPC_ENABLE_MNNVL is on and the pod claims no channel of a ComputeDomain.",
    effect="A crash or NIXL_ERR_BACKEND in cuda_ipc.",
    remedy="Claim the channel, or remove the variable.",
    source="nccl#2186; disagg-communication.md@03bc1963",
)
def mnnvl_without_domain(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        on = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL") in ("y", "1", "yes", "on")
        if on and not _claims_devices(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_CUDA_IPC_ENABLE_MNNVL"),
                message=f"{worker.name} uses NVLink over nodes and claims no ComputeDomain channel",
                fix=Fix(text="claim one", fields=CLAIM),
            )


@rule(
    id="PS440",
    title="EFA by half",
    level=Level.WARNING,
    cause="The pod has EFA devices without the provider's variables, its image, or all of the "
    "node's devices.",
    effect="finish_reason cancelled with empty text, or TCP.",
    remedy="All EFA devices of the node, FI_PROVIDER=efa, the -efa image.",
    source="Dynamo release notes (EFA); disagg-communication.md@03bc1963",
)
def half_efa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving(deployment):
        count = sum(n for name, n in nics(worker).items() if "efa" in name)
        if not count:
            continue
        if worker.env("FI_PROVIDER") != "efa":
            yield RuleResult(
                location=worker.location("env", "FI_PROVIDER"),
                message=f"{worker.name} has EFA devices and no FI_PROVIDER=efa",
                fix=Fix(
                    text="set EFA's variables",
                    env={"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"},
                ),
            )
        if worker.is_trtllm and "-efa" not in worker.component.image:
            yield RuleResult(
                location=worker.location("field", "main", "image"),
                message=f"{worker.component.image} has no EFA provider; the -efa image has",
                fix=Fix(text="use the image of the same version with -efa"),
            )
        if count < _gpus(worker):
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "rdma"),
                message=f"{count} EFA devices for {_gpus(worker)} GPUs: only part of the node's",
                fix=Fix(text="ask for all of the node's"),
                level=Level.ERROR,
            )
