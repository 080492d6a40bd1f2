"""Rules about KV events: which workers publish them, how, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.routing.router import (
    events_config,
    has_choice,
    prefill_workers,
    publishes,
    weighs_prefixes,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import dynamo_version
from penstock.serving.worker import Worker

# Before this release, the vLLM worker enables KV events itself.
WITHOUT_EVENTS = Versions(dynamo=">=1.1")
# Since 1.4, the worker registers the block size of the engine instead of the flag's.
FALLBACK, REGISTERED = Versions(dynamo=">=1.4"), Versions(dynamo="<1.4")
EVENTS = {
    Engine.VLLM: {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": "tcp://*:20080",
    },
    Engine.SGLANG: {"publisher": "zmq", "topic": "kv-events", "endpoint": "tcp://*:5557"},
}


def no_kv_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.follows_kv_events or not weighs_prefixes(deployment):
        return
    for worker in prefill_workers(deployment):
        if publishes(worker):
            continue
        # A router with a single worker has no choice.
        level = None if has_choice(deployment, worker) else Level.NOTE
        disabled = worker.flag("--no-publish-kv-events")
        if worker.is_trtllm and disabled and not disabled.value:
            yield RuleResult(
                location=worker.location("args", disabled.spelling),
                message=f"{worker.name} has {disabled.spelling}, but the router routes by KV "
                "events",
                fix=Fix(text=f"Remove {disabled.spelling}."),
                level=level,
            )
        elif worker.is_trtllm:
            yield RuleResult(
                location=worker.location("args"),
                message=f"{worker.name} publishes no KV events, but the router routes by them",
                fix=Fix(text=f"Add {_publishing_flag(worker)}.", args=(_publishing_flag(worker),)),
                level=level,
            )
        else:
            yield RuleResult(
                location=worker.config_location("kv-events-config"),
                message=f"kv-events-config of {worker.name} publishes no events, but the router "
                "routes by KV events"
                if worker.get("kv-events-config") is not None
                else f"{worker.name} has no kv-events-config and publishes no KV events, but the "
                "router routes by them",
                fix=Fix(
                    text="Set kv-events-config to publish KV events.",
                    config={"kv-events-config": EVENTS[worker.engine]},
                ),
                level=level,
                versions=WITHOUT_EVENTS if worker.engine is Engine.VLLM else None,
            )


def _publishing_flag(worker: Worker) -> str:
    """TensorRT-LLM workers before Dynamo 1.3 refuse the new name."""
    version = dynamo_version(worker.pod)
    is_old = version is not None and version < (1, 3)
    return "--publish-events-and-metrics" if is_old else "--publish-kv-events"


def unused_kv_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    has_picker = bool(deployment.with_role(Role.EPP))
    if deployment.follows_kv_events or not deployment.frontends or has_picker:
        return
    is_kv = deployment.router_mode == "kv"
    # The file does not choose to route without the events.
    chosen = deployment.router_setting("--router-mode", "DYN_ROUTER_MODE")
    is_default = deployment.router_mode == "round-robin" and chosen is None
    for worker in prefill_workers(deployment):
        is_configured = worker.is_trtllm or worker.get("kv-events-config") is not None
        if is_configured and worker.engine is not Engine.MOCKER and publishes(worker):
            yield RuleResult(
                location=worker.location("args")
                if worker.is_trtllm
                else worker.config_location("kv-events-config"),
                message=f"{worker.name} publishes KV events, but the router "
                + ("ignores them" if is_kv else f"mode is {deployment.router_mode}"),
                fix=Fix(
                    text="Route by KV events (--router-mode kv), or disable them.",
                    graph={"router.kv_events": True} if is_kv else {"router.mode": "kv"},
                ),
                level=Level.WARNING if is_default and worker.component.replicas > 1 else None,
            )


def fallback_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        flag = worker.flag("--kv-block-size") if worker.is_trtllm else None
        own = worker.count("block_size")
        if flag is not None and own and flag.value != own and worker.settings.is_complete:
            result = RuleResult(
                location=worker.location("args", flag.spelling),
                message=f"--kv-block-size {flag.text} has no effect: tokens_per_block of the "
                f"engine is {own}",
                fix=Fix(
                    text=f"Set kv_cache_config.tokens_per_block to {flag.value}.",
                    config={"kv_cache_config.tokens_per_block": flag.value},
                ),
                versions=FALLBACK,
            )
            yield result
            yield replace(
                result,
                message=f"--kv-block-size is {flag.text}, but tokens_per_block of the engine is "
                f"{own}",
                why="The worker registers the former, and the router finds no cached prefix.",
                versions=REGISTERED,
            )


def _streams(config: Any) -> bool:
    """As `_resolve_streaming_kv_events_config` of dynamo/trtllm/workers/llm_worker.py 1.6.1."""
    if not isinstance(config, Mapping) or not config.get("enable_kv_cache_events"):
        return False
    return config.get("publisher") != "null"


def streamed_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        key = "kv_cache_config.kv_events_config"
        if worker.is_trtllm and publishes(worker) and _streams(worker.get(key)):
            if worker.env("TLLM_KV_CACHE_MANAGER_V2_BACKEND") != "python":
                yield RuleResult(
                    location=worker.config_location(key),
                    message="kv_events_config requires "
                    "TLLM_KV_CACHE_MANAGER_V2_BACKEND=python, which is not set",
                    fix=Fix(
                        text="Set TLLM_KV_CACHE_MANAGER_V2_BACKEND=python, or use "
                        "--publish-kv-events alone.",
                        env={"TLLM_KV_CACHE_MANAGER_V2_BACKEND": "python"},
                    ),
                )


def largest_window_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in prefill_workers(deployment):
        windows = worker.get("kv_cache_config.max_attention_window")
        if worker.is_trtllm and isinstance(windows, list) and len(set(map(str, windows))) > 1:
            if deployment.follows_kv_events:
                yield RuleResult(
                    location=worker.config_location("kv_cache_config.max_attention_window"),
                    message=f"max_attention_window is {windows}: only blocks of the largest "
                    "window are published",
                    fix=Fix(
                        text="Suppress this note; routing needs only the full-attention layers."
                    ),
                )


def unbound_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in prefill_workers(deployment):
        endpoint = events_config(worker, "endpoint")
        if worker.engine is not Engine.VLLM or not isinstance(endpoint, str):
            continue
        if not publishes(worker):
            continue
        binds = "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
        if not binds:
            yield RuleResult(
                location=worker.config_location("kv-events-config.endpoint"),
                message=f"vLLM connects to {endpoint} instead of listening on it",
                fix=Fix(
                    text="Set the endpoint to tcp://*:20080, which listens on all addresses.",
                    config={"kv-events-config.endpoint": "tcp://*:20080"},
                ),
            )


def _backend_sets_page_size(worker: Worker, deployment: ServingDeployment) -> bool:
    """Whether the attention backend overrides the page size: trtllm_mha, the default for gpt-oss
    on Blackwell, uses 64 (sglang/srt/server_args.py)."""
    keys = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    backends = [str(worker.get(key)) for key in keys if worker.get(key) is not None]
    if not backends and deployment.model is not None and deployment.model.is_gpt_oss:
        backends = ["trtllm_mha"] if deployment.gpu is None or deployment.gpu.is_blackwell else []
    return any("mla" in name or name == "trtllm_mha" for name in backends)


def page_size_of_one(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in prefill_workers(deployment):
        if worker.engine is Engine.SGLANG and deployment.follows_kv_events:
            page = worker.value("block_size")
            is_one = page == 1 or (page is None and worker.settings.is_complete)
            if is_one and not _backend_sets_page_size(worker, deployment):
                yield RuleResult(
                    location=worker.settings.location("block_size"),
                    message="page-size is 1, so SGLang publishes a KV event for each token",
                    # For some models SGLang selects a larger page size.
                    level=Level.NOTE if deployment.model is None else None,
                    fix=Fix(text="Set page-size to 64.", config={"page-size": 64}),
                )
