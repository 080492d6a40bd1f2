"""Turn the engines of the replay into configurations of live mockers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Deployment, Role
from penstock.simulate.accuracy import evidence
from penstock.simulate.model import Replayable
from penstock.simulate.replay_child import spread_experts
from penstock.simulate.report import WHOLE_EXPERTS
from penstock.text.numbers import significant

SERVING = (Role.PREFILL, Role.DECODE, Role.WORKER)
Engines = dict[str, dict[str, Any]]


def replayed_engines(replayable: Replayable, *, whole_experts: bool) -> Engines:
    """The engine of each component. ``whole_experts``: the replay had no times for sharded experts
    and used those of whole ones."""
    engines = {name: pool.engine for pool in replayable.pools for name in pool.names}
    found: Engines = copy.deepcopy({name: dict(engine) for name, engine in engines.items()})
    if whole_experts:
        spread_experts(found)
    return found


def live_engine(engine: Mapping[str, Any], context: int, speed: float) -> dict[str, Any]:
    """The replayed engine with the settings that only a server needs: the context length, the index
    that a router which starts late requests, and chunked prefill, without which a prompt that does
    not fit into a step would wait forever."""
    rank = {**engine["engine"], "max_model_len": context, "speedup_ratio": speed}
    if bandwidth := rank.get("kv_transfer_bandwidth"):
        # Measured: the ratio scales an engine's steps, but a KV transfer uses wall-clock time.
        rank["kv_transfer_bandwidth"] = bandwidth * speed
    if must_chunk(engine, context):
        rank["enable_chunked_prefill"] = True
    return {**engine, "engine": rank, "dynamo": {"enable_local_indexer": True}}


def must_chunk(engine: Mapping[str, Any], context: int) -> bool:
    rank = engine["engine"]
    return not rank["enable_chunked_prefill"] and rank["max_num_batched_tokens"] < context


def require_all(deployment: Deployment, engines: Engines) -> None:
    """SimulationError for a pool without replicas, for which the replay has no engine."""
    for component in deployment.components:
        if component.role in SERVING and component.name not in engines:
            message = f"{component.name} has no replica, so its timing cannot be predicted"
            fix = "Give it 1 replica, or omit --timing model."
            raise SimulationError(Problem(place=component.name, message=message, fix=fix))


def notes(
    replayable: Replayable, engines: Engines, speed: float, *, whole_experts: bool
) -> Iterator[str]:
    """The notes of `up --timing model`."""
    yield f"step times are predicted, not measured; {evidence(replayable)}"
    if speed != 1:
        seconds = significant(1 / speed)
        yield f"simulation speed {speed:g}: {seconds} s of real time is 1 s of simulated time"
    if whole_experts:
        yield f"assumed: {WHOLE_EXPERTS}"
    for what in replayable.assumed:
        yield f"assumed: {what}"
    for what in replayable.not_simulated:
        # The live frontend is the graph's.
        only_in_replay = what in replayable.router.not_simulated
        yield f"{'not in the compared replay' if only_in_replay else 'not simulated'}: {what}"
    for name, engine in engines.items():
        if must_chunk(engine, replayable.context):
            yield f"{name}: long prompts are chunked although chunked prefill is off"
