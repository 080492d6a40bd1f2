"""Rules about settings of workers that the router depends on."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.routing.router import prefill_workers, publishes
from penstock.checks.version_range import AGREEMENT, Versions
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


@rule(
    id="PS516",
    title="workers of one model have different KV block sizes",
    level=Level.ERROR,
    cause="The KV router hashes prompts in blocks of one size for each model, and workers of two "
    "components have different ones.",
    effect="Dynamo rejects the workers that register later, because their model card differs, or "
    "the router finds no cached prefix of these workers.",
    remedy="Set the same block size on all workers of the model.",
    source="ModelDeploymentCard.kv_cache_block_size and the checksum of model cards in "
    "lib/llm/src/discovery of ai-dynamo/dynamo (August 2026); dynamo#9545, dynamo#1232",
    versions=AGREEMENT,
)
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


@rule(
    id="PS518",
    title="decode context parallelism with the KV router",
    level=Level.WARNING,
    cause="With decode context parallelism vLLM's KV events describe blocks of that many times the "
    "block size, and Dynamo registers the block size alone.",
    effect="Dynamo rejects every KV event, and the router finds no cached prefix.",
    remedy="Remove decode-context-parallel-size, or use Dynamo 1.6.",
    source="vllm/v1/core/single_type_kv_cache_manager.py 47 of 0.12.0 to 79 of 0.28.0, and "
    "get_kv_cache_group_metadata in v1/engine/core.py (spec.block_size until 0.28, "
    "manager.block_size in 0.31.0); dynamo#13653",
    versions=Versions(vllm="<0.31"),
)
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
