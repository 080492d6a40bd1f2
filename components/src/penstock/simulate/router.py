"""The router that replay runs, from the frontend's parsed command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engines.parsers import NotParsed, Parsed
from penstock.graph.component import Frontend

# Of one process among several, or of files in its pod; replay has one router in this process.
NOT_REPLAYED = ("router_replica_sync", "router_tracking_key_file", "router_tracking_key_id")
POLICY = ("router_policy_config", "router_prefill_policy", "router_decode_policy")
# Of the frontend, whatever its router: the values that change nothing, and what replay does not do.
NOT_DONE: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "active_decode_blocks_threshold": ((None,), "no busy worker refuses"),
    "active_prefill_tokens_threshold": ((None,), "no busy worker refuses"),
    "active_prefill_tokens_threshold_frac": ((None,), "no busy worker refuses"),
    "session_affinity_ttl_secs": ((None,), "a conversation's turns are bound to no worker"),
    # Where no worker fails nothing migrates: only what a graph does not say by itself is told.
    "migration_limit": ((0, Frontend.model_fields["migration_limit"].default), "nothing migrates"),
    "migration_max_seq_len": ((None,), "nothing migrates"),
}


@dataclass(frozen=True, kw_only=True)
class Router:
    """``settings``: the frontend's, by the names of KvRouterConfig; None is round robin."""

    mode: str
    settings: Mapping[str, Any] | None
    left_out: tuple[str, ...] = ()


def router_of(frontends: Sequence[Parsed | NotParsed], replicas: int = 1) -> Router:
    """Of the first frontend, as all are alike; ``replicas``: how many there are of them."""
    first = frontends[0] if frontends else NotParsed(component="", reason="there is no frontend")
    if isinstance(first, NotParsed):
        return _round_robin("round-robin", f"the router is taken for round robin: {first.reason}")
    settings = first.settings
    mode = str(settings.get("router_mode") or "round-robin")
    dropped = tuple(_not_done(settings))
    if mode == "round-robin":
        return Router(mode=mode, settings=None, left_out=dropped)
    if mode != "kv":
        return _round_robin(mode, f"router mode {mode}: round robin stands in", *dropped)
    policies = [name for name in POLICY if settings.get(name)]
    # By the names of KvRouterConfig's parameters; replay takes those that it has.
    taken = {k: v for k, v in settings.items() if k not in (*NOT_REPLAYED, *POLICY)}
    left_out = [f"{name}: the default policy stands in" for name in policies]
    if replicas > 1 and not settings.get("router_replica_sync"):
        left_out.append(
            f"{replicas} frontends that do not tell each other their load: one router, which "
            "sees all requests, stands in"
        )
    return Router(mode=mode, settings=taken, left_out=(*left_out, *dropped))


def _not_done(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, (idle, why) in NOT_DONE.items():
        if (said := settings.get(name)) not in (*idle, None):
            yield f"{name} {said}: {why}"


def _round_robin(mode: str, *why: str) -> Router:
    return Router(mode=mode, settings=None, left_out=why)
