"""Rules of the router: what it needs of the workers, and of itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Found, Level
from penstock.checks.rule import Rule
from penstock.checks.subject import Subject, Worker
from penstock.checks.versions import dynamo_version
from penstock.engines.settings import At
from penstock.manifests.deployment import Engine, Role

EVENTS = {
    Engine.VLLM: {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "topic": "kv-events",
        "endpoint": "tcp://*:20080",
    },
    Engine.SGLANG: {"publisher": "zmq", "topic": "kv-events", "endpoint": "tcp://*:5557"},
}


def _readers(subject: Subject) -> tuple[Worker, ...]:
    return tuple(w for w in subject.workers if w.reads_prompts)


def publishes(worker: Worker) -> bool:
    """Whether the worker sends KV events."""
    if worker.is_trtllm:
        flag = worker.flag("--publish-kv-events", "--publish-events-and-metrics")
        variable = worker.env("DYN_TRTLLM_PUBLISH_KV_EVENTS") or ""
        if flag is not None:
            return flag.value is True
        return variable.strip().lower() in ("1", "true", "yes", "on")
    if worker.engine is Engine.MOCKER:
        return True
    if not worker.settings.is_whole and worker.get("kv-events-config") is None:
        return True
    publisher = _events(worker, "publisher")
    if worker.engine is Engine.VLLM:
        enabled = str(_events(worker, "enable_kv_cache_events")).lower() == "true"
        return enabled and publisher in (None, "zmq")
    return bool(publisher == "zmq")


def _events(worker: Worker, key: str) -> Any:
    """A key of kv-events-config, which a file may hold as JSON in a string."""
    config = worker.get("kv-events-config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
    if isinstance(config, Mapping) and key in config:
        return config[key]
    return worker.get(f"kv-events-config.{key}")


def no_events(subject: Subject) -> Iterable[Found]:
    if not subject.follows_kv_events:
        return
    for worker in _readers(subject):
        if publishes(worker):
            continue
        # Before 1.4 Dynamo published vLLM's events without being asked.
        version = dynamo_version(worker.pod)
        is_old = version is not None and version < (1, 4) and worker.engine is Engine.VLLM
        if worker.is_trtllm:
            yield Found(
                at=worker.at("args"),
                message=f"{worker.name} publishes no KV events, and the router routes by them",
                fix=Fix(words="publish them", args=("--publish-kv-events",)),
            )
        else:
            yield Found(
                at=worker.config("kv-events-config"),
                message=f"{worker.name}'s kv-events-config publishes nothing, and the router "
                "routes by KV events",
                fix=Fix(words="publish them", config={"kv-events-config": EVENTS[worker.engine]}),
                level=Level.WARNING if is_old else None,
            )


def reuses_blocks(worker: Worker) -> tuple[bool, str]:
    """Whether prefixes are kept, and the key that says so."""
    if worker.is_trtllm:
        key = "kv_cache_config.enable_block_reuse"
        return worker.get(key) is not False, key
    if worker.engine is Engine.VLLM:
        return worker.get("enable-prefix-caching") is not False, "enable-prefix-caching"
    if worker.engine is Engine.SGLANG:
        return worker.get("disable-radix-cache") is not True, "disable-radix-cache"
    key = "engine.enable_prefix_caching"
    return worker.get(key) is not False, key


def no_reuse(subject: Subject) -> Iterable[Found]:
    if subject.router_mode != "kv" or not _assumes_reuse(subject):
        return
    for worker in _readers(subject):
        reuses, key = reuses_blocks(worker)
        if not reuses:
            yield Found(
                at=worker.config(key),
                message=f"{worker.name} keeps no prefix, and the router looks for prefixes",
                fix=Fix(words="keep them", config={key: key != "disable-radix-cache"}),
            )


def _assumes_reuse(subject: Subject) -> bool:
    """False where the KV router was told to look at load alone."""
    said = subject.router_setting("--router-assume-kv-reuse", "DYN_ROUTER_ASSUME_KV_REUSE")
    off = said is not None and str(said.value).lower() in ("false", "0", "no")
    return subject.follows_kv_events or not off


def events_for_nobody(subject: Subject) -> Iterable[Found]:
    if subject.follows_kv_events or not subject.frontends:
        return
    is_kv = subject.router_mode == "kv"
    for worker in _readers(subject):
        is_said = worker.is_trtllm or worker.get("kv-events-config") is not None
        if is_said and worker.engine is not Engine.MOCKER and publishes(worker):
            yield Found(
                at=worker.at("args") if worker.is_trtllm else worker.config("kv-events-config"),
                message=f"{worker.name} publishes KV events, and the router "
                + ("does not follow them" if is_kv else f"is {subject.router_mode}"),
                fix=Fix(
                    words="route by them (--router-mode kv), or publish none",
                    graph={"router.kv_events": True} if is_kv else {"router.mode": "kv"},
                ),
            )


def blind_router(subject: Subject) -> Iterable[Found]:
    readers = tuple(w for w in _readers(subject) if not w.embeds)
    replicas = sum(w.component.replicas for w in readers)
    if subject.router_mode in ("round-robin", "random") and replicas > 1 and subject.frontends:
        component = subject.frontends[0][0].name
        yield Found(
            at=At(component, "args", ("--router-mode",)),
            message=f"router mode {subject.router_mode} over {replicas} workers that keep prefixes",
            fix=Fix(
                words="route by cached prefix",
                args=("--router-mode", "kv"),
                graph={"router.mode": "kv"},
            ),
            level=Level.NOTE if not any(reuses_blocks(w)[0] for w in readers) else None,
        )


def no_replica_sync(subject: Subject) -> Iterable[Found]:
    frontends = sum(c.replicas for c in subject.deployment.with_role(Role.FRONTEND))
    if subject.router_mode != "kv" or frontends < 2:
        return
    said = subject.router_setting("--router-replica-sync", "DYN_ROUTER_REPLICA_SYNC")
    if said is None or str(said.value).lower() in ("false", "0", "no"):
        component = subject.deployment.with_role(Role.FRONTEND)[0].name
        yield Found(
            at=said.at if said else At(component, "args", ("--router-replica-sync",)),
            message=f"{frontends} frontends without --router-replica-sync",
            fix=Fix(
                words="share the load state",
                args=("--router-replica-sync",),
                graph={} if said else {"router.replica_sync": True},
            ),
        )


def router_block_size(subject: Subject) -> Iterable[Found]:
    said = subject.router_setting("--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE")
    if said is None:
        return
    for worker in _readers(subject):
        own = worker.count("block_size")
        if own and str(said.value) != str(own):
            yield Found(
                at=said.at,
                message=f"{said.at.path[0]} {said.value}, and {worker.name}'s blocks have {own} "
                "tokens",
                fix=Fix(words="leave it out: the router takes the worker's"),
            )
            return


def fallback_block_size(subject: Subject) -> Iterable[Found]:
    for worker in subject.workers:
        flag = worker.flag("--kv-block-size") if worker.is_trtllm else None
        own = worker.count("block_size")
        if flag is not None and own and flag.value != own and worker.settings.is_whole:
            yield Found(
                at=worker.at("args", flag.spelling),
                message=f"--kv-block-size {flag.text}, and the engine's tokens_per_block is {own}",
                fix=Fix(
                    words="set the engine's",
                    config={"kv_cache_config.tokens_per_block": flag.value},
                ),
            )


def _streams(config: Any) -> bool:
    """As `_resolve_streaming_kv_events_config` of dynamo/trtllm/workers/llm_worker.py 1.6.1."""
    if not isinstance(config, Mapping) or not config.get("enable_kv_cache_events"):
        return False
    return config.get("publisher") != "null"


def streamed_events(subject: Subject) -> Iterable[Found]:
    for worker in subject.workers:
        key = "kv_cache_config.kv_events_config"
        if worker.is_trtllm and publishes(worker) and _streams(worker.get(key)):
            if worker.env("TLLM_KV_CACHE_MANAGER_V2_BACKEND") != "python":
                yield Found(
                    at=worker.config(key),
                    message="kv_events_config without TLLM_KV_CACHE_MANAGER_V2_BACKEND=python",
                    fix=Fix(
                        words="set the variable, or use --publish-kv-events alone",
                        env={"TLLM_KV_CACHE_MANAGER_V2_BACKEND": "python"},
                    ),
                )


def window_events(subject: Subject) -> Iterable[Found]:
    for worker in _readers(subject):
        windows = worker.get("kv_cache_config.max_attention_window")
        if worker.is_trtllm and isinstance(windows, list) and len(set(map(str, windows))) > 1:
            if subject.follows_kv_events:
                yield Found(
                    at=worker.config("kv_cache_config.max_attention_window"),
                    message=f"windows {windows}: only blocks of the largest are published",
                    fix=Fix(words="expect the router to see the full-attention layers alone"),
                )


def unbound_events(subject: Subject) -> Iterable[Found]:
    for worker in _readers(subject):
        endpoint = _events(worker, "endpoint")
        if worker.engine is not Engine.VLLM or not isinstance(endpoint, str):
            continue
        if not publishes(worker):
            continue
        binds = "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
        if not binds:
            yield Found(
                at=worker.config("kv-events-config.endpoint"),
                message=f"{endpoint}: vLLM connects to it instead of listening, so no event "
                "ever arrives",
                fix=Fix(
                    words="listen on all addresses",
                    config={"kv-events-config.endpoint": "tcp://*:20080"},
                ),
            )


def no_migration(subject: Subject) -> Iterable[Found]:
    if not subject.frontends or subject.router_mode == "direct":
        return
    said = subject.router_setting("--migration-limit", "DYN_MIGRATION_LIMIT")
    if said is None or str(said.value) == "0":
        name = subject.frontends[0][0].name
        yield Found(
            at=said.at if said else At(name, "args", ("--migration-limit",)),
            message="migration limit 0: a request whose worker dies is lost",
            fix=Fix(
                words="let it move",
                args=("--migration-limit", "3"),
                graph={"frontend.migration_limit": 3},
            ),
        )


def conditional(subject: Subject) -> Iterable[Found]:
    said = subject.router_setting("--router-conditional-disagg", "DYN_ROUTER_CONDITIONAL_DISAGG")
    if said is None or str(said.value).lower() in ("false", "0"):
        return
    if not subject.follows_kv_events:
        yield Found(
            at=said.at,
            message="conditional disaggregation needs router mode kv with KV events",
            fix=Fix(words="remove it, or route by KV events"),
        )
        return
    for worker in subject.pool(Role.DECODE):
        if worker.engine is Engine.SGLANG:
            message = f"{worker.name} runs SGLang, which refuses requests that skip prefill"
            words = "remove it"
        elif not publishes(worker):
            message = f"{worker.name} publishes no KV events, so nothing ever skips prefill"
            words = "publish decode's events too"
        else:
            continue
        yield Found(
            at=said.at,
            message=message,
            fix=Fix(words=words),
            level=Level.WARNING,
        )


def _sets_its_page(worker: Worker, subject: Subject) -> bool:
    """Whether the attention backend takes larger pages whatever is asked: trtllm_mha, which
    gpt-oss gets on Blackwell, has 64 (sglang/srt/server_args.py)."""
    keys = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    said = [str(worker.get(key)) for key in keys if worker.get(key) is not None]
    if not said and subject.model is not None and subject.model.is_gpt_oss:
        said = ["trtllm_mha"] if subject.gpu is None or subject.gpu.is_blackwell else []
    return any("mla" in name or name == "trtllm_mha" for name in said)


def page_of_one(subject: Subject) -> Iterable[Found]:
    for worker in _readers(subject):
        if worker.engine is Engine.SGLANG and subject.follows_kv_events:
            page = worker.value("block_size")
            is_one = page == 1 or (page is None and worker.settings.is_whole)
            if is_one and not _sets_its_page(worker, subject):
                yield Found(
                    at=worker.settings.at("block_size"),
                    message="page-size 1: an event for every token",
                    fix=Fix(words="use larger pages", config={"page-size": 64}),
                )


RULES = (
    Rule(
        id="PS501",
        title="a KV router without KV events",
        level=Level.ERROR,
        cause="The router follows the workers' KV events, and workers that read prompts send none.",
        effect="Every prompt looks new: routing by load, a cache hit rate near chance.",
        remedy="--publish-kv-events (TensorRT-LLM), --kv-events-config (vLLM, SGLang).",
        source="dynamo/trtllm/workers/llm_worker.py 545, dynamo/vllm/args.py 538-556 of 1.6.1; "
        "dynamo#11473, dynamo#11648",
        judge=no_events,
    ),
    Rule(
        id="PS502",
        title="a KV router over workers that keep no prefix",
        level=Level.ERROR,
        cause="Block reuse (prefix caching, radix cache) is off.",
        effect="There is nothing to route to; TensorRT-LLM warns and the router falls back to "
        "load. "
        "Published gpt-oss recipes have it so, for benchmarks.",
        remedy="Switch reuse on.",
        source="dynamo#592; dynamo/trtllm/workers/llm_worker.py 545 of 1.6.1",
        judge=no_reuse,
    ),
    Rule(
        id="PS503",
        title="KV events that nobody reads",
        level=Level.NOTE,
        cause="Workers publish events and the router does not route by them.",
        effect="Work and memory for nothing.",
        remedy="--router-mode kv, or no events.",
        source="dynamo/frontend/frontend_args.py of 1.6.1",
        judge=events_for_nobody,
    ),
    Rule(
        id="PS504",
        title="a router that ignores the caches",
        level=Level.WARNING,
        cause="Round-robin or random choice over several workers with prefix caches; it is "
        "Dynamo's "
        "default.",
        effect="Shared prompts are computed on every worker; llm-d measured a mean TTFT 65 % lower "
        "with prefix routing on gpt-oss-120b.",
        remedy="--router-mode kv.",
        source="dynamo/frontend/frontend_args.py of 1.6.1; llm-d guides/optimized-baseline",
        judge=blind_router,
    ),
    Rule(
        id="PS505",
        title="frontends that do not share load",
        level=Level.WARNING,
        cause="Each frontend's router counts only its own requests unless they sync.",
        effect="Two routers send to the same worker: uneven load, queueing.",
        remedy="--router-replica-sync.",
        source="dynamo#2264; kv_router_args.py of 1.6.1",
        judge=no_replica_sync,
    ),
    Rule(
        id="PS506",
        title="a block size that the router does not take",
        level=Level.WARNING,
        cause="--kv-cache-block-size differs from the workers'. 1.6.1's router takes the worker's.",
        effect="The flag says something else than what runs; older routers miss every block.",
        remedy="Leave the flag out.",
        source="dynamo#9545, dynamo#1232, llm-d#2203; tried with ai-dynamo 1.6.1",
        judge=router_block_size,
    ),
    Rule(
        id="PS507",
        title="a block size that the engine does not take",
        level=Level.WARNING,
        cause="--kv-block-size is a fallback: the engine's tokens_per_block wins.",
        effect="Blocks have another size than the command line says.",
        remedy="Set kv_cache_config.tokens_per_block.",
        source="dynamo/trtllm/backend_args.py of 1.6.1; dynamo#5015",
        judge=fallback_block_size,
    ),
    Rule(
        id="PS508",
        title="streamed KV events without their cache manager",
        level=Level.ERROR,
        cause="kv_events_config needs TLLM_KV_CACHE_MANAGER_V2_BACKEND=python.",
        effect="ValueError at the start.",
        remedy="Set the variable.",
        source="dynamo/trtllm/publisher.py of 1.6.1",
        judge=streamed_events,
    ),
    Rule(
        id="PS509",
        title="events of the largest window only",
        level=Level.NOTE,
        cause="With several attention windows only the largest one's blocks are published.",
        effect="The router sees full-attention blocks alone; that is what reuse needs, but "
        "“Block not published” lines appear.",
        remedy="None needed.",
        source="dynamo/trtllm/publisher.py of 1.6.1; dynamo#2241",
        judge=window_events,
    ),
    Rule(
        id="PS510",
        title="KV events sent to nobody",
        level=Level.ERROR,
        cause="vLLM listens only on an endpoint with a wildcard, an IPv6 any-address, ipc or "
        "inproc; any other it connects to.",
        effect="No event ever arrives and nothing says so.",
        remedy="tcp://*:20080.",
        source="ZmqEventPublisher in vllm/distributed/kv_events.py 0.31.0; seen with vLLM on a CPU",
        judge=unbound_events,
    ),
    Rule(
        id="PS511",
        title="requests that cannot move",
        level=Level.WARNING,
        cause="The migration limit is 0, Dynamo's default.",
        effect="Every request on a worker that dies fails: 11 of 1,500 in our measurement, 0 "
        "with 3.",
        remedy="--migration-limit 3.",
        source="dynamo/frontend/frontend_args.py 418 of 1.6.1; benchmarks/edit_under_load.py",
        judge=no_migration,
    ),
    Rule(
        id="PS514",
        title="conditional disaggregation without its conditions",
        level=Level.ERROR,
        cause="It needs the KV router with events, and decode workers that publish theirs.",
        effect="The frontend refuses to start, or nothing ever skips prefill.",
        remedy="Remove the flag, or meet the conditions.",
        source="dynamo#11723",
        judge=conditional,
    ),
    Rule(
        id="PS515",
        title="an event for every token",
        level=Level.WARNING,
        cause="SGLang's page size is 1 unless set, and each page is an event.",
        effect="The event plane floods; the router's index grows by the token.",
        remedy="--page-size 16 or 64.",
        source="dynamo#8395",
        judge=page_of_one,
    ),
)
