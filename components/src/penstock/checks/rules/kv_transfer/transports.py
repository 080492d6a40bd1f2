"""Rules about transports of TensorRT-LLM that cannot connect the pools."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.agreement import effective_backend
from penstock.checks.rules.kv_transfer.transfer import TRANSCEIVER, kv_transfer_workers
from penstock.serving.deployment import ServingDeployment


def mpi_between_pods(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        key = f"{TRANSCEIVER}.backend"
        if worker.is_trtllm and effective_backend(worker)[1] == "MPI":
            is_variable = worker.get(key) != "MPI"
            yield RuleResult(
                location=worker.location("env", "TRTLLM_USE_MPI_KVCACHE")
                if is_variable
                else worker.config_location(key),
                message=f"{worker.name} transfers KV over MPI, which cannot reach another pod",
                fix=Fix(text="Set the backend to NIXL on both pools.", config={key: "NIXL"}),
            )
