"""The router's policy file in a replay: the same as the flags that it replaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from penstock.engines.parsers import Parsed
from penstock.manifests.deployment import Role
from penstock.simulate.replay import Replays
from penstock.simulate.router import router_of
from tests.simulate.test_replay import NO_CACHE, graph, job

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
    given = {"router_mode": "kv", "router_policy_config": PATH, **settings}
    files = {PATH: yaml.safe_dump(document)}
    return router_of([Parsed(component="frontend", settings=given)], 1, files, roles)


def selection(*instances: dict[str, Any], **stages: str) -> dict[str, Any]:
    return {"worker_selection": {**stages, "instances": list(instances)}}


def test_parameters_of_the_built_in_policy_become_settings() -> None:
    found = router(selection(BUILT_IN, **ALL))
    assert found.settings["router_temperature"] == 0.5
    assert "router_policy_config" not in found.settings
    assert found.not_simulated == ()


def test_the_queues_are_passed_on_without_the_selection() -> None:
    found = router(selection(BUILT_IN, **ALL) | QUEUES)
    assert yaml.safe_load(found.settings["router_policy_config"]) == QUEUES


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
    found = router(document, roles)
    assert len(found.not_simulated) == 1
    assert found.not_simulated[0].startswith(note)
    assert "router_temperature" not in found.settings


def test_only_the_stages_of_the_graph_count() -> None:
    found = router(selection(BUILT_IN, OTHER, aggregated="g", prefill="o"), (Role.WORKER,))
    assert found.settings["router_temperature"] == 0.5


def test_a_flag_overrides_the_instance_of_a_stage() -> None:
    found = router(selection(BUILT_IN, OTHER, **ALL), router_decode_policy="o")
    assert found.not_simulated == (
        "worker-selection policy thunderagent: using the default policy instead",
    )


def test_a_file_that_is_not_in_the_manifests_is_reported() -> None:
    given = {"router_mode": "kv", "router_policy_config": "/image/p.yaml"}
    found = router_of([Parsed(component="frontend", settings=given)], 1, {}, SPLIT)
    assert "/image/p.yaml is not in the manifests" in found.not_simulated[0]


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
        results = replays.run([job(one, "poisson: 60") for one in (with_file, with_flags, plain)])
    requests = [result["requests"] for result in results]
    assert requests[0] == requests[1]
    assert requests[0] != requests[2]  # otherwise the setting has no effect on this load
