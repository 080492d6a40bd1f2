"""Rules about the router: its mode, and what it requires of workers and frontends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.routing.policy_file import credits_of_policy
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.strict_yaml.loader import load_json

# What a cached prefix counts for, as flag and variable.
CREDITS = (
    ("--router-kv-overlap-score-credit", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"),
    ("--router-kv-overlap-score-weight", "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT"),
)


def prefill_workers(deployment: ServingDeployment) -> tuple[Worker, ...]:
    """The workers that compute prefill: all but decode workers."""
    return tuple(w for w in deployment.workers if w.runs_prefill)


def publishes(worker: Worker) -> bool:
    """Whether the worker publishes KV events."""
    if worker.is_trtllm:
        flag = worker.flag("--publish-kv-events", "--publish-events-and-metrics")
        variable = worker.env("DYN_TRTLLM_PUBLISH_KV_EVENTS") or ""
        if flag is not None:
            return flag.value is True
        return variable.strip().lower() in ("1", "true", "yes", "on")
    if worker.engine in (Engine.MOCKER, Engine.LLAMACPP):
        return True
    if not worker.settings.is_complete and worker.get("kv-events-config") is None:
        return True
    publisher = events_config(worker, "publisher")
    if worker.engine is Engine.VLLM:
        enabled = str(events_config(worker, "enable_kv_cache_events")).lower() == "true"
        return enabled and publisher in (None, "zmq")
    return bool(publisher == "zmq")


def events_config(worker: Worker, key: str) -> Any:
    """A key of kv-events-config, which may be a JSON string in the engine file."""
    config = worker.get("kv-events-config")
    if isinstance(config, str):
        try:
            config = load_json(config)
        except ValueError:
            config = None
    if isinstance(config, Mapping) and key in config:
        return config[key]
    return worker.get(f"kv-events-config.{key}")


def caches_prefixes(worker: Worker) -> tuple[bool, str]:
    """Whether prefix caching is enabled, and the key that sets it."""
    if worker.is_trtllm:
        key = "kv_cache_config.enable_block_reuse"
        return worker.get(key) is not False, key
    if worker.engine is Engine.VLLM:
        return worker.get("enable-prefix-caching") is not False, "enable-prefix-caching"
    if worker.engine is Engine.SGLANG:
        return worker.get("disable-radix-cache") is not True, "disable-radix-cache"
    key = "engine.enable_prefix_caching"
    return worker.get(key) is not False, key


def has_choice(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether the router selects among several workers for the same prompts."""
    ranks = worker.count("data_parallel") or 1
    replicas = sum(w.component.replicas for w in deployment.pool(worker.role))
    return replicas * ranks > 1 or worker.attention_ranks > 1


def no_prefix_caching(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.router_mode != "kv" or not _expects_prefix_caching(deployment):
        return
    for worker in prefill_workers(deployment):
        is_enabled, key = caches_prefixes(worker)
        if not is_enabled:
            value = key != "disable-radix-cache"
            yield RuleResult(
                location=worker.config_location(key),
                message=f"{worker.name} has prefix caching disabled, but the router routes by "
                "cached prefixes",
                fix=Fix(text=f"Set {key} to {str(value).lower()}.", config={key: value}),
                level=None if has_choice(deployment, worker) else Level.NOTE,
            )


def weighs_prefixes(deployment: ServingDeployment) -> bool:
    """Whether the KV router prefers workers with cached prefixes: not with --load-aware or a credit
    of 0, whose flag had other names before 1.2. A policy that is not known may decide either way.
    """
    policy = credits_of_policy(deployment)
    if policy is None:
        return False
    if policy:
        return any(policy)  # the policy's parameters count, not the flags
    load_aware = deployment.router_setting("--load-aware", "DYN_ROUTER_LOAD_AWARE")
    if load_aware and str(load_aware.value).lower() in ("true", "1", "yes"):
        return False
    found = (deployment.router_setting(flag, variable) for flag, variable in CREDITS)
    return not any(setting and _is_zero(setting.value) for setting in found)


def _is_zero(value: Any) -> bool:
    try:
        return float(str(value)) == 0
    except ValueError:
        return False


def _expects_prefix_caching(deployment: ServingDeployment) -> bool:
    """False where the KV router is configured to route by load alone."""
    if not weighs_prefixes(deployment):
        return False
    setting = deployment.router_setting("--router-assume-kv-reuse", "DYN_ROUTER_ASSUME_KV_REUSE")
    is_disabled = setting is not None and str(setting.value).lower() in ("false", "0", "no")
    return deployment.follows_kv_events or not is_disabled


def prefix_caches_ignored(deployment: ServingDeployment) -> Iterable[RuleResult]:
    workers = tuple(
        w for w in prefill_workers(deployment) if not w.embeds and caches_prefixes(w)[0]
    )
    components = {w.name: w.component for w in workers}
    replicas = sum(c.replicas * deployment.processes(name) for name, c in components.items())
    if (
        deployment.router_mode in ("round-robin", "random")
        and replicas > 1
        and deployment.frontends
    ):
        component = deployment.frontends[0][0].name
        yield RuleResult(
            location=Location(component, "args", ("--router-mode",)),
            message=f"router mode {deployment.router_mode} ignores the prefix caches of "
            f"{replicas} workers",
            fix=Fix(
                text="Set the router mode to kv.",
                args=("--router-mode", "kv"),
                graph={"router.mode": "kv"},
            ),
        )


def no_replica_sync(deployment: ServingDeployment) -> Iterable[RuleResult]:
    frontends = sum(c.replicas for c in deployment.with_role(Role.FRONTEND))
    if deployment.router_mode != "kv" or frontends < 2:
        return
    setting = deployment.router_setting("--router-replica-sync", "DYN_ROUTER_REPLICA_SYNC")
    if setting is None or str(setting.value).lower() in ("false", "0", "no"):
        component = deployment.with_role(Role.FRONTEND)[0].name
        yield RuleResult(
            location=setting.location
            if setting
            else Location(component, "args", ("--router-replica-sync",)),
            message=f"{frontends} frontends route without --router-replica-sync",
            fix=Fix(
                text="Enable --router-replica-sync.",
                args=("--router-replica-sync",),
                graph={} if setting else {"router.replica_sync": True},
            ),
        )


def router_block_size(deployment: ServingDeployment) -> Iterable[RuleResult]:
    setting = deployment.router_setting("--kv-cache-block-size", "DYN_KV_CACHE_BLOCK_SIZE")
    if setting is None:
        return
    for worker in prefill_workers(deployment):
        own = worker.count("block_size")
        if own and str(setting.value) != str(own):
            yield RuleResult(
                location=setting.location,
                message=f"{setting.location.path[0]} is {setting.value}, but {worker.name} has "
                f"a KV block size of {own}",
                fix=Fix(
                    text=f"Remove {setting.location.path[0]}; the router uses the workers' block "
                    "size."
                ),
            )
            return


def no_migration(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.frontends or deployment.router_mode == "direct":
        return
    setting = deployment.router_setting("--migration-limit", "DYN_MIGRATION_LIMIT")
    if setting is None or str(setting.value) == "0":
        name = deployment.frontends[0][0].name
        yield RuleResult(
            location=setting.location
            if setting
            else Location(name, "args", ("--migration-limit",)),
            message="the migration limit is 0, so requests on a failed worker are lost",
            fix=Fix(
                text="Set the migration limit to 3.",
                args=("--migration-limit", "3"),
                graph={"frontend.migration_limit": 3},
            ),
        )


def conditional_disaggregation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    setting = deployment.router_setting(
        "--router-conditional-disagg", "DYN_ROUTER_CONDITIONAL_DISAGG"
    )
    if setting is None or str(setting.value).lower() in ("false", "0"):
        return
    name = setting.location.path[0]
    if not deployment.follows_kv_events:
        yield RuleResult(
            location=setting.location,
            message="conditional disaggregation requires router mode kv with KV events",
            fix=Fix(text=f"Remove {name}, or route by KV events."),
        )
        return
    for worker in deployment.pool(Role.DECODE):
        if worker.engine is Engine.SGLANG:
            message = f"{worker.name} runs SGLang, which rejects requests that skip prefill"
            text = f"Remove {name}."
        elif not publishes(worker):
            message = f"{worker.name} publishes no KV events, so no request skips prefill"
            text = f"Publish KV events on {worker.name}."
        else:
            continue
        yield RuleResult(
            location=setting.location,
            message=message,
            fix=Fix(text=text),
            level=Level.WARNING,
        )
