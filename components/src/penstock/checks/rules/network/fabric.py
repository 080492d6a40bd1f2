"""Network devices of the pods that transfer KV, and the instance types of their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.checks.rules.containers import mappings, truth
from penstock.checks.rules.kv_transfer.transfer import has_connector, lacks_transceiver
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.understand import all_node_labels, node_labels
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping

RDMA_RESOURCES = ("rdma/", "efa", "infiniband", "hca", "roce", "mofed")
CHANNEL = "compute-domain-channel"
# The fields that claim a channel of a ComputeDomain.
CLAIM = {"pod/resourceClaims": [{"name": CHANNEL, "resourceClaimTemplateName": CHANNEL}]}
LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
# pkg/utils/instance/instance_types.go of eksctl@99984adb, which has them from the EC2 API. The
# prefix `ml.` is that of HyperPod.
_WITHOUT_EFA = re.compile(
    r"(ml\.)?((g4dn|g5|g6|g6e|g7|g7e|gr6)\.[24]?xlarge|(g5g|g6f|gr6f)\.\d*x?large)"
)
_TYPE = re.compile(r"(ml\.)?[a-z0-9-]+\.([0-9]*x?large|metal)")
# Their sizes with several GPUs have EFA, but fewer devices than GPUs.
_WITH_LITTLE_EFA = re.compile(r"(ml\.)?(g4dn|g5|g6e?|g7e?)\.((12|24|48)xlarge|metal)")
# Their families, as the label of a family or the name of a node pool has them.
_FAMILY = re.compile(r"(^|[^a-z0-9])(g4dn|g5g?|g6[ef]?|g7e?|gr6f?)([^a-z0-9]|$)", re.IGNORECASE)
# Labels of Karpenter and of EKS, and those that people give to the nodes of a pool.
_OF_NODES = re.compile(r"instance|node-?(pool|group)|provisioner", re.IGNORECASE)
_CATEGORY = re.compile(r"/instance-category$")


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
    return all(
        worker.engine is Engine.SGLANG
        and worker.settings.is_complete
        and worker.get("disaggregation-mode") is None
        and "DYN_SGLANG_DISAGGREGATION_MODE" not in worker.launch.env
        for worker in deployment.pool(Role.PREFILL, Role.DECODE)
    )


def lacks_connector(deployment: ServingDeployment) -> bool:
    """Whether a worker of vLLM has no connector, so that no KV is transferred (PS401)."""
    return any(
        worker.engine is Engine.VLLM and worker.settings.is_complete and not has_connector(worker)
        for worker in deployment.pool(Role.PREFILL, Role.DECODE)
    )


def gpus_of_pod(worker: Worker) -> int:
    """GPUs of one of the worker's pods, each on a node of its own."""
    return worker.component.gpus // max(1, worker.component.nodes)


def _resource_amounts(worker: Worker) -> dict[str, int]:
    """The positive limits of the main container's resources, including v1alpha1 custom ones. A
    resource with the amount 0 counts as absent."""
    limits: dict[str, Any] = {
        **as_mapping(worker.pod.resources["limits"]["custom"].value),
        **as_mapping(worker.pod.containers[0].cursor["resources"]["limits"].value),
    }
    return {k: int(str(v)) for k, v in limits.items() if str(v).isdigit() and int(str(v))}


def rdma_devices(worker: Worker) -> dict[str, int]:
    """RDMA devices by resource name."""
    return {
        name: amount
        for name, amount in _resource_amounts(worker).items()
        if any(part in name.lower() for part in RDMA_RESOURCES)
    }


def efa_devices(worker: Worker) -> int:
    """The network devices of AWS (EFA)."""
    return sum(amount for name, amount in rdma_devices(worker).items() if "efa" in name)


def has_efa(worker: Worker) -> bool:
    """Whether the worker's pod requests network devices of AWS (EFA)."""
    return efa_devices(worker) > 0


def claims_devices(worker: Worker) -> bool:
    """DRA claims may provide network devices, which these rules do not count."""
    return bool(worker.pod.claims.value)


def security_context(worker: Worker) -> Mapping[str, Any]:
    """That of the main container."""
    return as_mapping(worker.pod.containers[0].cursor["securityContext"].value)


def added_capabilities(worker: Worker) -> list[Any]:
    """The capabilities that the main container has beyond the default ones."""
    added = as_mapping(security_context(worker).get("capabilities")).get("add")
    return added if isinstance(added, list) else []


def has_only_tcp(worker: Worker) -> bool:
    """Whether the worker transfers KV and has no RDMA devices. They may also come from DRA claims,
    the host network, a CNI annotation, a resource with another name or a folder of the node."""
    pod = worker.pod
    annotations = (
        *as_mapping(pod.cursor.at("podTemplate", "metadata", "annotations").value),
        *as_mapping(pod.cursor["extraPodMetadata"]["annotations"].value),
    )
    has_devices = (
        rdma_devices(worker)
        or any("networks" in str(name) or "interfaces" in str(name) for name in annotations)
        or any("/" in name and not name.endswith("/gpu") for name in _resource_amounts(worker))
        or any(map(_mounts_devices, mappings(pod.volumes.value)))
        or claims_devices(worker)
        or pod.spec.get("hostNetwork") is True
        or security_context(worker).get("privileged") is True
    )
    return not has_devices and not lacks_transceiver(worker)


def _mounts_devices(volume: Mapping[str, Any]) -> bool:
    path = str(as_mapping(volume.get("hostPath")).get("path"))
    return path == "/dev" or path.startswith("/dev/infiniband")


def excludes_tcp(worker: Worker) -> bool:
    """Whether UCX_TLS lists transports, and none of them is TCP."""
    names = (worker.env("UCX_TLS") or "all").split(",")
    return not names[0].startswith("^") and not any(
        name == "all" or name.startswith("tcp") or "$" in name for name in names
    )


def asks_for_tcp(worker: Worker) -> bool:
    """Whether a variable of UCX or Mooncake names TCP."""
    tcp = worker.env("UCX_TLS") or ""
    is_listed = "tcp" in tcp.split(",") and not tcp.startswith("^")
    return is_listed or bool(truth(worker.env("MC_FORCE_TCP")))


def nodes_without_efa(worker: Worker) -> tuple[str, ...]:
    """The instance types that the pod may run on, if none of them has EFA."""
    types = tuple(dict.fromkeys(node_labels(worker.pod, LABELS)))
    return types if all(_WITHOUT_EFA.fullmatch(name) for name in types) else ()


def nodes_with_little_efa(worker: Worker) -> tuple[str, ...]:
    """The values of labels by which the pod may run only on types or families with little EFA."""
    by_label: dict[str, list[str]] = {}
    for name, value in all_node_labels(worker.pod):
        by_label.setdefault(name, []).append(value)
    for name, values in by_label.items():
        is_category = _CATEGORY.search(name) and set(values) == {"g"}
        is_little = _OF_NODES.search(name) and all(map(_has_little_efa, values))
        if is_category or is_little:
            return tuple(dict.fromkeys(values))
    return ()


def _has_little_efa(value: str) -> bool:
    if _TYPE.fullmatch(value):
        return bool(_WITHOUT_EFA.fullmatch(value) or _WITH_LITTLE_EFA.fullmatch(value))
    return bool(_FAMILY.search(value))
