"""Rules of KV events: who sends them, in which form, to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.routing.router import events_config, publishes, readers
from penstock.checks.rules.versions.image_versions import dynamo_version
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

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
    title="a KV router without KV events",
    level=Level.ERROR,
    cause="The router follows the workers' KV events, and workers that read prompts send none.",
    effect="Every prompt looks new: routing by load, a cache hit rate near chance.",
    remedy="--publish-kv-events (TensorRT-LLM), --kv-events-config (vLLM, SGLang).",
    source="dynamo/trtllm/workers/llm_worker.py 545, dynamo/vllm/args.py 538-556 of 1.6.1; "
    "dynamo#11473, dynamo#11648",
)
def no_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.follows_kv_events:
        return
    for worker in readers(deployment):
        if publishes(worker):
            continue
        # Before 1.4 Dynamo published vLLM's events without being asked.
        version = dynamo_version(worker.pod)
        is_old = version is not None and version < (1, 4) and worker.engine is Engine.VLLM
        switched_off = worker.flag("--no-publish-kv-events")
        if worker.is_trtllm and switched_off and not switched_off.value:
            yield RuleResult(
                location=worker.location("args", switched_off.spelling),
                message=f"{worker.name} has {switched_off.spelling}, and the router routes by KV "
                "events",
                fix=Fix(text="remove it"),
            )
        elif worker.is_trtllm:
            yield RuleResult(
                location=worker.location("args"),
                message=f"{worker.name} publishes no KV events, and the router routes by them",
                fix=Fix(text="publish them", args=("--publish-kv-events",)),
            )
        else:
            yield RuleResult(
                location=worker.config("kv-events-config"),
                message=f"{worker.name}'s kv-events-config publishes nothing, and the router "
                "routes by KV events",
                fix=Fix(text="publish them", config={"kv-events-config": EVENTS[worker.engine]}),
                level=Level.WARNING if is_old else None,
            )


@rule(
    id="PS503",
    title="KV events that nobody reads",
    level=Level.NOTE,
    cause="Workers publish events and the router does not route by them.",
    effect="Work and memory for nothing.",
    remedy="--router-mode kv, or no events.",
    source="dynamo/frontend/frontend_args.py of 1.6.1",
)
def events_for_nobody(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.follows_kv_events or not deployment.frontends:
        return
    is_kv = deployment.router_mode == "kv"
    for worker in readers(deployment):
        is_said = worker.is_trtllm or worker.get("kv-events-config") is not None
        if is_said and worker.engine is not Engine.MOCKER and publishes(worker):
            yield RuleResult(
                location=worker.location("args")
                if worker.is_trtllm
                else worker.config("kv-events-config"),
                message=f"{worker.name} publishes KV events, and the router "
                + ("does not follow them" if is_kv else f"is {deployment.router_mode}"),
                fix=Fix(
                    text="route by them (--router-mode kv), or publish none",
                    graph={"router.kv_events": True} if is_kv else {"router.mode": "kv"},
                ),
            )


@rule(
    id="PS507",
    title="a block size that the engine does not take",
    level=Level.WARNING,
    cause="--kv-block-size is a fallback: the engine's tokens_per_block wins.",
    effect="Blocks have another size than the command line says.",
    remedy="Set kv_cache_config.tokens_per_block.",
    source="dynamo/trtllm/backend_args.py of 1.6.1; dynamo#5015",
)
def fallback_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        flag = worker.flag("--kv-block-size") if worker.is_trtllm else None
        own = worker.count("block_size")
        if flag is not None and own and flag.value != own and worker.settings.is_whole:
            yield RuleResult(
                location=worker.location("args", flag.spelling),
                message=f"--kv-block-size {flag.text}, and the engine's tokens_per_block is {own}",
                fix=Fix(
                    text="set the engine's",
                    config={"kv_cache_config.tokens_per_block": flag.value},
                ),
            )


def _streams(config: Any) -> bool:
    """As `_resolve_streaming_kv_events_config` of dynamo/trtllm/workers/llm_worker.py 1.6.1."""
    if not isinstance(config, Mapping) or not config.get("enable_kv_cache_events"):
        return False
    return config.get("publisher") != "null"


@rule(
    id="PS508",
    title="streamed KV events without their cache manager",
    level=Level.ERROR,
    cause="kv_events_config needs TLLM_KV_CACHE_MANAGER_V2_BACKEND=python.",
    effect="ValueError at the start.",
    remedy="Set the variable.",
    source="dynamo/trtllm/publisher.py of 1.6.1",
)
def streamed_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        key = "kv_cache_config.kv_events_config"
        if worker.is_trtllm and publishes(worker) and _streams(worker.get(key)):
            if worker.env("TLLM_KV_CACHE_MANAGER_V2_BACKEND") != "python":
                yield RuleResult(
                    location=worker.config(key),
                    message="kv_events_config without TLLM_KV_CACHE_MANAGER_V2_BACKEND=python",
                    fix=Fix(
                        text="set the variable, or use --publish-kv-events alone",
                        env={"TLLM_KV_CACHE_MANAGER_V2_BACKEND": "python"},
                    ),
                )


@rule(
    id="PS509",
    title="events of the largest window only",
    level=Level.NOTE,
    cause="With several attention windows only the largest one's blocks are published.",
    effect="The router sees full-attention blocks alone; that is what reuse needs, but "
    "“Block not published” lines appear.",
    remedy="None needed.",
    source="dynamo/trtllm/publisher.py of 1.6.1; dynamo#2241",
)
def window_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in readers(deployment):
        windows = worker.get("kv_cache_config.max_attention_window")
        if worker.is_trtllm and isinstance(windows, list) and len(set(map(str, windows))) > 1:
            if deployment.follows_kv_events:
                yield RuleResult(
                    location=worker.config("kv_cache_config.max_attention_window"),
                    message=f"windows {windows}: only blocks of the largest are published",
                    fix=Fix(text="expect the router to see the full-attention layers alone"),
                )


@rule(
    id="PS510",
    title="KV events sent to nobody",
    level=Level.ERROR,
    cause="vLLM listens only on an endpoint with a wildcard, an IPv6 any-address, ipc or "
    "inproc; any other it connects to.",
    effect="No event ever arrives and nothing says so.",
    remedy="tcp://*:20080.",
    source="ZmqEventPublisher in vllm/distributed/kv_events.py 0.31.0; seen with vLLM on a CPU",
)
def unbound_events(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in readers(deployment):
        endpoint = events_config(worker, "endpoint")
        if worker.engine is not Engine.VLLM or not isinstance(endpoint, str):
            continue
        if not publishes(worker):
            continue
        binds = "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
        if not binds:
            yield RuleResult(
                location=worker.config("kv-events-config.endpoint"),
                message=f"{endpoint}: vLLM connects to it instead of listening, so no event "
                "ever arrives",
                fix=Fix(
                    text="listen on all addresses",
                    config={"kv-events-config.endpoint": "tcp://*:20080"},
                ),
            )


def _sets_its_page(worker: Worker, deployment: ServingDeployment) -> bool:
    """Whether the attention backend takes larger pages whatever is asked: trtllm_mha, which
    gpt-oss gets on Blackwell, has 64 (sglang/srt/server_args.py)."""
    keys = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    said = [str(worker.get(key)) for key in keys if worker.get(key) is not None]
    if not said and deployment.model is not None and deployment.model.is_gpt_oss:
        said = ["trtllm_mha"] if deployment.gpu is None or deployment.gpu.is_blackwell else []
    return any("mla" in name or name == "trtllm_mha" for name in said)


@rule(
    id="PS515",
    title="an event for every token",
    level=Level.WARNING,
    cause="SGLang's page size is 1 unless set, and each page is an event.",
    effect="The event plane floods; the router's index grows by the token.",
    remedy="--page-size 16 or 64.",
    source="dynamo#8395",
)
def page_of_one(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in readers(deployment):
        if worker.engine is Engine.SGLANG and deployment.follows_kv_events:
            page = worker.value("block_size")
            is_one = page == 1 or (page is None and worker.settings.is_whole)
            if is_one and not _sets_its_page(worker, deployment):
                yield RuleResult(
                    location=worker.settings.location("block_size"),
                    message="page-size 1: an event for every token",
                    # Some models choose larger pages by themselves.
                    level=Level.NOTE if deployment.model is None else None,
                    fix=Fix(text="use larger pages", config={"page-size": 64}),
                )
