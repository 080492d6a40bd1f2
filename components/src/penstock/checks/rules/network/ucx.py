"""Rules about the transports and devices of UCX, which transfers the KV cache."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.network.fabric import kv_transfer_pods, rdma_devices
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RDMA_TRANSPORTS = ("rc", "dc", "ud", "ib", "srd")


def _transports(worker: Worker) -> list[str] | None:
    """The transports that UCX_TLS allows; None where it is unset or an exclusion list."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    return None if not text or text.startswith("^") else text.split(",")


def _reaches_gpus(worker: Worker) -> bool:
    allowed = _transports(worker)
    return allowed is None or bool({"all", "cuda", "cuda_copy", "ze_copy"} & set(allowed))


def _uses_ucx(worker: Worker) -> bool:
    """False for Mooncake, MPI, and vLLM's connectors other than NIXL, which have their own
    transports, and for values that are computed at start."""
    if _is_computed(worker.env("UCX_TLS")) or _is_computed(worker.env("UCX_NET_DEVICES")):
        return False
    connector = str(worker.get("kv-transfer-config.kv_connector") or "Nixl")
    configured = (
        worker.get("cache_transceiver_config.backend"),
        worker.get("disaggregation-transfer-backend"),
    )
    has_own = any(str(backend).lower().startswith(("mooncake", "mpi")) for backend in configured)
    return not has_own and ("Nixl" in connector or connector in ("PdConnector", "MultiConnector"))


def _is_computed(text: str | None) -> bool:
    """Whether a shell or the kubelet computes the value: `$(ibstat …)`, `${DEVICES}`."""
    return "$" in (text or "") or "`" in (text or "")


def _keeps_kv_in_host_memory(worker: Worker) -> bool:
    """vLLM's NIXL connector then transfers from host buffers, which every transport reaches."""
    return str(worker.get("kv-transfer-config.kv_buffer_device")) == "cpu"


def ucx_without_cuda(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in filter(_uses_ucx, kv_transfer_pods(deployment)):
        if not _reaches_gpus(worker) and not _keeps_kv_in_host_memory(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_TLS"),
                message=f"UCX_TLS={worker.env('UCX_TLS')} has no CUDA transport",
                fix=Fix(
                    text="Add cuda_copy and cuda_ipc to UCX_TLS.",
                    env={"UCX_TLS": f"{worker.env('UCX_TLS')},cuda_copy,cuda_ipc"},
                ),
            )


def rdma_devices_unused(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in filter(_uses_ucx, kv_transfer_pods(deployment)):
        allowed = _transports(worker)
        has_rdma = allowed is None or any(
            t.startswith(RDMA_TRANSPORTS) or t == "all" for t in allowed
        )
        over_nvlink = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL") in ("y", "1", "yes")
        device_names = [d for d in (worker.env("UCX_NET_DEVICES") or "all").split(",") if d]
        is_ethernet = all(d != "all" and _fabric(d) == "ethernet" for d in device_names)
        if has_rdma and allowed is not None and rdma_devices(worker) and is_ethernet:
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message=f"UCX_NET_DEVICES={worker.env('UCX_NET_DEVICES')} lists no RDMA device, "
                "but UCX_TLS requests RDMA",
                fix=Fix(text="List the devices of the compute fabric in UCX_NET_DEVICES."),
            )
        if rdma_devices(worker) and not has_rdma and not over_nvlink:
            yield RuleResult(
                location=worker.location("env", "UCX_TLS"),
                message=f"UCX_TLS={worker.env('UCX_TLS')} does not allow the RDMA devices of "
                "the pod",
                fix=Fix(
                    text="Add RDMA transports to UCX_TLS.",
                    env={"UCX_TLS": "rc_x,rc,dc_x,dc,cuda_copy,cuda_ipc"},
                ),
            )


def mixed_fabrics(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in filter(_uses_ucx, kv_transfer_pods(deployment)):
        configured = worker.env("UCX_NET_DEVICES") or ""
        devices = [d for d in configured.split(",") if d]
        kinds = {_fabric(device) for device in devices}
        if configured == "all" and rdma_devices(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message="UCX_NET_DEVICES=all includes storage and management networks",
                fix=Fix(text="List the devices of the compute fabric in UCX_NET_DEVICES."),
                # It is the default of UCX; the outage was on RoCE nodes with many devices.
                level=None if _is_roce_of_many_gpus(worker) else Level.NOTE,
            )
            continue
        bonded = ["bond" in device for device in devices]
        if len(kinds) > 1 or (any(bonded) and not all(bonded)):
            what = "mixes fabrics" if len(kinds) > 1 else "mixes bonded and single devices"
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message=f"UCX_NET_DEVICES={worker.env('UCX_NET_DEVICES')} {what}",
                fix=Fix(text="List devices of one fabric only, all bonded or none."),
                # UCX may use Ethernet next to InfiniBand to set up connections.
                level=Level.NOTE if len(kinds) > 1 else None,
            )


def _is_roce_of_many_gpus(worker: Worker) -> bool:
    is_roce = (worker.env("UCX_IB_ADDR_TYPE") or "").startswith("eth")
    return is_roce and worker.component.gpus > 1


def _fabric(device: str) -> str:
    name = device.partition(":")[0]
    if name.startswith(("mlx", "ibp", "rocep", "bnxt_re")):
        return "ib"
    return "ethernet"


def different_transports(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = prefill.env("UCX_TLS"), decode.env("UCX_TLS")
        if any(_is_computed(one) or _is_of_intel(one) for one in (first, second)):
            continue
        if _transport_names(first) != _transport_names(second) and decode.component.gpus:
            is_first = bool(first) and (_reaches_gpus(prefill) or not _reaches_gpus(decode))
            target, other = (decode, first) if is_first else (prefill, second)
            yield RuleResult(
                location=target.location("env", "UCX_TLS"),
                message=f"UCX_TLS is {second or 'unset'} on {decode.name} but "
                f"{first or 'unset'} on {prefill.name}",
                fix=Fix(text=f"Set UCX_TLS to {other} on both pools.", env={"UCX_TLS": other}),
            )


def _is_of_intel(transports: str | None) -> bool:
    """Whether the worker runs on an Intel XPU, which needs other transports than CUDA."""
    return any(name.startswith("ze_") for name in _transport_names(transports))


def _transport_names(transports: str | None) -> frozenset[str]:
    """The transports without their order, which UCX ignores."""
    return frozenset((transports or "").replace(" ", "").split(","))
