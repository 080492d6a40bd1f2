"""The rule about placeholders in the namespace and in images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import KUBERNETES
from penstock.engines.settings import Location
from penstock.manifests.placeholders import placeholder
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import tag_of

# Tags that documentation uses for an image that the reader builds.
_TAGS = re.compile(
    r"(my|your)[-_.]?(image[-_.]?)?tag|(image[-_])?tag|x\.y\.z|vx\.y\.z", re.IGNORECASE
)


def image_placeholder(image: str) -> str | None:
    """The placeholder in an image, also a tag such as `my-tag`."""
    tag = tag_of(image) or ""
    return placeholder(image) or (tag if _TAGS.fullmatch(tag) else None)


@rule(
    id="PS909",
    title="placeholder in the namespace or an image",
    level=Level.ERROR,
    cause="The namespace or an image contains text to replace, such as `${IMAGE}`, or a tag such "
    "as `my-tag`. All of a deployment are one finding, and the other rules apply.",
    effect="Kubernetes rejects the name, or finds no such image. Without a version in the tag, "
    "rules assume the newest release.",
    remedy="Replace it. `penstock up` ignores images and namespaces.",
    source="Kubernetes, names and images",
    versions=KUBERNETES,
    other_levels=(Level.WARNING,),
)
def unfilled_placeholder(deployment: ServingDeployment) -> Iterable[RuleResult]:
    found = list(_placeholders(deployment))
    if not found:
        return
    location, _ = found[0]
    names = list(dict.fromkeys(text for _, text in found))
    places = "1 place" if len(found) == 1 else f"{len(found)} places"
    is_invalid = any(not _TAGS.fullmatch(text) for text in names)
    yield RuleResult(
        location=location,
        message=f"{', '.join(names)} in {places} must be replaced",
        fix=Fix(text="Replace the placeholders with the namespace and images of your cluster."),
        level=None if is_invalid else Level.WARNING,
    )


def is_template(deployment: ServingDeployment) -> bool:
    """Whether a program such as envsubst or Helm must fill the file before it is applied."""
    return any(text.startswith(("$", "{{")) for _, text in _placeholders(deployment))


def _placeholders(deployment: ServingDeployment) -> Iterator[tuple[Location, str]]:
    namespace = deployment.root.at("metadata", "namespace").value
    if isinstance(namespace, str) and (text := placeholder(namespace)):
        yield Location("", "manifest", ("metadata", "namespace")), text
    for component in deployment.components:
        image = deployment.pods[component.name].image
        if text := image_placeholder(image):
            yield Location(component.name, "field", ("main", "image")), text
