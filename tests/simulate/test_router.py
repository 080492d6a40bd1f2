"""What of the frontend's settings the replayed router has, and what it is said not to have."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.parsers import NotParsed, Parsed
from penstock.simulate.router import router_of

KV = {"router_mode": "kv", "router_replica_sync": True, "migration_limit": 3}


def frontend(**settings: Any) -> Parsed:
    return Parsed(component="frontend", settings={**KV, **settings})


def test_settings_of_the_kv_router_are_replayed() -> None:
    found = router_of([frontend(router_temperature=0.5)], 2)
    assert found.settings is not None
    assert found.settings["router_temperature"] == 0.5
    assert "router_replica_sync" not in found.settings
    assert found.left_out == ()


@pytest.mark.parametrize("mode", ["kv", "round-robin", "random"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("active_decode_blocks_threshold", 0.8),
        ("active_prefill_tokens_threshold", 9000),
        ("active_prefill_tokens_threshold_frac", 0.5),
        ("session_affinity_ttl_secs", 60),
        ("migration_limit", 5),
        ("migration_max_seq_len", 4096),
    ],
)
def test_what_the_frontend_does_beside_routing_is_said(name: str, value: Any, mode: str) -> None:
    found = router_of([frontend(router_mode=mode, **{name: value})])
    assert found.left_out[-1].startswith(f"{name} {value}: ")


@pytest.mark.parametrize("limit", [0, 3])
def test_a_migration_limit_that_nobody_chose_is_not_told(limit: int) -> None:
    assert router_of([frontend(migration_limit=limit)]).left_out == ()


def test_frontends_that_do_not_share_their_load_are_said() -> None:
    (said,) = router_of([frontend(router_replica_sync=False)], 3).left_out
    assert said.startswith("3 frontends that do not tell each other")
    assert router_of([frontend(router_replica_sync=False)], 1).left_out == ()
    assert (
        router_of([frontend(router_mode="round-robin", router_replica_sync=False)], 3).left_out
        == ()
    )


def test_a_frontend_that_is_not_parsed_is_taken_for_round_robin() -> None:
    found = router_of([NotParsed(component="frontend", reason="only the cluster knows it")])
    assert found.settings is None
    assert "only the cluster knows it" in found.left_out[0]
