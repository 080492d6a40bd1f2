"""Rules about multi-node NVLink: the claim that it needs, and the transport that uses it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import truth
from penstock.checks.rules.network.fabric import CLAIM
from penstock.serving.deployment import ServingDeployment

UCX_NVLINK = "UCX_CUDA_IPC_ENABLE_MNNVL"


def _is_enabled(text: str | None) -> bool:
    return truth(text) is True or (text or "").strip().lower() == "y"


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
