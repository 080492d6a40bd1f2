"""Which settings of the frontend the replayed router has, and which are reported as ignored."""

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
    assert found.not_simulated == ()


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
def test_other_settings_of_the_frontend_are_reported_as_not_simulated(
    name: str, value: Any, mode: str
) -> None:
    found = router_of([frontend(router_mode=mode, **{name: value})])
    assert found.not_simulated[-1].startswith(f"{name} {value}: ")


@pytest.mark.parametrize("limit", [0, 3])
def test_a_default_migration_limit_is_not_reported(limit: int) -> None:
    assert router_of([frontend(migration_limit=limit)]).not_simulated == ()


def test_frontends_without_replica_sync_are_reported() -> None:
    (line,) = router_of([frontend(router_replica_sync=False)], 3).not_simulated
    assert line.startswith("3 frontends without replica sync")
    assert router_of([frontend(router_replica_sync=False)], 1).not_simulated == ()
    assert (
        router_of([frontend(router_mode="round-robin", router_replica_sync=False)], 3).not_simulated
        == ()
    )


def test_a_frontend_that_is_not_parsed_is_replayed_with_round_robin() -> None:
    found = router_of([NotParsed(component="frontend", reason="only the cluster knows it")])
    assert found.settings is None
    assert "only the cluster knows it" in found.not_simulated[0]
