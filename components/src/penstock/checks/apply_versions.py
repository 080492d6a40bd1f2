"""Judge a rule's result by the versions in the image: drop it, weaken it, or leave it as it is.

`checks/run.py` calls this for every result, so that no rule compares versions itself.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.checks.finding import Level, RuleResult
from penstock.checks.rule import Rule
from penstock.checks.version_range import Fit
from penstock.engines.releases import NEWEST
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import Software, software


def in_version(rule: Rule, result: RuleResult, deployment: ServingDeployment) -> RuleResult | None:
    """The result as it applies to the image, or None.

    Nothing states which version an image without one has. So an error about it is a warning, unless
    it is true in every known version, and what is true only in the newest release is a note.
    """
    versions = result.versions or rule.versions
    if versions.every:
        return result
    image, engine = _image(result.location.component, deployment)
    fit = versions.fit(image, engine)
    if fit is Fit.OUTSIDE:
        return None
    level = result.level or rule.level
    if fit is Fit.UNVERIFIED:
        message = f"{result.message} (verified for {versions.text(engine)}, not for this image)"
        return replace(result, message=message, level=Level.NOTE)
    if fit in (Fit.ASSUMED, Fit.DOUBTFUL):
        message = f"{result.message} (assuming Dynamo {NEWEST})"
        weaker = Level.WARNING if level is Level.ERROR else level
        return replace(result, message=message, level=weaker if fit is Fit.ASSUMED else Level.NOTE)
    return result


def _image(component: str, deployment: ServingDeployment) -> tuple[Software, Engine | None]:
    """The component's image and engine. For a place outside of components: the newest image of
    all, as the operator is at least as new."""
    if component in deployment.pods:
        return software(deployment.pods[component]), deployment.component(component).engine
    images = [software(pod) for pod in deployment.pods.values()]
    stated = [image for image in images if image.dynamo]
    return max(stated, key=lambda image: image.dynamo, default=Software()), None
