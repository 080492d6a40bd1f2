"""The network of KV transfers: devices of pods and nodes, UCX and the other plugins of NIXL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import mappings, security_context, truth
from penstock.checks.rules.kv_transfer.agreement import effective_backend
from penstock.checks.rules.kv_transfer.transfer import (
    has_connector,
    kv_transfer_workers,
    lacks_transceiver,
)
from penstock.checks.rules.kv_transfer.vllm_connectors import NIXL, SECTION, connector_of
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.pods import resources_of
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
    main, of_service = resources_of(worker.pod)
    limits = {
        **as_mapping(of_service["limits"]["custom"].value),
        **as_mapping(main["limits"].value),
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


def added_capabilities(worker: Worker) -> list[Any]:
    """The capabilities that the main container has beyond the default ones."""
    added = as_mapping(security_context(worker.pod).get("capabilities")).get("add")
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
        or security_context(pod).get("privileged") is True
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


def _has_little_efa(kind: str) -> bool:
    if _TYPE.fullmatch(kind):
        return bool(_WITHOUT_EFA.fullmatch(kind) or _WITH_LITTLE_EFA.fullmatch(kind))
    return bool(_FAMILY.search(kind))


RDMA_TRANSPORTS = ("rc", "dc", "ud", "ib", "srd")
UCX = "UCX"
# The variable of each engine that has one; vLLM has a key of its connector instead.
VARIABLES = {
    Engine.SGLANG: "SGLANG_DISAGGREGATION_NIXL_BACKEND",
    Engine.TRTLLM: "TRTLLM_NIXL_KVCACHE_BACKEND",
}
EXTRA_CONFIG = "kv_connector_extra_config"


def _transports(worker: Worker) -> list[str] | None:
    """The transports that UCX_TLS allows; None where it is unset or an exclusion list."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    return None if not text or text.startswith("^") else text.split(",")


def lists_rdma(worker: Worker) -> bool | None:
    """Whether UCX_TLS lists RDMA transports; None where it is unset or an exclusion list."""
    allowed = _transports(worker)
    if allowed is None:
        return None
    return any(name.startswith(RDMA_TRANSPORTS) or name == "all" for name in allowed)


def reaches_gpus(worker: Worker) -> bool:
    """Whether UCX_TLS allows a transport from GPU memory."""
    allowed = _transports(worker)
    return allowed is None or bool({"all", "cuda", "cuda_copy", "ze_copy"} & set(allowed))


def excludes_cuda_ipc(worker: Worker) -> bool:
    """Whether UCX_TLS excludes the transport of NVLink."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    if not text or "$" in text:
        return False
    named = set(text.lstrip("^").split(","))
    if text.startswith("^"):
        return bool(named & {"cuda_ipc", "cuda"})
    return not named & {"cuda_ipc", "cuda", "all"}


def enables_nvlink(worker: Worker) -> bool:
    """Whether UCX uses multi-node NVLink."""
    text = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL")
    return truth(text) is True or (text or "").strip().lower() == "y"


def uses_ucx(worker: Worker) -> bool:
    """False for Mooncake, MPI, and vLLM's connectors other than NIXL, which have their own
    transports, and for values that are computed at start."""
    if is_computed(worker.env("UCX_TLS")) or is_computed(worker.env("UCX_NET_DEVICES")):
        return False
    connector = str(worker.get("kv-transfer-config.kv_connector") or "Nixl")
    keys = ("cache_transceiver_config.backend", "disaggregation-transfer-backend")
    is_other = any(str(worker.get(key)).lower().startswith(("mooncake", "mpi")) for key in keys)
    return not is_other and ("Nixl" in connector or connector in ("PdConnector", "MultiConnector"))


def is_computed(text: str | None) -> bool:
    """Whether a shell or the kubelet computes the value: `$(ibstat …)`, `${DEVICES}`."""
    return "$" in (text or "") or "`" in (text or "")


def is_of_intel(transports: str | None) -> bool:
    """Whether the worker runs on an Intel XPU, which needs other transports than CUDA."""
    return any(name.startswith("ze_") for name in transport_names(transports))


def transport_names(transports: str | None) -> frozenset[str]:
    """The transports without their order, which UCX ignores."""
    return frozenset((transports or "").replace(" ", "").split(","))


def net_devices(worker: Worker) -> list[str]:
    """The devices of UCX_NET_DEVICES."""
    return [name for name in (worker.env("UCX_NET_DEVICES") or "all").split(",") if name]


def fabric_of(device: str) -> str:
    """`ib` for RDMA devices, else `ethernet`."""
    return "ib" if device.startswith(("mlx", "ibp", "rocep", "bnxt_re")) else "ethernet"


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The plugins with which NIXL transfers the KV of a worker, in upper case."""

    names: tuple[str, ...]
    location: Location
    # The variable that names the plugin; empty for vLLM's list of plugins.
    variable: str = ""

    def change_to(self, *names: str) -> str:
        """The beginning of an instruction to use other plugins."""
        if self.variable:
            return f"Set {self.variable}={names[0]}"
        listed = ", ".join(f'"{name}"' for name in names)
        return f'Set "backends": [{listed}] in {EXTRA_CONFIG}'

    def env_for(self, *names: str) -> Mapping[str, str]:
        """The variable to set for other plugins."""
        return {self.variable: names[0]} if self.variable else {}


def nixl_plugins(worker: Worker) -> Plugins | None:
    """None if the worker transfers no KV with NIXL, or if its plugins are not known."""
    if worker.engine is Engine.VLLM:
        connector = connector_of(worker)
        parts = [part for part in connector.walk() if part.name in NIXL] if connector else []
        listed = parts[0].extra.get("backends", [UCX]) if parts else None
        if not isinstance(listed, list) or not listed:
            return None
        names = tuple(str(name).upper() for name in listed)
        return Plugins(names=names, location=worker.config_location(SECTION))
    variable = VARIABLES.get(worker.engine)
    backend = effective_backend(worker)
    launch = worker.launch
    if variable is None or str(backend).upper() != "NIXL":
        return None
    if variable in launch.unknown_variables or launch.has_unread_variables:
        return None
    names = ((worker.env(variable) or UCX).upper(),)
    location = worker.location("env", variable)
    return Plugins(names=names, location=location, variable=variable)


def workers_with_slow_plugin(deployment: ServingDeployment) -> Iterator[tuple[Worker, Plugins]]:
    """The workers with EFA whose NIXL uses only UCX, although the pools agree (PS473)."""
    pools = differing_plugins(deployment)
    differing = {name for first, _, second, _ in pools for name in (first.name, second.name)}
    for worker in kv_transfer_workers(deployment):
        plugins = nixl_plugins(worker) if worker.engine is not Engine.TRTLLM else None
        if plugins is not None and _is_slow(worker, plugins) and worker.name not in differing:
            yield worker, plugins


def _is_slow(worker: Worker, plugins: Plugins) -> bool:
    return plugins.names == (UCX,) and has_efa(worker)


def differing_plugins(
    deployment: ServingDeployment,
) -> Iterator[tuple[Worker, Plugins, Worker, Plugins]]:
    """Pools without a common plugin. The first is the one to change: that with UCX on EFA, which
    PS455 does not report then, or the decode pool."""
    for prefill, decode in deployment.pairs:
        first, second = nixl_plugins(prefill), nixl_plugins(decode)
        if first and second and not set(first.names) & set(second.names):
            if _is_slow(prefill, first):
                yield prefill, first, decode, second
            else:
                yield decode, second, prefill, first
