"""Rejects router modes that Dynamo's replay does not have; `simulate` and `tune` call it."""

from __future__ import annotations

from penstock.errors import Problem, SimulationError
from penstock.manifests.source import Source
from penstock.simulate.model import Replayable

REPLAYED = ("kv", "round-robin")
PLACE = "router.mode"


def require_replayed_mode(deployment: Replayable, source: Source) -> None:
    """SimulationError for a mode that would be replayed as round robin, unless there is only one
    worker, which every mode selects."""
    if deployment.router.mode in REPLAYED or (
        deployment.choices == 1 and deployment.planner is None
    ):
        return
    message = (
        f"{deployment.router.mode} cannot be replayed: the replay has {' and '.join(REPLAYED)}"
    )
    raise SimulationError(
        router_problem(source, message, "Set the router mode to kv or round-robin.")
    )


def router_problem(source: Source, message: str, fix: str) -> Problem:
    """A problem with the router's mode, with its line in a graph."""
    if source.loaded is None:
        return Problem(place="the frontend's --router-mode", message=message, fix=fix)
    loaded = source.loaded
    return Problem(
        file=loaded.source,
        line=loaded.places.line_of(PLACE),
        place=PLACE,
        message=message,
        fix=fix,
    )
