"""Rules about the name of the model."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import PENSTOCK
from penstock.models.misspelled import meant_id
from penstock.serving.deployment import ServingDeployment


@rule(
    id="PS785",
    title="misspelled model",
    level=Level.WARNING,
    cause="The ID differs from that of a model that penstock knows only as a typing error does: a "
    "letter or a separator in a name of the same organization, a size of gpt-oss that OpenAI has "
    "not published, or a letter in the name of the organization.",
    effect="The Hugging Face Hub has no such model: the workers exit when they download it. The "
    "checks that need the model's shape are skipped.",
    remedy="Correct the ID, or suppress the rule if the model exists.",
    source="IDs on the Hugging Face Hub",
    versions=PENSTOCK,
    exceptions="Models of other organizations, such as fine-tuned ones, are not reported, nor "
    "models that are loaded from a folder.",
)
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
