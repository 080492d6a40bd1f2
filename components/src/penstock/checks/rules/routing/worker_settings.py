"""Rules about settings of workers that the router depends on."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.routing.router import prefill_workers, publishes
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


def block_sizes_differ(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.follows_kv_events:
        return
    first: dict[str, Worker] = {}
    for worker in prefill_workers(deployment):
        name, size = f"{_served(worker)} {worker.role}", worker.count("block_size")
        if _served(worker) is None or size is None or not worker.settings.is_complete:
            continue
        other = first.setdefault(name, worker)
        if other.name != worker.name and other.count("block_size") != size:
            key = COMMON_SETTINGS["block_size"][worker.engine]
            yield RuleResult(
                location=worker.settings.location("block_size"),
                message=f"{worker.name} has a KV block size of {size}, but {other.name}, which "
                f"serves the same model, has {other.count('block_size')}",
                fix=Fix(
                    text=f"Set {key} to {other.count('block_size')}.",
                    config={key: other.count("block_size")},
                ),
            )


def _served(worker: Worker) -> str | None:
    flag = worker.flag("--served-model-name")
    value = flag.text if flag is not None else worker.value("model")
    return None if value is None else str(value)


def wide_event_blocks(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.follows_kv_events:
        return
    for worker in prefill_workers(deployment):
        if worker.engine is Engine.VLLM and worker.dcp > 1 and publishes(worker):
            size = worker.count("block_size") or 16
            yield RuleResult(
                location=worker.config_location("decode-context-parallel-size"),
                message=f"decode-context-parallel-size {worker.dcp} makes KV events of "
                f"{size * worker.dcp} tokens, but Dynamo expects {size}",
                fix=Fix(
                    text="Remove decode-context-parallel-size.",
                    config={"decode-context-parallel-size": None},
                ),
            )
