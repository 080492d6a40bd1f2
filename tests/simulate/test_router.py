"""Which settings of the frontend the replayed router has, and which are reported as ignored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.engines.parsers import NotParsed, Parsed
from penstock.errors import SimulationError
from penstock.manifests.deployment import Role
from penstock.manifests.source import open_source
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import require_replayed_mode
from penstock.simulate.router import router_of
from tests.simulate.test_replay import NO_CACHE, graph, job
from tests.simulate.test_replayable import of

KV = {"router_mode": "kv", "router_replica_sync": True, "migration_limit": 3}


def frontend(**settings: Any) -> Parsed:
    return Parsed(component="frontend", settings={**KV, **settings})


def test_settings_of_the_kv_router_are_replayed() -> None:
    replayed = router_of([frontend(router_temperature=0.5)], 2)
    assert replayed.settings is not None
    assert replayed.settings["router_temperature"] == 0.5
    assert "router_replica_sync" not in replayed.settings
    assert replayed.not_simulated == ()


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
    replayed = router_of([frontend(router_mode=mode, **{name: value})])
    assert replayed.not_simulated[-1].startswith(f"{name} {value}: ")


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
    replayed = router_of([NotParsed(component="frontend", reason="only the cluster knows it")])
    assert replayed.settings is None
    assert "only the cluster knows it" in replayed.not_simulated[0]


PATH = "/etc/penstock/router.yaml"
SPLIT = (Role.PREFILL, Role.DECODE)
BUILT_IN = {
    "name": "g",
    "type": "dynamo-default-cost-fn",
    "parameters": {"router_temperature": 0.5},
}
OTHER = {"name": "o", "type": "thunderagent", "parameters": {}}
ALL = {"aggregated": "g", "prefill": "g", "decode": "g"}
QUEUES = {
    "default_policy_family": "all",
    "uncached_isl_buckets": [{"min_tokens": 0, "bucket": "all"}],
    "policy_classes": [
        {"name": "d", "policy_family": "all", "cache_bucket": "all", "quantum": 1},
    ],
}


def router(document: dict[str, Any], roles: Any = SPLIT, **settings: Any) -> Any:
    flags = {"router_mode": "kv", "router_policy_config": PATH, **settings}
    files = {PATH: yaml.safe_dump(document)}
    return router_of([Parsed(component="frontend", settings=flags)], 1, files, roles)


def selection(*instances: dict[str, Any], **stages: str) -> dict[str, Any]:
    return {"worker_selection": {**stages, "instances": list(instances)}}


def test_parameters_of_the_built_in_policy_become_settings() -> None:
    replayed = router(selection(BUILT_IN, **ALL))
    assert replayed.settings["router_temperature"] == 0.5
    assert "router_policy_config" not in replayed.settings
    assert replayed.not_simulated == ()


def test_the_queues_are_passed_on_without_the_selection() -> None:
    replayed = router(selection(BUILT_IN, **ALL) | QUEUES)
    assert yaml.safe_load(replayed.settings["router_policy_config"]) == QUEUES


@pytest.mark.parametrize(
    ("document", "roles", "note"),
    [
        (selection(OTHER, prefill="o", decode="o"), SPLIT, "worker-selection policy thunderagent"),
        (selection(BUILT_IN, prefill="g"), SPLIT, "a worker-selection policy per stage"),
        ({"request_classifier": {"type": "t"}}, SPLIT, "request_classifier"),
    ],
)
def test_what_the_replay_does_not_simulate_is_reported(
    document: dict[str, Any], roles: Any, note: str
) -> None:
    replayed = router(document, roles)
    assert len(replayed.not_simulated) == 1
    assert replayed.not_simulated[0].startswith(note)
    assert "router_temperature" not in replayed.settings


def test_only_the_stages_of_the_graph_count() -> None:
    replayed = router(selection(BUILT_IN, OTHER, aggregated="g", prefill="o"), (Role.WORKER,))
    assert replayed.settings["router_temperature"] == 0.5


def test_a_flag_overrides_the_instance_of_a_stage() -> None:
    replayed = router(selection(BUILT_IN, OTHER, **ALL), router_decode_policy="o")
    assert replayed.not_simulated == (
        "worker-selection policy thunderagent: using the default policy instead",
    )


def test_a_file_that_is_not_in_the_manifests_is_reported() -> None:
    flags = {"router_mode": "kv", "router_policy_config": "/image/p.yaml"}
    replayed = router_of([Parsed(component="frontend", settings=flags)], 1, {}, SPLIT)
    assert "/image/p.yaml is not in the manifests" in replayed.not_simulated[0]


@pytest.mark.needs("sim")
@pytest.mark.parametrize(
    ("sets", "flags"),
    [
        ({"queue_threshold": 0}, {"router_queue_threshold": 0.0}),
        (
            {"queue_threshold": 0, "overlap_score_credit": 2, "prefill_load_scale": 3},
            {"router_queue_threshold": 0.0, "overlap_score_credit": 2.0, "prefill_load_scale": 3.0},
        ),
    ],
)
def test_file_and_flags_give_the_same_replay(sets: dict[str, int], flags: dict[str, float]) -> None:
    name = "gpt-oss-120b-b200-disagg"
    plain = graph(name)
    assert plain.router.settings is not None
    with_file = graph(name, *(f"router.{key}={value}" for key, value in sets.items()))
    settings = {**plain.router.settings, **flags}
    with_flags = replace(plain, router=replace(plain.router, settings=settings))
    with Replays(NO_CACHE) as replays:
        results = replays.run(
            [job(deployment, "poisson: 60") for deployment in (with_file, with_flags, plain)]
        )
    requests = [result["requests"] for result in results]
    assert requests[0] == requests[1]
    assert requests[0] != requests[2]  # otherwise the setting has no effect on this load


@pytest.mark.needs("sim")
def test_random_routing_queues_where_rotation_does_not() -> None:
    """Requests at the same worker wait for each other, and rotation separates them."""
    rotation, random = (
        replace(graph(DISAGG), router=router_of([frontend(router_mode=mode)]))
        for mode in ("round-robin", "random")
    )
    assert rotation.router.settings is None
    assert random.is_random
    assert not random.router.is_tunable
    with Replays(NO_CACHE) as replays:
        results = replays.run([job(d, "constant: 100") for d in (rotation, random)])
    queued = [sorted(result["requests"]["prefill_queue_ms"])[-5] for result in results]
    assert queued[0] < 1 < queued[1]


GRAPHS = Path(__file__).parents[2] / "dynamo_graphs"
DISAGG = "gpt-oss-120b-b200-disagg"


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["power-of-two", "least-loaded", "direct", "device-aware-weighted"]
)
def test_other_modes_are_refused_with_the_value_and_a_fix(mode: str) -> None:
    source = open_source(GRAPHS / f"{DISAGG}.yaml")
    with pytest.raises(SimulationError) as error:
        require_replayed_mode(of(DISAGG, f"router.mode={mode}"), source)
    text = str(error.value)
    assert f"router.mode: {mode} cannot be replayed" in text
    assert text.endswith("Fix: Set the router mode to kv, round-robin or random.")


@pytest.mark.slow
def test_kv_round_robin_random_and_a_single_worker_are_replayed() -> None:
    source = open_source(GRAPHS / f"{DISAGG}.yaml")
    require_replayed_mode(of(DISAGG), source)
    require_replayed_mode(of(DISAGG, "router.mode=round-robin"), source)
    require_replayed_mode(of(DISAGG, "router.mode=random"), source)
    single = "gpt-oss-120b-b200-latency-eagle3"  # least-loaded
    require_replayed_mode(of(single), open_source(GRAPHS / f"{single}.yaml"))
    two = of(single, "worker.replicas=2")
    with pytest.raises(SimulationError, match="least-loaded cannot be replayed"):
        require_replayed_mode(two, source)
