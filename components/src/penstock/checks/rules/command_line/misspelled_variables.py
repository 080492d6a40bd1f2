"""A rule about variables that nothing reads because their names are misspelled."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.engines.variable_names import misspelled
from penstock.serving.deployment import ServingDeployment


@rule(
    id="PS170",
    title="misspelled variable",
    level=Level.WARNING,
    cause="No version of Dynamo, of the engines or of huggingface_hub reads a variable with this "
    "name, but one reads a variable with almost the same name.",
    effect="The variable is ignored, usually without a message.",
    remedy="Correct the name.",
    source="engines/data/variable_names.json, made of the wheels of ai-dynamo 0.4.1 to "
    "1.7.0.dev20261026, vLLM 0.10.1.1 to 0.33.0, SGLang 0.5.0rc2 to 0.5.23, huggingface_hub 1.33.0",
    versions=Versions(every="no version has the variable"),
)
def misspelled_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        for name in dict.fromkeys(name for launch in component.launches for name in launch.env):
            if near := misspelled(name):
                yield RuleResult(
                    location=Location(component.name, "env", (name,)),
                    message=f"no program reads {name}; the similar variable {near} exists",
                    fix=Fix(text=f"Rename {name} to {near}."),
                )
