"""From what replay runs to what live mockers run: the same engines, on a clock of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import Problem, SimulationError
from penstock.manifests.deployment import Deployment, Role
from penstock.simulate.model import Replayable
from penstock.simulate.replay_child import spread_experts
from penstock.simulate.report import KNOWN_ERROR, WHOLE_EXPERTS

SERVING = (Role.PREFILL, Role.DECODE, Role.WORKER)
Engines = dict[str, dict[str, Any]]


def replayed_engines(replayable: Replayable, *, whole_experts: bool) -> Engines:
    """By component; ``whole_experts``: replay had no times for cut ones, and took these."""
    engines = {name: pool.engine for pool in replayable.pools for name in pool.names}
    found: Engines = copy.deepcopy({name: dict(engine) for name, engine in engines.items()})
    if whole_experts:
        spread_experts(found)
    return found


def live_engine(engine: Mapping[str, Any], context: int, speed: float) -> dict[str, Any]:
    """Replay's engine with what only a server needs: the length at which the frontend refuses, the
    index that a router which starts late asks for, and prompts of any length taken in chunks, as
    one that does not fit into a step would wait for ever."""
    rank = {**engine["engine"], "max_model_len": context, "speedup_ratio": speed}
    if bandwidth := rank.get("kv_transfer_bandwidth"):
        # Measured: the ratio is of an engine's steps; a transfer takes its time of the wall clock.
        rank["kv_transfer_bandwidth"] = bandwidth * speed
    if must_chunk(engine, context):
        rank["enable_chunked_prefill"] = True
    return {**engine, "engine": rank, "dynamo": {"enable_local_indexer": True}}


def must_chunk(engine: Mapping[str, Any], context: int) -> bool:
    rank = engine["engine"]
    return not rank["enable_chunked_prefill"] and rank["max_num_batched_tokens"] < context


def require_all(deployment: Deployment, engines: Engines) -> None:
    """SimulationError for a pool without replicas, of which replay knows nothing."""
    for component in deployment.components:
        if component.role in SERVING and component.name not in engines:
            message = f"{component.name} has no replica, and replay no engine for it"
            fix = "give it 1, or leave out --timing model"
            raise SimulationError(Problem(place=component.name, message=message, fix=fix))


def notes(
    replayable: Replayable, engines: Engines, speed: float, *, whole_experts: bool
) -> Iterator[str]:
    """What is said beside the endpoint."""
    yield f"times are predicted, not measured; {KNOWN_ERROR}"
    if speed != 1:
        yield f"the mockers' clock runs at {speed:g} × speed: {1 / speed:.3g} s here are 1 s there"
    if whole_experts:
        yield f"assumed: {WHOLE_EXPERTS}"
    for what in replayable.assumed:
        yield f"assumed: {what}"
    for what in replayable.left_out:
        in_replay_alone = what in replayable.router.left_out  # the frontend here is the graph's
        yield f"{'not in the replay beside it' if in_replay_alone else 'not simulated'}: {what}"
    for name, engine in engines.items():
        if must_chunk(engine, replayable.context):
            yield f"{name}: chunked prefill off: long prompts are chunked here all the same"
