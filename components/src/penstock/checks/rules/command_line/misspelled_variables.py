"""A rule about variables that nothing reads because their names are misspelled."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.settings import Location
from penstock.engines.variable_names import misspelled
from penstock.serving.deployment import ServingDeployment


def misspelled_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for name in dict.fromkeys(name for launch in component.launches for name in launch.env):
            if near := misspelled(name):
                yield RuleResult(
                    location=Location(component.name, "env", (name,)),
                    message=f"no program reads {name}; the similar variable {near} exists",
                    fix=Fix(text=f"Rename {name} to {near}."),
                )
