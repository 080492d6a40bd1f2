"""The router that replay runs, from the frontend's parsed command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engines.parsers import NotParsed, Parsed

# Of one process among several, or of files in its pod; replay has one router in this process.
NOT_REPLAYED = ("router_replica_sync", "router_tracking_key_file", "router_tracking_key_id")
POLICY = ("router_policy_config", "router_prefill_policy", "router_decode_policy")


@dataclass(frozen=True, kw_only=True)
class Router:
    """``settings``: the frontend's, by the names of KvRouterConfig; None is round robin."""

    mode: str
    settings: Mapping[str, Any] | None
    left_out: tuple[str, ...] = ()


def router_of(frontends: Sequence[Parsed | NotParsed]) -> Router:
    """Of the first frontend, as all are alike."""
    first = frontends[0] if frontends else NotParsed(component="", reason="there is no frontend")
    if isinstance(first, NotParsed):
        return _round_robin("round-robin", f"the router is taken for round robin: {first.reason}")
    settings = first.settings
    mode = str(settings.get("router_mode") or "round-robin")
    if mode == "round-robin":
        return Router(mode=mode, settings=None)
    if mode != "kv":
        return _round_robin(mode, f"router mode {mode}: round robin stands in")
    policies = [name for name in POLICY if settings.get(name)]
    # By the names of KvRouterConfig's parameters; replay takes those that it has.
    taken = {k: v for k, v in settings.items() if k not in (*NOT_REPLAYED, *POLICY)}
    left_out = tuple(f"{name}: the default policy stands in" for name in policies)
    return Router(mode=mode, settings=taken, left_out=left_out)


def _round_robin(mode: str, why: str) -> Router:
    return Router(mode=mode, settings=None, left_out=(why,))
