"""Rules about the KV connectors of vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.transfer import kv_role, kv_transfer_workers
from penstock.checks.rules.kv_transfer.vllm_connectors import NIXL, PULL_CONNECTORS
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment

# vLLM checks the variable since 0.23 (config/vllm.py).
REFUSED, NOT_REFUSED = Versions(vllm=">=0.23"), Versions(vllm="<0.23")
MOVED = "PyTorch may move memory that NIXL has registered. KV transfers then fail."
# Since 0.31 the push connector supports stages of models with sliding windows.
PUSH_REFUSES = Versions(vllm=">=0.26,<0.31")
DECODE_RADIX_CACHE = "disaggregation-decode-enable-radix-cache"


def no_kv_role(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.get("kv-transfer-config")
        if worker.engine is not Engine.VLLM or not isinstance(config, Mapping):
            continue
        role = worker.get("kv-transfer-config.kv_role")
        own_role = kv_role(worker, str(config.get("kv_connector")))
        if config.get("kv_connector") and role not in ("kv_producer", "kv_consumer", "kv_both"):
            yield RuleResult(
                location=worker.config_location(
                    "kv-transfer-config.kv_role" if role else "kv-transfer-config"
                ),
                message=f"kv_role is {role!r}, which vLLM does not accept"
                if role
                else "kv-transfer-config has no kv_role",
                fix=Fix(
                    text=f"Set kv_role to {own_role}.",
                    config={"kv-transfer-config.kv_role": own_role},
                ),
            )


def expandable_segments(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.VLLM or worker.get("kv-transfer-config") is None:
            continue
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            text = (worker.env(name) or "").replace(" ", "").lower()
            if "expandable_segments:true" in text and not (
                worker.get("enable-sleep-mode") or worker.get("enable-cumem-allocator")
            ):
                result = RuleResult(
                    location=worker.location("env", name),
                    message=f"{name}={worker.env(name)} is not supported with a KV connector",
                    fix=Fix(text=f"Remove {name}."),
                )
                yield replace(result, versions=REFUSED)
                yield replace(result, versions=NOT_REFUSED, level=Level.WARNING, why=MOVED)


def loopback_side_channel(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.shares_a_pod:
        return
    for worker in kv_transfer_workers(deployment):
        host = worker.env("VLLM_NIXL_SIDE_CHANNEL_HOST")
        if worker.engine is Engine.VLLM and host in ("localhost", "127.0.0.1", "0.0.0.0", "::1"):
            yield RuleResult(
                location=worker.location("env", "VLLM_NIXL_SIDE_CHANNEL_HOST"),
                message=f"VLLM_NIXL_SIDE_CHANNEL_HOST is {host}, which other pods cannot reach",
                # Without it, Dynamo sets the pod's address only for NixlConnector and PdConnector.
                fix=Fix(text="Set VLLM_NIXL_SIDE_CHANNEL_HOST to status.podIP."),
            )


def pipeline_with_nixl(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        connector = worker.get("kv-transfer-config.kv_connector")
        hybrid = deployment.model is not None and any(deployment.model.windows)
        hybrid = hybrid and worker.get("disable-hybrid-kv-cache-manager") is not True
        if worker.engine is Engine.VLLM and worker.pp > 1 and connector in NIXL and hybrid:
            yield RuleResult(
                location=worker.settings.location("pipeline_parallel"),
                message=f"NIXL does not support pipeline parallelism ({worker.pp}) for a model "
                "with sliding-window attention",
                fix=Fix(
                    text="Set pipeline-parallel-size to 1 and use tensor parallelism.",
                    config={"pipeline-parallel-size": 1},
                ),
                versions=PUSH_REFUSES if connector not in PULL_CONNECTORS else None,
            )


def partial_page_chunk(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.WORKER):
        chunk, page = worker.count("max_batch_tokens"), worker.count("block_size")
        ranks = worker.count("data_parallel") or 1 if worker.has_attention_dp else 1
        if worker.engine is Engine.SGLANG and chunk and page and (chunk // ranks) % page:
            share = f", shared by {ranks} ranks," if ranks > 1 else ""
            rounded = -(-chunk // (page * ranks)) * page * ranks
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"chunked-prefill-size {chunk}{share} is not a multiple of page-size "
                f"{page}",
                fix=Fix(
                    text=f"Raise chunked-prefill-size to {rounded}.",
                    config={"chunked-prefill-size": rounded},
                ),
            )


def hierarchical_cache_without_radix_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG or not worker.get("enable-hierarchical-cache"):
            continue
        is_forced = worker.role is Role.DECODE and not worker.get(DECODE_RADIX_CACHE)
        if is_forced and worker.settings.is_complete:
            yield RuleResult(
                location=worker.config_location("enable-hierarchical-cache"),
                message="enable-hierarchical-cache requires the radix cache, which SGLang disables "
                f"on a decode worker without {DECODE_RADIX_CACHE}",
                fix=Fix(
                    text="Remove enable-hierarchical-cache from the decode worker.",
                    config={"enable-hierarchical-cache": False},
                ),
            )
        elif not is_forced and worker.get("disable-radix-cache") is True:
            yield RuleResult(
                location=worker.config_location("enable-hierarchical-cache"),
                message="enable-hierarchical-cache requires the radix cache, but "
                "disable-radix-cache is set",
                fix=Fix(
                    text="Set disable-radix-cache to false.", config={"disable-radix-cache": False}
                ),
            )
