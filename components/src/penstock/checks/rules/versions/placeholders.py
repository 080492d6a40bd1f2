"""Placeholders in the namespace and in images. Of those elsewhere, `run` makes findings, because a
manifest cannot be read with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from penstock.checks.finding import Level
from penstock.engines.settings import Location
from penstock.errors import ProblemKind
from penstock.manifests.documents import Cursor
from penstock.manifests.placeholders import kind_of, placeholder, placeholders
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import tag_of

# Tags that documentation uses for an image that the reader builds.
_TAGS = re.compile(
    r"(my|your)[-_.]?(image[-_.]?)?tag|(image[-_])?tag|x\.y\.z|vx\.y\.z", re.IGNORECASE
)
_REGISTRIES = re.compile(
    r"((my|your|example)[-_.]?(docker[-_.]?)?(registry|repo|repository|org|hub)(\.[a-z.]+)?)/",
    re.IGNORECASE,
)
Place = TypeVar("Place")

FEW = 3  # placeholders that a message names
# Where it differs from the rule's effect.
REASONS = {
    ProblemKind.TEMPLATE: "The values are not known here, so findings that depend on them are "
    "missing.",
    ProblemKind.OTHER: "Kubernetes finds no such image. Without a version in the tag, rules assume "
    "the newest release.",
}
LEVELS = {
    ProblemKind.PLACEHOLDER: Level.ERROR,
    ProblemKind.TEMPLATE: Level.NOTE,
    ProblemKind.OTHER: Level.WARNING,  # a tag or registry, which is valid for Kubernetes
}
FIXES = {
    ProblemKind.PLACEHOLDER: "Replace the placeholders with values of your cluster.",
    ProblemKind.TEMPLATE: "Render the file, for example with envsubst, and check the result.",
}
BETWEEN = "/…:"  # a registry and a tag, in the text of a placeholder


def image_placeholders(image: str) -> list[str]:
    """The placeholders in an image; else a tag such as `my-tag` or a registry such as
    `my-registry`, or both as one: `my-registry/…:my-tag`."""
    tag, registry = tag_of(image) or "", _REGISTRIES.match(image)
    named = [registry[1]] if registry else []
    named += [tag] if _TAGS.fullmatch(tag) else []
    return placeholders(image) or ([BETWEEN.join(named)] if named else [])


def hides_version(image: str) -> bool:
    """Whether a placeholder stands where the version is."""
    return bool(placeholder(image) or _TAGS.fullmatch(tag_of(image) or ""))


def _is_valid(text: str) -> bool:
    """Whether a placeholder is a valid part of an image, so that Kubernetes looks for it."""
    registry, _, tag = text.rpartition(BETWEEN)
    return bool(_TAGS.fullmatch(tag) or _REGISTRIES.match(f"{registry or tag}/"))


def fix_of(kind: ProblemKind, texts: Iterable[str]) -> str:
    """What to do about placeholders of one kind."""
    if kind in FIXES:
        return FIXES[kind]
    names = list(texts)
    parts = ["registry"] if any(_REGISTRIES.match(f"{text}/") for text in names) else []
    parts += ["tag"] if any(_TAGS.fullmatch(text.rpartition(BETWEEN)[2]) for text in names) else []
    pronoun = "those" if len(parts) > 1 else "that"
    return f"Replace the {' and the '.join(parts)} with {pronoun} of your image."


def about_placeholders(kind: ProblemKind, texts: Sequence[str]) -> str:
    """The message about one or more placeholders of one kind."""
    names = list(dict.fromkeys(texts))
    more = [f"{len(names) - FEW} more"] if len(names) > FEW else []
    places = "1 place" if len(texts) == 1 else f"{len(texts)} places"
    must = "must be filled by a program" if kind is ProblemKind.TEMPLATE else "must be replaced"
    return f"{', '.join([*names[:FEW], *more])} in {places} {must}"


def is_template(deployment: ServingDeployment) -> bool:
    """Whether a program such as envsubst or Helm must fill the file before it is applied."""
    return ProblemKind.TEMPLATE in by_kind(placeholders_in(deployment))


def by_kind(texts: Iterable[tuple[Place, str]]) -> dict[ProblemKind, list[tuple[Place, str]]]:
    """Placeholders with their places, by the key of LEVELS."""
    kinds: dict[ProblemKind, list[tuple[Place, str]]] = {}
    for place, text in texts:
        kind = ProblemKind.OTHER if _is_valid(text) else kind_of(text)
        kinds.setdefault(kind, []).append((place, text))
    return kinds


def placeholders_in(deployment: ServingDeployment) -> Iterator[tuple[Location, str]]:
    """The placeholders in the namespace and the images, with their places."""
    namespace = deployment.root.at("metadata", "namespace").value
    if isinstance(namespace, str) and (text := placeholder(namespace)):
        yield Location("", "manifest", ("metadata", "namespace")), text
    for component in deployment.components:
        pod = deployment.pods[component.name]
        main = pod.containers[0].cursor["image"].path
        for image in _images(pod.cursor):
            is_main = deployment.is_graph or image.path == main
            location = (
                Location(component.name, "field", ("main", "image"))
                if is_main
                else Location("", "manifest", image.path)
            )
            yield from ((location, text) for text in image_placeholders(str(image.value)))


def _images(cursor: Cursor) -> Iterator[Cursor]:
    """The images of all containers below a part of the manifest."""
    if isinstance(cursor.value, dict):
        for key, child in cursor.entries():
            if key == "image" and isinstance(child.value, str):
                yield child
            yield from _images(child)
    elif isinstance(cursor.value, list):
        for child in cursor.items():
            yield from _images(child)
