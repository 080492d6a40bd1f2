"""Rules of UCX, which moves the KV: transports and devices."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.network.fabric import moving, nics
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RDMA_TRANSPORTS = ("rc", "dc", "ud", "ib", "srd")


def _transports(worker: Worker) -> list[str] | None:
    """The transports that UCX_TLS allows; None where it is unset or excludes."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    return None if not text or text.startswith("^") else text.split(",")


def _reaches_gpus(worker: Worker) -> bool:
    allowed = _transports(worker)
    return allowed is None or bool({"all", "cuda", "cuda_copy"} & set(allowed))


def _uses_ucx(worker: Worker) -> bool:
    """Mooncake and MPI have transports of their own."""
    said = (
        worker.get("cache_transceiver_config.backend"),
        worker.get("disaggregation-transfer-backend"),
    )
    return not any(str(backend).lower().startswith(("mooncake", "mpi")) for backend in said)


@rule(
    id="PS434",
    title="UCX without CUDA transports",
    level=Level.ERROR,
    cause="UCX_TLS lists transports and none that reaches GPU memory.",
    effect="A segmentation fault, or NIXL_ERR_BACKEND at the first transfer.",
    remedy="Add cuda_copy and cuda_ipc.",
    source="ucx#3776",
)
def ucx_without_cuda(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in filter(_uses_ucx, moving(deployment)):
        if not _reaches_gpus(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_TLS"),
                message=f"UCX_TLS={worker.env('UCX_TLS')} has no CUDA transport",
                fix=Fix(
                    text="add cuda_copy and cuda_ipc",
                    env={"UCX_TLS": f"{worker.env('UCX_TLS')},cuda_copy,cuda_ipc"},
                ),
            )


@rule(
    id="PS435",
    title="RDMA devices that UCX may not use",
    level=Level.ERROR,
    cause="The pod has RDMA devices, and UCX_TLS lists no RDMA transport or UCX_NET_DEVICES no "
    "RDMA device.",
    effect="KV goes over TCP, or no transport is found at all.",
    remedy="Allow rc and dc, and name the devices of the compute fabric.",
    source="dynamo#1314, dynamo#10852",
)
def devices_unused(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in filter(_uses_ucx, moving(deployment)):
        allowed = _transports(worker)
        has_rdma = allowed is None or any(
            t.startswith(RDMA_TRANSPORTS) or t == "all" for t in allowed
        )
        over_nvlink = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL") in ("y", "1", "yes")
        named = [d for d in (worker.env("UCX_NET_DEVICES") or "all").split(",") if d]
        is_ethernet = all(d != "all" and _fabric(d) == "ethernet" for d in named)
        if has_rdma and allowed is not None and nics(worker) and is_ethernet:
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message=f"UCX_NET_DEVICES={worker.env('UCX_NET_DEVICES')} names no RDMA device, "
                "and UCX_TLS asks for RDMA",
                fix=Fix(text="name the devices of the compute fabric"),
            )
        if nics(worker) and not has_rdma and not over_nvlink:
            yield RuleResult(
                location=worker.location("env", "UCX_TLS"),
                message=f"UCX_TLS={worker.env('UCX_TLS')} leaves the RDMA devices unused",
                fix=Fix(text="allow them", env={"UCX_TLS": "rc_x,rc,dc_x,dc,cuda_copy,cuda_ipc"}),
            )


@rule(
    id="PS436",
    title="two fabrics in one list",
    level=Level.WARNING,
    cause="UCX_NET_DEVICES names devices of different fabrics, or bonded ones.",
    effect="NIXL_ERR_REMOTE_DISCONNECT; one customer's outage was cured by this variable.",
    remedy="Name the devices of one fabric; UCX_IB_ADDR_TYPE=eth with RoCE.",
    source="dynamo#10202, dynamo#10852",
)
def mixed_fabrics(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving(deployment):
        said = worker.env("UCX_NET_DEVICES") or ""
        devices = [d for d in said.split(",") if d and "$" not in said]
        kinds = {_fabric(device) for device in devices}
        if said == "all" and nics(worker):
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message="UCX_NET_DEVICES=all: storage and management networks too",
                fix=Fix(text="name the devices of the compute fabric"),
            )
            continue
        bonded = ["bond" in device for device in devices]
        if len(kinds) > 1 or (any(bonded) and not all(bonded)):
            what = "mixes fabrics" if len(kinds) > 1 else "mixes bonded and single devices"
            yield RuleResult(
                location=worker.location("env", "UCX_NET_DEVICES"),
                message=f"UCX_NET_DEVICES={worker.env('UCX_NET_DEVICES')} {what}",
                fix=Fix(text="keep the devices of one fabric, all bonded or none"),
            )


def _fabric(device: str) -> str:
    name = device.partition(":")[0]
    if name.startswith(("mlx", "ibp", "rocep", "bnxt_re")):
        return "ib"
    return "ethernet"


@rule(
    id="PS437",
    title="the pools allow different transports",
    level=Level.WARNING,
    cause="UCX_TLS differs between prefill and decode.",
    effect="They agree on what both have, which may be TCP.",
    remedy="The same on both.",
    source="dynamo#10202; llmd#2370",
)
def other_transports(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = prefill.env("UCX_TLS"), decode.env("UCX_TLS")
        if _names(first) != _names(second) and decode.component.gpus:
            is_first = bool(first) and (_reaches_gpus(prefill) or not _reaches_gpus(decode))
            lacks, other = (decode, first) if is_first else (prefill, second)
            yield RuleResult(
                location=lacks.location("env", "UCX_TLS"),
                message=f"UCX_TLS is {second or 'unset'} on {decode.name}, {first or 'unset'} on "
                f"{prefill.name}",
                fix=Fix(text="the same on both pools", env={"UCX_TLS": other}),
            )


def _names(transports: str | None) -> frozenset[str]:
    """Their order means nothing to UCX."""
    return frozenset((transports or "").replace(" ", "").split(","))
