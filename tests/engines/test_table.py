"""One module an engine."""

from __future__ import annotations

from penstock.engines.table import ENGINES
from penstock.manifests.deployment import Engine


def test_every_engine_of_a_deployment_has_its_module() -> None:
    assert set(ENGINES) == set(Engine)
