"""Rules about KV events: which workers publish them, how, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.routing.router import (
    events_config,
    has_choice,
    prefill_workers,
    publishes,
    weighs_prefixes,
)
from penstock.checks.version_range import DYNAMO, EVERY_SGLANG, EVERY_VLLM, Versions
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


@rule(
    id="PS501",
    title="the KV router gets no KV events",
    level=Level.WARNING,
    cause="The router uses the KV events of the workers, but the prefill or aggregated workers "
    "publish none.",
    effect="The router finds no cached prefix for any prompt. It routes by load, and the "
    "prefix-cache hit rate is close to that of random routing.",
    remedy="Set --publish-kv-events (TensorRT-LLM) or --kv-events-config (vLLM, SGLang).",
    source="dynamo/trtllm, dynamo/vllm/args.py and dynamo/sglang/args.py of 1.1 to 1.7, "
    "dynamo/trtllm/main.py and dynamo/sglang/main.py of 0.4.1; "
    "dynamo#11473, dynamo#11648",
    versions=DYNAMO,
    other_levels=(Level.NOTE,),
    exceptions="Nothing is reported if the router is configured to route by load alone. If the "
    "router has only one worker to choose, it is a note.",
)
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


@rule(
    id="PS503",
    title="KV events are published but not used",
    level=Level.NOTE,
    cause="Workers publish KV events, and the router does not route by them.",
    effect="Publishing the events costs CPU time and memory without benefit.",
    remedy="Set --router-mode kv, or disable KV events.",
    source="dynamo/frontend/frontend_args.py of 1.6.1; dynamo#13021",
    versions=DYNAMO,
    other_levels=(Level.WARNING,),
    exceptions="It is a warning if no router mode is set and a pool has several replicas, "
    "because the events then seem to be meant for routing. Nothing is reported if the deployment "
    "has an endpoint picker, which routes by the events instead of the frontend.",
)
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


@rule(
    id="PS507",
    title="--kv-block-size is overridden by the engine file",
    level=Level.WARNING,
    cause="--kv-block-size is only a fallback: the engine's tokens_per_block takes precedence.",
    effect="KV blocks have a different size than the command line states. Before 1.4 the worker "
    "registers the size of the command line, so that the router finds no cached prefix.",
    remedy="Set kv_cache_config.tokens_per_block.",
    source="_populate_kv_cache_capacity in dynamo/trtllm of 1.4.2 to 1.7.0; kv_cache_block_size in "
    "dynamo/trtllm/main.py 238 of 0.4.1 to llm_engine.py of 1.3.1; dynamo#5015",
    versions=DYNAMO,
    engines=(Engine.TRTLLM,),
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


@rule(
    id="PS508",
    title="streamed KV events lack the Python cache manager",
    level=Level.ERROR,
    cause="kv_events_config requires TLLM_KV_CACHE_MANAGER_V2_BACKEND=python.",
    effect="The worker raises ValueError at startup.",
    remedy="Set the variable.",
    source="dynamo/trtllm/publisher.py of 1.6.1",
    versions=Versions(dynamo=">=1.6"),
    engines=(Engine.TRTLLM,),
    exceptions="Nothing is reported if the publisher is null.",
)
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


@rule(
    id="PS509",
    title="only the largest attention window publishes KV events",
    level=Level.NOTE,
    cause="With several attention windows, only blocks of the largest window are published.",
    effect="The router sees only full-attention blocks. This is sufficient for prefix caching, "
    "but “Block not published” lines appear in the log.",
    remedy="No change is needed.",
    source="dynamo/trtllm/publisher.py of 0.4.1 and 1.6.1; dynamo#2241",
    versions=DYNAMO,
    engines=(Engine.TRTLLM,),
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


@rule(
    id="PS510",
    title="the KV event endpoint does not listen",
    level=Level.WARNING,
    cause="vLLM listens only on an endpoint with a wildcard, an IPv6 any-address, ipc or inproc. "
    "It connects to any other endpoint.",
    effect="The router gets no KV events, and no error is logged.",
    remedy="Set the endpoint to tcp://*:20080.",
    source="ZmqEventPublisher in vllm/distributed/kv_events.py 0.10.1.1 to 0.33.0; seen with vLLM "
    "on a CPU",
    versions=EVERY_VLLM,
    engines=(Engine.VLLM,),
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


@rule(
    id="PS515",
    title="SGLang publishes a KV event for each token",
    level=Level.WARNING,
    cause="SGLang's page size is 1 unless set, and each page is an event.",
    effect="KV events flood the event plane, and the router's index grows with each token.",
    remedy="Set --page-size to 16 or 64.",
    source="dynamo#8395",
    versions=EVERY_SGLANG,
    engines=(Engine.SGLANG,),
    other_levels=(Level.NOTE,),
    exceptions="Nothing is reported if the attention backend sets the page size, as trtllm_mha "
    "does.",
)
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
