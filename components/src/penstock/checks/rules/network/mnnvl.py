"""Rules about multi-node NVLink: the claim that it needs, and the transport that uses it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.containers import truth
from penstock.checks.rules.network.fabric import CLAIM
from penstock.checks.version_range import HARDWARE
from penstock.serving.deployment import ServingDeployment

UCX_NVLINK = "UCX_CUDA_IPC_ENABLE_MNNVL"


def _is_enabled(text: str | None) -> bool:
    return truth(text) is True or (text or "").strip().lower() == "y"


@rule(
    id="PS460",
    title="NCCL over multi-node NVLink without a claim",
    level=Level.WARNING,
    cause="NCCL_MNNVL_ENABLE is 1 on a worker that spans nodes, but its pods claim no channel of "
    "a ComputeDomain.",
    effect="Without the IMEX channel the GPUs of other nodes cannot be mapped: NCCL fails at "
    "startup, unless Grove adds the claim.",
    remedy="Claim a ComputeDomain channel, or remove the variable.",
    source="NVIDIA DRA driver, ComputeDomains; NCCL environment variables (NCCL_MNNVL_ENABLE); "
    "dynamo#6364",
    versions=HARDWARE,
)
def nccl_without_claim(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        asks = worker.env("NCCL_MNNVL_ENABLE") == "1" and worker.component.nodes > 1
        annotations = [*deployment.annotations(), *deployment.annotations(worker.name)]
        by_grove = any("mnnvl" in str(name) for name in annotations)
        of_ucx = _is_enabled(worker.env(UCX_NVLINK))  # PS439 reports these
        if asks and not (worker.pod.claims.value or by_grove or of_ucx):
            yield RuleResult(
                location=worker.location("env", "NCCL_MNNVL_ENABLE"),
                message=f"{worker.name} spans {worker.component.nodes} nodes with "
                "NCCL_MNNVL_ENABLE=1 but claims no ComputeDomain channel",
                fix=Fix(text="Claim a ComputeDomain channel.", fields=CLAIM),
            )


@rule(
    id="PS461",
    title="UCX excludes the transport of multi-node NVLink",
    level=Level.WARNING,
    cause="UCX_CUDA_IPC_ENABLE_MNNVL asks for multi-node NVLink, which UCX reaches only with "
    "cuda_ipc, and UCX_TLS excludes that transport.",
    effect="KV transfers use the network adapter.",
    remedy="Allow cuda_ipc in UCX_TLS, or remove UCX_CUDA_IPC_ENABLE_MNNVL.",
    source="ENABLE_MNNVL in src/uct/cuda/cuda_ipc of UCX; dynamo#14357",
    versions=HARDWARE,
)
def nvlink_excluded(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        text = (worker.env("UCX_TLS") or "").replace(" ", "")
        if not text or "$" in text or not _is_enabled(worker.env(UCX_NVLINK)):
            continue
        named = set(text.lstrip("^").split(","))
        if text.startswith("^"):
            excluded = bool(named & {"cuda_ipc", "cuda"})
        else:
            excluded = not named & {"cuda_ipc", "cuda", "all"}
        if excluded:
            yield RuleResult(
                location=worker.location("env", UCX_NVLINK),
                message=f"UCX_TLS={text} excludes cuda_ipc, which {UCX_NVLINK} needs",
                fix=Fix(text=f"Allow cuda_ipc in UCX_TLS, or remove {UCX_NVLINK}."),
            )
