"""The endpoint picker (EPP) of the inference gateway, and what it assumes about the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.checks.rules.containers import mappings
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.text.values import positive_int

PREFIX_PLUGINS = ("prefix-cache-scorer", "prefix-cache-plugin")


def block_size(deployment: ServingDeployment, worker: Worker) -> int | None:
    """The worker's block size in tokens; None if it depends on what the file does not state."""
    if size := worker.count("block_size"):
        return size
    if not worker.settings.is_complete or worker.settings.common("block_size") is not None:
        return None
    gpu = deployment.gpu
    if worker.engine is Engine.SGLANG and not (gpu and gpu.is_blackwell):
        backend = worker.get("attention-backend") or worker.get("decode-attention-backend")
        return None if backend else 1  # some backends need larger pages
    return None


def smallest_block(deployment: ServingDeployment) -> int | None:
    """The smallest block size of the workers that is known."""
    sizes = (block_size(deployment, worker) for worker in deployment.one_worker_per_component)
    return min(filter(None, sizes), default=None)


def first_with_other_block_size(
    deployment: ServingDeployment, size: int | None
) -> tuple[Worker, int] | None:
    """The first worker that computes prefill with blocks of another size, and that size."""
    for worker in deployment.one_worker_per_component:
        other = block_size(deployment, worker)
        if size and other and other != size and worker.runs_prefill:
            return worker, other
    return None


def served_names(deployment: ServingDeployment) -> list[str]:
    """The names under which the workers serve the model; empty if one is not known."""
    names = {_served_name(worker) for worker in deployment.one_worker_per_component}
    return [] if None in names else sorted(map(str, names))


def _served_name(worker: Worker) -> str | None:
    for name in ("served-model-name", "served_model_name"):
        if isinstance(names := worker.get(name), (str, list)):
            return str(names[0]) if isinstance(names, list) and names else str(names)
    flag = worker.flag("--served-model-name")
    return flag.text if flag is not None else None


def prefix_plugins(deployment: ServingDeployment) -> Iterator[tuple[Location, int]]:
    """The place and the tokens of `blockSizeTokens` of each plugin that keeps a prefix index."""
    for picker in deployment.with_role(Role.EPP):
        cursor = deployment.pods[picker.name].cursor.at("eppConfig", "config", "plugins")
        for index, plugin in enumerate(mappings(cursor.value)):
            parameters = plugin.get("parameters")
            if plugin.get("type") not in PREFIX_PLUGINS or not isinstance(parameters, Mapping):
                continue
            size = positive_int(parameters.get("blockSizeTokens"))
            if size and parameters.get("autoTune") is not True:
                steps = (*cursor.path, index, "parameters", "blockSizeTokens")
                yield Location("", "manifest", steps), size
