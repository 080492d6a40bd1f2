"""Judge a rule's result by the versions in the image: drop it, weaken it, or leave it as it is.

`checks/run.py` calls this for every result, so that no rule compares versions itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.checks.finding import Level, RuleResult
from penstock.checks.rule import Rule
from penstock.checks.version_range import Fit
from penstock.engines.releases import NEWEST, RELEASES
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import Software, one_of, possible_releases, software


@dataclass(frozen=True)
class VersionFilter:
    """Applies the versions of rules to the results for one deployment."""

    deployment: ServingDeployment
    # Rules whose errors and warnings are about later versions only: rule id → the versions.
    off: dict[str, str] = field(default_factory=dict)

    def apply(self, rule: Rule, result: RuleResult) -> RuleResult | None:
        """The result as it applies to the image, or None.

        Nothing states which version an image without one has. So a finding about it is one level
        lower, unless it is true in every known version, and what is true only in the newest release
        is a note.
        """
        versions = result.versions or rule.versions
        if versions.every:
            return result
        image, engine = self._image(result.location.component)
        fit = versions.fit(image, engine, self.deployment.operator)
        if fit is Fit.INSIDE:
            return result
        level = result.level or rule.level
        if fit is Fit.EARLIER and level is not Level.NOTE:
            self.off.setdefault(rule.id, versions.text(engine))
        if fit in (Fit.OUTSIDE, Fit.EARLIER):
            return None
        if fit is Fit.BETWEEN:
            reason = f"in {versions.text(engine)}; this build may be newer"
        else:
            reason = f"assuming Dynamo {self._assumed(fit)}"
        if fit is Fit.DOUBTFUL:
            level = Level.NOTE
        else:
            level = Level.WARNING if level is Level.ERROR else Level.NOTE
        return replace(result, message=f"{result.message} ({reason})", level=level)

    def _image(self, component: str) -> tuple[Software, Engine | None]:
        """The component's image and engine. For a place outside of components: the newest image of
        all, as the operator is at least as new."""
        if component in self.deployment.pods:
            image = software(self.deployment.pods[component])
            engine = self.deployment.component(component).engine
        else:
            images = [software(pod) for pod in self.deployment.pods.values()]
            image = max(images, key=lambda image: image.dynamo, default=Software())
            engine = None
        return image if image.dynamo or image.engines else self._unstated, engine

    @cached_property
    def _unstated(self) -> Software:
        """An image without a version: the newest release, unless the flags belong to others."""
        releases = possible_releases(self.deployment)
        return Software(is_stated=False) if NEWEST in releases else one_of(releases)

    def _assumed(self, fit: Fit) -> str:
        """`1.6`, or `0.5 to 1.3, whose flags it has`."""
        dynamo = self._unstated.dynamo
        if fit is not Fit.ASSUMED or not dynamo:
            return NEWEST
        names = [name for name, release in RELEASES.items() if release.dynamo in map(str, dynamo)]
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return f"{span}, whose flags it has"
