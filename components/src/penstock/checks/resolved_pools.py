"""Compares what the engine chooses for the prefill pool, the decode pool and the router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.registry import by_id
from penstock.checks.rule import Rule
from penstock.engines.dry_run.protocol import Resolved
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

POOLS_DIFFER = by_id("PS188")
# Field of `Resolved` → how messages call it, and the key that sets it.
COMPARED: Mapping[str, tuple[str, Mapping[Engine, str]]] = {
    "attention_backend": (
        "attention backend",
        dict.fromkeys((Engine.VLLM, Engine.SGLANG), "attention-backend"),
    ),
    "kv_dtype": ("KV cache type", COMMON_SETTINGS["kv_dtype"]),
    "connector": (
        "connector",
        {
            Engine.VLLM: "kv-transfer-config.kv_connector",
            Engine.SGLANG: "disaggregation-transfer-backend",
        },
    ),
    "block_size": ("KV block size", COMMON_SETTINGS["block_size"]),
}
ROUTER_FLAG, ROUTER_VARIABLE = "--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE"
# For SGLang only these must be equal: it transfers pages between any attention backends.
COUNTS_FOR_ALL = ("kv_dtype", "connector", "block_size")


def compare_pools(
    deployment: ServingDeployment, resolved: Mapping[str, Resolved]
) -> Iterator[tuple[Rule, RuleResult]]:
    """``resolved``: the resolved configuration of each component that its engine accepts."""
    for prefill, decode in deployment.pairs:
        if prefill.name in resolved and decode.name in resolved:
            for result in _pair(prefill, decode, resolved):
                yield POOLS_DIFFER, result
    yield from ((POOLS_DIFFER, result) for result in _router(deployment, resolved))


def _pair(
    prefill: Worker, decode: Worker, resolved: Mapping[str, Resolved]
) -> Iterator[RuleResult]:
    is_vllm = decode.engine is Engine.VLLM
    for field, (what, keys) in COMPARED.items():
        first = getattr(resolved[prefill.name], field)
        second = getattr(resolved[decode.name], field)
        if not first or not second or first == second:
            continue
        is_size = field == "block_size"
        if not is_vllm and field not in COUNTS_FOR_ALL:
            continue
        if is_vllm and is_size and second % first == 0 and decode.tp >= prefill.tp:
            continue  # vLLM's NIXL connector converts whole blocks
        if _both_set(prefill, decode, keys[decode.engine]):
            continue  # the rules about pools compare what is set
        yield RuleResult(
            location=decode.config_location(keys[decode.engine]),
            message=f"{decode.name} gets the {what} {second}, but {prefill.name} gets {first}",
            fix=Fix(
                text=f"Set {keys[decode.engine]} to the same value on both pools.",
            ),
            level=Level.WARNING if is_vllm and is_size else None,
        )


def _both_set(prefill: Worker, decode: Worker, key: str) -> bool:
    return prefill.get(key) is not None and decode.get(key) is not None


def _router(
    deployment: ServingDeployment, resolved: Mapping[str, Resolved]
) -> Iterator[RuleResult]:
    setting = deployment.router_setting(ROUTER_FLAG, ROUTER_VARIABLE)
    if setting is None or deployment.router_mode != "kv":
        return
    for worker in deployment.one_worker_per_component:
        block_size = resolved[worker.name].block_size if worker.name in resolved else None
        # A size that is set is compared by the router's own rule.
        if block_size and worker.runs_prefill and worker.count("block_size") is None:
            if str(setting.value) != str(block_size):
                yield RuleResult(
                    location=setting.location,
                    message=f"{setting.location.path[0]} is {setting.value}, but {worker.name} "
                    f"gets a KV block size of {block_size}",
                    fix=Fix(text=f"Remove {setting.location.path[0]}."),
                    level=Level.NOTE,
                )
            return
