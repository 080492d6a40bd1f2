"""Rules about the network of KV transfers: RDMA devices, multi-node NVLink and EFA."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.containers import mappings, runs_as_root, truth
from penstock.checks.rules.kv_transfer.transfer import has_connector, lacks_transceiver
from penstock.checks.rules.network.instance_types import nodes_with_little_efa, nodes_without_efa
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RDMA_RESOURCES = ("rdma/", "efa", "infiniband", "hca", "roce", "mofed")
NVLINK_VARIABLES = {
    "NCCL_MNNVL_ENABLE": "1",
    "NCCL_CUMEM_ENABLE": "1",
    "UCX_CUDA_IPC_ENABLE_MNNVL": "1",
}

# Before 1.0, vLLM workers without --kv-transfer-config use NixlConnector.
NIXL_BY_DEFAULT = Versions(dynamo="<1.0")
# The first release with images whose tag ends with -efa.
EFA_IMAGES = Versions(dynamo=">=1.3")
CHANNEL = "compute-domain-channel"
CLAIM = {"pod/resourceClaims": [{"name": CHANNEL, "resourceClaimTemplateName": CHANNEL}]}


def kv_transfer_pods(deployment: ServingDeployment) -> Iterator[Worker]:
    """The GPU workers that transfer KV between pods, one per component."""
    if not deployment.is_disaggregated or _are_aggregated(deployment):
        return
    seen = set()
    for worker in deployment.pool(Role.PREFILL, Role.DECODE):
        if worker.component.gpus and worker.engine is not Engine.MOCKER and worker.name not in seen:
            seen.add(worker.name)
            yield worker


def _are_aggregated(deployment: ServingDeployment) -> bool:
    """Whether no worker of SGLang sets a mode, so that all serve whole requests (PS767)."""
    pools = deployment.pool(Role.PREFILL, Role.DECODE)
    return all(
        w.engine is Engine.SGLANG
        and w.settings.is_complete
        and w.get("disaggregation-mode") is None
        and "DYN_SGLANG_DISAGGREGATION_MODE" not in w.launch.env
        for w in pools
    )


def resource_amounts(worker: Worker, side: str = "limits") -> dict[str, int]:
    """The positive amounts of the main container's resources, including v1alpha1 custom ones. A
    resource with the amount 0 counts as absent."""
    main = worker.pod.containers[0].cursor["resources"][side]
    custom = worker.pod.resources[side]["custom"]
    values: dict[str, Any] = {}
    for cursor in (custom, main):
        if isinstance(cursor.value, Mapping):
            values |= cursor.value
    return {k: int(str(v)) for k, v in values.items() if str(v).isdigit() and int(str(v))}


def rdma_devices(worker: Worker) -> dict[str, int]:
    """RDMA devices by resource name."""
    return {
        k: v
        for k, v in resource_amounts(worker).items()
        if any(w in k.lower() for w in RDMA_RESOURCES)
    }


def _claims_devices(worker: Worker) -> bool:
    """DRA claims may provide network devices, which these rules do not count."""
    return bool(worker.pod.claims.value)


def _uses_host_network(worker: Worker) -> bool:
    spec = worker.pod.spec
    return spec.get("hostNetwork") is True or _security(worker).get("privileged") is True


def _security(worker: Worker) -> Mapping[str, Any]:
    value = worker.pod.containers[0].cursor["securityContext"].value
    return as_mapping(value)


def _has_other_network(worker: Worker) -> bool:
    """Whether devices may come from DRA claims, the host network, a CNI annotation, a resource
    with another name or a folder of the node."""
    template = worker.pod.cursor.at("podTemplate", "metadata", "annotations").value
    alpha = worker.pod.cursor["extraPodMetadata"]["annotations"].value
    names = [
        str(n)
        for annotations in (template, alpha)
        if isinstance(annotations, Mapping)
        for n in annotations
    ]
    by_cni = any("networks" in name or "interfaces" in name for name in names)
    others = [n for n in resource_amounts(worker) if "/" in n and not n.endswith("/gpu")]
    is_granted = by_cni or bool(others) or _mounts_devices(worker)
    return is_granted or _claims_devices(worker) or _uses_host_network(worker)


def _mounts_devices(worker: Worker) -> bool:
    """Whether the pod mounts the devices of its node."""
    for volume in mappings(worker.pod.volumes.value):
        host = volume.get("hostPath")
        path = str(host.get("path")) if isinstance(host, Mapping) else ""
        if path == "/dev" or path.startswith("/dev/infiniband"):
            return True
    return False


def no_rdma(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.shares_a_pod:
        return
    lacks_connector = _lacks_connector(deployment)
    for worker in kv_transfer_pods(deployment):
        if rdma_devices(worker) or _has_other_network(worker) or lacks_transceiver(worker):
            continue
        without, little = nodes_without_efa(worker), nodes_with_little_efa(worker)
        nodes = without or little
        of = "no RDMA device is requested"
        if nodes:
            have = "no EFA" if without else "few or no EFA devices"
            of = f"the nodes ({', '.join(nodes)}) have {have}"
        is_excluded = _excludes_tcp(worker)
        yield RuleResult(
            location=worker.location("field", "main", "resources", "limits", "rdma"),
            message=f"{of}, and UCX_TLS excludes tcp"
            if is_excluded
            else f"{of}, so KV transfers use TCP",
            why="UCX finds no transport between the pods, so KV transfers fail."
            if is_excluded
            else "",
            fix=_rdma_fix(deployment, worker, nodes),
            level=Level.NOTE if not is_excluded and (nodes or _asks_for_tcp(worker)) else None,
            versions=NIXL_BY_DEFAULT if lacks_connector else None,
        )


def _lacks_connector(deployment: ServingDeployment) -> bool:
    """Whether a pool of vLLM has no connector, so that no KV is transferred (PS401)."""
    pools = deployment.pool(Role.PREFILL, Role.DECODE)
    vllm = [w for w in pools if w.engine is Engine.VLLM and w.settings.is_complete]
    return not all(has_connector(worker) for worker in vllm)


def _excludes_tcp(worker: Worker) -> bool:
    """Whether UCX_TLS lists transports, and none of them is TCP."""
    names = (worker.env("UCX_TLS") or "all").split(",")
    return not names[0].startswith("^") and not any(
        name == "all" or name.startswith("tcp") or "$" in name for name in names
    )


def _asks_for_tcp(worker: Worker) -> bool:
    tcp = worker.env("UCX_TLS") or ""
    is_listed = "tcp" in tcp.split(",") and not tcp.startswith("^")
    return is_listed or bool(truth(worker.env("MC_FORCE_TCP")))


def _rdma_fix(deployment: ServingDeployment, worker: Worker, nodes: Sequence[str]) -> Fix:
    if nodes:
        return Fix(
            text="Use an instance type with EFA for each GPU, such as p5, and an image with EFA, "
            "or aggregated workers, which transfer no KV between pods."
        )
    if deployment.is_graph and _asks_for_tcp(worker):
        # The chart refuses transport rdma with fabric none.
        return Fix(
            text="If the nodes have an RDMA network, name it in hardware.fabric, and leave "
            "kv_transfer.transport unset. Otherwise consider aggregated workers."
        )
    return Fix(
        text="Request one RDMA device per GPU.",
        fields={"main/resources/limits/rdma~1ib": str(_gpus(worker))},
        graph={"kv_transfer.transport": "rdma"},
    )


def _gpus(worker: Worker) -> int:
    return worker.component.gpus // max(1, worker.component.nodes)


def fewer_devices(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_pods(deployment):
        devices = rdma_devices(worker)
        count, name = sum(devices.values()), next(iter(devices), "")
        is_enough = not count or count >= _gpus(worker)
        is_selected = worker.env("UCX_NET_DEVICES") not in (None, "all")
        if is_enough or is_selected or any("efa" in n or "shared" in n for n in devices):
            continue
        yield RuleResult(
            location=worker.location("field", "main", "resources", "limits", "rdma"),
            message=f"{worker.name} requests {count} of {name} for {_gpus(worker)} GPUs",
            fix=Fix(
                text=f"Request {_gpus(worker)} of {name}, unless one device grants access to "
                "all devices of the node.",
                fields={f"main/resources/limits/{name.replace('/', '~1')}": str(_gpus(worker))},
            ),
            # On some clusters one device grants access to all RDMA devices of the node.
            level=Level.NOTE if count == 1 else None,
        )


def no_ipc_lock(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_pods(deployment):
        security = _security(worker)
        given = as_mapping(security.get("capabilities")).get("add")
        added = given if isinstance(given, list) else []
        is_root = runs_as_root(worker.pod)
        if not rdma_devices(worker) or security.get("privileged"):
            continue
        is_chosen = deployment.is_graph and worker.pod.spec.get("securityContext")
        if "IPC_LOCK" in added and (is_root is not False or is_chosen):
            continue  # cluster.security: nonroot states that the nodes have no limit
        lacks = "lacks the capability IPC_LOCK"
        if "IPC_LOCK" in added:
            lacks = "does not run as root, so the capability IPC_LOCK has no effect"
        yield RuleResult(
            location=worker.location("field", "main", "securityContext"),
            message=f"{worker.name} has RDMA devices but {lacks}",
            fix=Fix(
                text="Unless the nodes have no limit of locked memory, run the container as root "
                "with IPC_LOCK.",
                fields={
                    "main/securityContext/runAsUser": 0,
                    "main/securityContext/capabilities/add": [*added, "IPC_LOCK"]
                    if "IPC_LOCK" not in added
                    else added,
                },
                graph={"cluster.security": "least"},
            ),
        )


def multi_node_nvlink_disabled(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        gpu = deployment.gpu
        if gpu is None or not gpu.is_grace or worker.component.nodes < 2:
            continue
        required = {
            n: v
            for n, v in NVLINK_VARIABLES.items()
            if deployment.is_disaggregated or "UCX" not in n
        }
        missing = {n: v for n, v in required.items() if not worker.env(n)}
        claim = {} if _claims_devices(worker) else CLAIM
        if missing:
            yield RuleResult(
                location=worker.location("env", next(iter(missing))),
                message=f"{worker.name} spans {worker.component.nodes} nodes of {gpu.name} "
                f"without {', '.join(missing)}",
                fix=Fix(
                    text=f"Set {', '.join(missing)}"
                    f"{' and claim a ComputeDomain channel' if claim else ''}.",
                    env=dict(missing),
                    fields=claim,
                ),
            )


def nvlink_without_compute_domain(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        is_enabled = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL") in ("y", "1", "yes", "on")
        if is_enabled and not _claims_devices(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_CUDA_IPC_ENABLE_MNNVL"),
                message=f"{worker.name} enables multi-node NVLink but claims no ComputeDomain "
                "channel",
                fix=Fix(text="Claim a ComputeDomain channel.", fields=CLAIM),
            )


def incomplete_efa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_pods(deployment):
        count = sum(n for name, n in rdma_devices(worker).items() if "efa" in name)
        if not count:
            continue
        if worker.env("FI_PROVIDER") not in ("efa", None):
            yield RuleResult(
                location=worker.location("env", "FI_PROVIDER"),
                message=f"{worker.name} has EFA devices, but FI_PROVIDER is "
                f"{worker.env('FI_PROVIDER')}",
                fix=Fix(
                    text="Set FI_PROVIDER=efa and FI_EFA_USE_DEVICE_RDMA=1.",
                    env={"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"},
                ),
            )
        is_nvidia = worker.component.image.startswith("nvcr.io/nvidia/ai-dynamo/")
        if worker.is_trtllm and is_nvidia and "-efa" not in worker.component.image:
            yield RuleResult(
                location=worker.location("field", "main", "image"),
                message=f"{worker.component.image} has no EFA provider",
                fix=Fix(text="Use the image of the same version with -efa."),
                level=Level.NOTE,  # a published recipe of 1.3 uses the plain image with EFA
                versions=EFA_IMAGES,
            )
        if count < _gpus(worker):
            yield RuleResult(
                location=worker.location("field", "main", "resources", "limits", "rdma"),
                message=f"{worker.name} requests {count} EFA devices for {_gpus(worker)} GPUs",
                fix=Fix(text="Request all EFA devices of the node, unless it has no more."),
            )
