"""Rules about SGLang's NIXL on AWS's network devices (EFA)."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.checks.rules.network.fabric import rdma_devices
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

NIXL_BACKEND = "SGLANG_DISAGGREGATION_NIXL_BACKEND"


@rule(
    id="PS455",
    title="NIXL over UCX on EFA",
    level=Level.WARNING,
    cause="SGLang's NIXL uses UCX unless SGLANG_DISAGGREGATION_NIXL_BACKEND is set, and UCX does "
    "not use EFA devices.",
    effect="KV transfers go over TCP.",
    remedy="Set SGLANG_DISAGGREGATION_NIXL_BACKEND=LIBFABRIC on both pools.",
    source="sglang/srt/disaggregation/nixl/conn.py 173 and environ.py 246 of 0.5.9 "
    "(EnvStr UCX), the same in 0.5.21; dynamo#9712",
    versions=Versions(sglang=">=0.5.9"),
)
def ucx_on_efa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        launch = worker.launch
        is_unknown = NIXL_BACKEND in launch.unknown_variables or launch.has_unread_variables
        if worker.engine is not Engine.SGLANG or is_unknown or not _has_efa(worker):
            continue
        if worker.get("disaggregation-transfer-backend") == "nixl":
            backend = worker.env(NIXL_BACKEND) or "UCX"
            if backend.upper() == "UCX":
                yield RuleResult(
                    location=worker.location("env", NIXL_BACKEND),
                    message=f"{worker.name} requests EFA devices, but NIXL uses {backend}",
                    fix=Fix(
                        text=f"Set {NIXL_BACKEND}=LIBFABRIC on both pools.",
                        env={NIXL_BACKEND: "LIBFABRIC"},
                    ),
                )


def _has_efa(worker: Worker) -> bool:
    return any("efa" in name for name in rdma_devices(worker))
