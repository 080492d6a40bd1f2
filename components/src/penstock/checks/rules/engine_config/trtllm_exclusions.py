"""Rules about keys of TensorRT-LLM's engine file that require or exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.engine_config.engine_file import engine_files
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SPECULATION, CACHE = "speculative_config", "kv_cache_config"
MOST_SEQUENCES = 2048  # Dynamo's default of max_batch_size
# Problem: (key, message, fix).
Problem = tuple[str, str, str]


def refused_together(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, _ in engine_files(deployment):
        found = [*_cache(worker), *_loading(worker)]
        value = worker.get(SPECULATION)
        if isinstance(value, Mapping):
            found += _drafts(worker, value)
        for key, message, fix in found:
            yield RuleResult(
                location=worker.config_location(key), message=message, fix=Fix(text=fix)
            )


def _drafts(worker: Worker, value: Mapping[str, Any]) -> Iterator[Problem]:
    pool = positive_int(value.get("global_pool_size"))
    batch = worker.count("max_sequences") or MOST_SEQUENCES
    if value.get("decoding_type") == "SA" and pool is not None and pool < batch:
        message = f"global_pool_size {pool} is below max_batch_size {batch}"
        fix = f"Set global_pool_size to at least {batch}."
        yield f"{SPECULATION}.global_pool_size", message, fix


def _cache(worker: Worker) -> Iterator[Problem]:
    disk = worker.get(f"{CACHE}.disk_cache_size")
    if positive_int(disk) and not worker.get(f"{CACHE}.disk_cache_path"):
        key = f"{CACHE}.disk_cache_size"
        yield key, "disk_cache_size requires disk_cache_path", "Set disk_cache_path to a volume."
    parts = worker.get("cp_config")
    is_helix = isinstance(parts, Mapping) and str(parts.get("cp_type", "")).upper() == "HELIX"
    own = positive_int(parts.get("tokens_per_block")) if isinstance(parts, Mapping) else None
    block = worker.count("block_size")
    if is_helix and own and block and own != block:
        message = f"cp_config.tokens_per_block {own} differs from {CACHE}.tokens_per_block {block}"
        yield "cp_config.tokens_per_block", message, f"Set it to {block}."


def _loading(worker: Worker) -> Iterator[Problem]:
    url = worker.get("mx_config.server_url")
    if url and str(worker.get("checkpoint_format") or "").upper() != "MX":
        message = "mx_config.server_url requires checkpoint_format MX"
        yield "mx_config.server_url", message, "Set checkpoint_format to MX."
