"""The modules of the engines.

Only what runs or simulates a worker imports them; `penstock check` reads settings without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines import llamacpp, mocker, sglang, trtllm, vllm
from penstock.engines.engine import EngineModule, NoSimulation, Simulation
from penstock.engines.parsers import NotParsed, Parsed
from penstock.manifests.deployment import Component, Engine, Launch

ENGINES: Mapping[Engine, EngineModule] = {
    Engine.TRTLLM: trtllm,
    Engine.VLLM: vllm,
    Engine.SGLANG: sglang,
    Engine.LLAMACPP: llamacpp,
    Engine.MOCKER: mocker,
}


def simulate(
    component: Component, launch: Launch, parsed: Parsed | NotParsed
) -> Simulation | NoSimulation:
    """The mocker that runs in place of the component's engine. ``launch`` is one of the
    component's, ``parsed`` its result from `check_launches`."""
    if component.engine in (None, Engine.MOCKER):
        return mocker.simulate(launch, parsed)
    return mocker.simulation(ENGINES[component.engine].effective(component, launch, parsed))
