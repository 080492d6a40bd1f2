"""The engines of a graph as `scenario.stack` of llm-d's Benchmark Report."""

from __future__ import annotations

from importlib.metadata import version

from penstock.bench.llmd_report import Report, config_id
from penstock.manifests.deployment import Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

ROLES = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.WORKER: "replica"}


def stack_of(deployment: ServingDeployment) -> list[Report]:
    """Pools with replicas. Empty if the GPU is not known, or the parallelism of a pool."""
    gpu, model = deployment.gpu, deployment.model_name
    workers = [one for one in deployment.one_worker_per_component if one.component.replicas]
    if gpu is None or model is None or not all(one.is_laid_out for one in workers):
        return []
    return [_component(worker, gpu.name, model) for worker in workers]


def _component(worker: Worker, gpu: str, model: str) -> Report:
    standardized = {
        "kind": "inference_engine",
        "tool": worker.engine.module,
        "tool_version": f"ai-dynamo {version('ai-dynamo')}",
        "role": ROLES[worker.role],
        "replicas": worker.component.replicas,
        "model": {"name": model},
        "accelerator": {
            "model": gpu,
            "count": worker.component.gpus,
            "parallelism": {"tp": worker.tp, "dp": worker.dp, "pp": worker.pp, "ep": worker.ep},
        },
    }
    return {
        "metadata": {"label": worker.name, "cfg_id": config_id(standardized)},
        "standardized": standardized,
        "native": {},
    }
