"""What a deployment needs so that router settings can make a difference."""

from __future__ import annotations

from penstock.errors import Problem, SimulationError
from penstock.manifests.source import Source
from penstock.simulate.model import Replayable
from penstock.simulate.router_mode import require_replayed_mode, router_problem


def require_tunable(deployment: Replayable, source: Source) -> None:
    """SimulationError for a router without these settings, or without workers to choose from."""
    require_replayed_mode(deployment, source)
    if deployment.router.settings is None:
        mode = deployment.router.mode
        message = f"{mode} has no settings to tune"
        raise SimulationError(router_problem(source, message, "Set the router mode to kv."))
    if deployment.choices == 1:
        message = f"{deployment.shape}: no pool has two workers, so the router has no choice"
        fix = "Set `replicas` of a pool to 2 or more."
        file = source.loaded.source if source.loaded else ""
        raise SimulationError(Problem(file=file, message=message, fix=fix))
