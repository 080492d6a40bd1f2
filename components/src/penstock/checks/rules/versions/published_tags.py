"""The rule about tags of NVIDIA's images, from engines/data/published_tags.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from penstock.checks.finding import Fix, RuleResult
from penstock.engines.flags import load
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment

TABLE = "published_tags.json"
_IMAGE = re.compile(r"nvcr\.io/nvidia/ai-dynamo/([\w-]+):([^@]+)")
# A release, with variants of the kinds that NVIDIA publishes.
_TAG = re.compile(
    r"(?P<plain>(?P<minor>\d+\.\d+)\.(?P<patch>\d+)(\.post\d+)?)"
    r"(?P<variant>(-(cuda\d+|efa|amd64|arm64))*)"
)
# The newest minor releases that may get patches after the date of the list. Older ones never did.
_OPEN = 2


@cache
def _tags() -> Mapping[str, Sequence[str]]:
    """Image → its tags."""
    found: Mapping[str, Sequence[str]] = load(TABLE)["images"]
    return found


@cache
def _parts() -> Sequence[re.Match[str]]:
    """The tags of all images."""
    return [m for tags in _tags().values() for tag in tags if (m := _TAG.fullmatch(tag))]


def nearest_published(image: str) -> str | None:
    """For an image whose tag NVIDIA has not published: the nearest tag that it has; else None."""
    found = _IMAGE.fullmatch(image)
    tag = _TAG.fullmatch(found[2]) if found else None
    tags = _tags().get(found[1], ()) if found else ()
    same = [one for one in tags if tag and one.startswith(f"{tag['minor']}.")]
    if tag is None or not same or tag[0] in tags:
        return None  # PS783 reports an image that the release does not have
    if tag["minor"] in load(TABLE)["only_plain"] and tag["plain"] in tags:
        is_known = any(one["variant"] == tag["variant"] for one in _parts())
        return None if is_known else tag["plain"]
    newest = max((one for one in same if "-" not in one), key=_numbers)
    if tag["minor"] in _open() and _numbers(tag["plain"]) > _numbers(newest):
        return None  # PS910 reports it
    near = [one for one in same if one.startswith(tag[0]) or tag[0].startswith(one)]
    return max(near, key=len, default=newest)


def _open() -> Sequence[str]:
    """The minor releases that may have newer patches than the list."""
    minors = sorted({one["minor"] for one in _parts()}, key=_numbers)
    return minors[-_OPEN:]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def unpublished_tag(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        image = deployment.pods[component.name].image
        if (tag := nearest_published(image)) is not None:
            name, _, given = image.rpartition(":")
            yield RuleResult(
                location=Location(component.name, "field", ("main", "image")),
                message=f"NVIDIA has published no tag {given} of {name.rpartition('/')[2]}",
                fix=Fix(text=f"Use {tag}.", fields={"main/image": f"{name}:{tag}"}),
            )
