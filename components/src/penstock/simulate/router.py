"""The router of a replay, from the frontend's parsed command line and the router's policy file.

The replay reads the queues of a policy file (--router-policy-config). It does not read
`worker_selection`: the parameters of Dynamo's built-in policy become the settings that the
deprecated flags have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from penstock.engines.parsers import NotParsed, Parsed
from penstock.graph.component import Frontend
from penstock.manifests.deployment import Role
from penstock.strict_yaml.loader import SafeLoader

BUILT_IN_POLICY = "dynamo-default-cost-fn"
DEFAULT_POLICY = "default"
STAGES = {Role.WORKER: "aggregated", Role.PREFILL: "prefill", Role.DECODE: "decode"}
QUEUE_KEYS = ("default_policy_family", "uncached_isl_buckets", "policy_classes", "models")
# They concern one process among several, or files of its pod; the replay has one router.
NOT_REPLAYED = ("router_replica_sync", "router_tracking_key_file", "router_tracking_key_id")
POLICY_FILE = "router_policy_config"
# The replay has no random mode. At such a temperature, its KV router selects every worker with the
# same probability, whatever is cached and running there: of 20,000 requests with shared prefixes,
# the counts of 8 workers and of their pairs in a row are multinomial (chi-squared).
RANDOM = {"overlap_score_credit": 0.0, "router_temperature": 1e9}
# Flags that choose an instance of the policy file for a stage.
POLICY_FLAGS = {"prefill": "router_prefill_policy", "decode": "router_decode_policy"}
# Settings of the frontend that the replay does not simulate, whatever its router: the values that
# have no effect anyway, and what the replay does instead.
NOT_SIMULATED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "active_decode_blocks_threshold": ((None,), "busy workers reject no request"),
    "active_prefill_tokens_threshold": ((None,), "busy workers reject no request"),
    "active_prefill_tokens_threshold_frac": ((None,), "busy workers reject no request"),
    "session_affinity_ttl_secs": ((None,), "a conversation is not bound to a worker"),
    # No worker fails in a replay, so no request migrates. The default is not worth a note.
    "migration_limit": ((0, Frontend.model_fields["migration_limit"].default), "nothing migrates"),
    "migration_max_seq_len": ((None,), "nothing migrates"),
}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a replay uses of a policy file."""

    settings: Mapping[str, Any]
    """Parameters of KvRouterConfig."""
    text: str | None = None
    """A policy file with the queues only; None if the file has none."""
    not_simulated: tuple[str, ...] = ()


def policy_of(text: str, roles: Iterable[Role], chosen: Mapping[str, str]) -> Policy:
    """The policy of a graph with workers of these ``roles``; ``chosen``: stage → instance, from the
    flags that override the file. The frontend's parser has accepted the file."""
    document = yaml.load(text, Loader=SafeLoader)  # noqa: S506  a safe loader
    selection = document.get("worker_selection") or {}
    stages = {STAGES[role] for role in roles if role in STAGES}
    names = {
        chosen.get(stage) or selection.get(stage) or DEFAULT_POLICY for stage in sorted(stages)
    }
    instances = {i["name"]: i for i in selection.get("instances") or ()}
    queues = {key: document[key] for key in QUEUE_KEYS if key in document}
    notes = list(_not_simulated(document, names, instances))
    is_simulated = len(names) == 1 and not notes
    instance = instances.get(next(iter(names), DEFAULT_POLICY), {}) if is_simulated else {}
    return Policy(
        settings=instance.get("parameters") or {},
        text=yaml.safe_dump(queues) if queues else None,
        not_simulated=tuple(notes),
    )


def _not_simulated(
    document: Mapping[str, Any], names: set[str], instances: Mapping[str, Any]
) -> Iterator[str]:
    kinds = {instances[name]["type"] for name in names if name in instances} - {BUILT_IN_POLICY}
    for kind in sorted(kinds):
        yield f"worker-selection policy {kind}: using the default policy instead"
    if len(names) > 1 and not kinds:
        yield "a worker-selection policy per stage: using the default policy instead"
    if document.get("request_classifier"):
        yield "request_classifier: requests have no class"


@dataclass(frozen=True, kw_only=True)
class Router:
    mode: str  # as configured
    settings: Mapping[str, Any] | None  # by parameters of KvRouterConfig; None: round robin
    not_simulated: tuple[str, ...] = ()

    @property
    def is_tunable(self) -> bool:
        """Whether the settings are the graph's."""
        return self.mode == "kv"


def router_of(
    frontends: Sequence[Parsed | NotParsed],
    replicas: int = 1,
    files: Mapping[str, str] = MappingProxyType({}),
    roles: Iterable[Role] = (),
) -> Router:
    """The router of the first of ``replicas`` frontends, which all have the same settings.

    ``files``: those of its container, with the policy file; ``roles``: of the workers.
    """
    first = frontends[0] if frontends else NotParsed(component="", reason="there is no frontend")
    if isinstance(first, NotParsed):
        return _round_robin("round-robin", f"the router; using round robin: {first.reason}")
    settings = first.settings
    mode = str(settings.get("router_mode") or "round-robin")
    ignored = tuple(_ignored_settings(settings))
    if mode == "round-robin":
        return Router(mode=mode, settings=None, not_simulated=ignored)
    if mode == "random":
        return Router(mode=mode, settings=RANDOM, not_simulated=ignored)
    if mode != "kv":
        return _round_robin(mode, f"router mode {mode}: using round robin instead", *ignored)
    # By the names of KvRouterConfig's parameters; the replay uses those that it knows.
    dropped = (*NOT_REPLAYED, POLICY_FILE, *POLICY_FLAGS.values())
    used = {k: v for k, v in settings.items() if k not in dropped}
    policy = _policy(settings, files, roles)
    used |= policy.settings
    if policy.text is not None:
        used[POLICY_FILE] = policy.text  # the process of the replay writes the file
    not_simulated = list(policy.not_simulated)
    if replicas > 1 and not settings.get("router_replica_sync"):
        not_simulated.append(
            f"{replicas} frontends without replica sync: using one router, which sees all requests"
        )
    return Router(mode=mode, settings=used, not_simulated=(*not_simulated, *ignored))


def _policy(settings: Mapping[str, Any], files: Mapping[str, str], roles: Iterable[Role]) -> Policy:
    path = settings.get(POLICY_FILE)
    chosen = {
        stage: str(settings[flag]) for stage, flag in POLICY_FLAGS.items() if settings.get(flag)
    }
    if path is None and set(chosen.values()) <= {DEFAULT_POLICY}:
        return Policy(settings={})
    if path is not None and path not in files:
        note = f"{POLICY_FILE}: using the default policy instead: {path} is not in the manifests"
        return Policy(settings={}, not_simulated=(note,))
    return policy_of(files[path] if path else "{}", roles, chosen)


def _ignored_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, (defaults, effect) in NOT_SIMULATED.items():
        if (value := settings.get(name)) not in (*defaults, None):
            yield f"{name} {value}: {effect}"


def _round_robin(mode: str, *not_simulated: str) -> Router:
    return Router(mode=mode, settings=None, not_simulated=not_simulated)
