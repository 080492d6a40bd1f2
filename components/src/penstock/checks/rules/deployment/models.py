"""Rules about the name of the model."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.models.misspelled import meant_id
from penstock.serving.deployment import ServingDeployment


def misspelled_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    named = [worker.settings.common("model") for worker in deployment.workers]
    names = {str(setting.value) for setting in named if setting is not None}
    if len(names) != 1 or deployment.model_name not in names:
        return  # they load a folder, such as `model.path`, or several models
    name = str(deployment.model_name)
    if (meant := meant_id(name)) is not None:
        shown = name if name.isprintable() else repr(name)
        yield RuleResult(
            location=deployment.workers[0].settings.location("model"),
            message=f"{shown} is not a model that penstock knows, but {meant} is",
            fix=Fix(text=f"Did you mean `{meant}`?", graph={"model.id": meant}),
        )
