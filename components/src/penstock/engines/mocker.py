"""Dynamo's mocker as the graph's engine: it runs with the arguments of the graph."""

from __future__ import annotations

from penstock.engines.engine import NoSimulation, Simulation
from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Launch
from penstock.manifests.flags import without_flags

# Planes and discovery on a laptop differ from the cluster's; environment variables set them.
MODEL_FLAGS = ("--model-path", "--model-name")
PLANE_FLAGS = (
    "--discovery-backend",
    "--request-plane",
    "--response-plane",
    "--event-plane",
)


def simulate(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Simulation | NoSimulation:
    """The launch's own arguments, without model and planes."""
    if isinstance(parsed, NotParsed):
        return NoSimulation(reason=f"its command line could not be parsed: {parsed.reason}")
    model = str(parsed.settings["model_path"] or "")
    kept = without_flags(launch.arguments, *MODEL_FLAGS, *PLANE_FLAGS)
    return Simulation(
        arguments=kept,
        model=model,
        served_names=(str(parsed.settings["model_name"] or model),),
        simulated=("the mocker's own arguments",),
        not_simulated=(),
    )


def effective(component: Component, launch: Launch, parsed: Parsed | NotParsed) -> NoSimulation:
    """No configuration: the mocker is not an engine."""
    return NoSimulation(reason=f"{component.name} runs the mocker, which is not an engine")
