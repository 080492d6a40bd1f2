"""Rules of the router: what it needs of the workers, and of itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker


def readers(deployment: ServingDeployment) -> tuple[Worker, ...]:
    return tuple(w for w in deployment.workers if w.reads_prompts)


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
    publisher = events_config(worker, "publisher")
    if worker.engine is Engine.VLLM:
        enabled = str(events_config(worker, "enable_kv_cache_events")).lower() == "true"
        return enabled and publisher in (None, "zmq")
    return bool(publisher == "zmq")


def events_config(worker: Worker, key: str) -> Any:
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


@rule(
    id="PS502",
    title="a KV router over workers that keep no prefix",
    level=Level.ERROR,
    cause="Block reuse (prefix caching, radix cache) is off.",
    effect="There is nothing to route to; TensorRT-LLM warns and the router falls back to "
    "load. "
    "Published gpt-oss recipes have it so, for benchmarks.",
    remedy="Switch reuse on.",
    source="dynamo#592; dynamo/trtllm/workers/llm_worker.py 545 of 1.6.1",
)
def no_reuse(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.router_mode != "kv" or not _assumes_reuse(deployment):
        return
    for worker in readers(deployment):
        reuses, key = reuses_blocks(worker)
        if not reuses:
            yield RuleResult(
                location=worker.config(key),
                message=f"{worker.name} keeps no prefix, and the router looks for prefixes",
                fix=Fix(text="keep them", config={key: key != "disable-radix-cache"}),
            )


def _assumes_reuse(deployment: ServingDeployment) -> bool:
    """False where the KV router was told to look at load alone."""
    said = deployment.router_setting("--router-assume-kv-reuse", "DYN_ROUTER_ASSUME_KV_REUSE")
    off = said is not None and str(said.value).lower() in ("false", "0", "no")
    return deployment.follows_kv_events or not off


@rule(
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
)
def blind_router(deployment: ServingDeployment) -> Iterable[RuleResult]:
    keeping = tuple(w for w in readers(deployment) if not w.embeds)
    components = {w.name: w.component for w in keeping}
    replicas = sum(c.replicas * deployment.processes(name) for name, c in components.items())
    if (
        deployment.router_mode in ("round-robin", "random")
        and replicas > 1
        and deployment.frontends
    ):
        component = deployment.frontends[0][0].name
        yield RuleResult(
            location=Location(component, "args", ("--router-mode",)),
            message=f"router mode {deployment.router_mode} over {replicas} workers that keep "
            "prefixes",
            fix=Fix(
                text="route by cached prefix",
                args=("--router-mode", "kv"),
                graph={"router.mode": "kv"},
            ),
            level=Level.NOTE if not any(reuses_blocks(w)[0] for w in keeping) else None,
        )


@rule(
    id="PS505",
    title="frontends that do not share load",
    level=Level.WARNING,
    cause="Each frontend's router counts only its own requests unless they sync.",
    effect="Two routers send to the same worker: uneven load, queueing.",
    remedy="--router-replica-sync.",
    source="dynamo#2264; kv_router_args.py of 1.6.1",
)
def no_replica_sync(deployment: ServingDeployment) -> Iterable[RuleResult]:
    frontends = sum(c.replicas for c in deployment.with_role(Role.FRONTEND))
    if deployment.router_mode != "kv" or frontends < 2:
        return
    said = deployment.router_setting("--router-replica-sync", "DYN_ROUTER_REPLICA_SYNC")
    if said is None or str(said.value).lower() in ("false", "0", "no"):
        component = deployment.with_role(Role.FRONTEND)[0].name
        yield RuleResult(
            location=said.location
            if said
            else Location(component, "args", ("--router-replica-sync",)),
            message=f"{frontends} frontends without --router-replica-sync",
            fix=Fix(
                text="share the load state",
                args=("--router-replica-sync",),
                graph={} if said else {"router.replica_sync": True},
            ),
        )


@rule(
    id="PS506",
    title="a block size that the router does not take",
    level=Level.WARNING,
    cause="--kv-cache-block-size differs from the workers'. 1.6.1's router takes the worker's.",
    effect="The flag says something else than what runs; older routers miss every block.",
    remedy="Leave the flag out.",
    source="dynamo#9545, dynamo#1232, llm-d#2203; tried with ai-dynamo 1.6.1",
)
def router_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    said = deployment.router_setting("--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE")
    if said is None:
        return
    for worker in readers(deployment):
        own = worker.count("block_size")
        if own and str(said.value) != str(own):
            yield RuleResult(
                location=said.location,
                message=f"{said.location.path[0]} {said.value}, and {worker.name}'s blocks have "
                f"{own} tokens",
                fix=Fix(text="leave it out: the router takes the worker's"),
            )
            return


@rule(
    id="PS511",
    title="requests that cannot move",
    level=Level.WARNING,
    cause="The migration limit is 0, Dynamo's default.",
    effect="Every request on a worker that dies fails: 11 of 1,500 in our measurement, 0 with 3.",
    remedy="--migration-limit 3.",
    source="dynamo/frontend/frontend_args.py 418 of 1.6.1; benchmarks/edit_under_load.py",
)
def no_migration(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.frontends or deployment.router_mode == "direct":
        return
    said = deployment.router_setting("--migration-limit", "DYN_MIGRATION_LIMIT")
    if said is None or str(said.value) == "0":
        name = deployment.frontends[0][0].name
        yield RuleResult(
            location=said.location if said else Location(name, "args", ("--migration-limit",)),
            message="migration limit 0: a request whose worker dies is lost",
            fix=Fix(
                text="let it move",
                args=("--migration-limit", "3"),
                graph={"frontend.migration_limit": 3},
            ),
        )


@rule(
    id="PS514",
    title="conditional disaggregation without its conditions",
    level=Level.ERROR,
    cause="It needs the KV router with events, and decode workers that publish theirs.",
    effect="The frontend refuses to start, or nothing ever skips prefill.",
    remedy="Remove the flag, or meet the conditions.",
    source="dynamo#11723",
)
def conditional(deployment: ServingDeployment) -> Iterable[RuleResult]:
    said = deployment.router_setting("--router-conditional-disagg", "DYN_ROUTER_CONDITIONAL_DISAGG")
    if said is None or str(said.value).lower() in ("false", "0"):
        return
    if not deployment.follows_kv_events:
        yield RuleResult(
            location=said.location,
            message="conditional disaggregation needs router mode kv with KV events",
            fix=Fix(text="remove it, or route by KV events"),
        )
        return
    for worker in deployment.pool(Role.DECODE):
        if worker.engine is Engine.SGLANG:
            message = f"{worker.name} runs SGLang, which refuses requests that skip prefill"
            words = "remove it"
        elif not publishes(worker):
            message = f"{worker.name} publishes no KV events, so nothing ever skips prefill"
            words = "publish decode's events too"
        else:
            continue
        yield RuleResult(
            location=said.location,
            message=message,
            fix=Fix(text=words),
            level=Level.WARNING,
        )
