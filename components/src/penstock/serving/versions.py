"""Dynamo's version in a pod, from runtimeVersionOverride or the image tag."""

from __future__ import annotations

import re

from penstock.manifests.pods import Pod

SEMVER = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)([-+.].*)?$")
# The newest Dynamo release that penstock knows.
NEWEST_RELEASE, NEWEST_VERSION = (1, 6), "1.6.1"


def dynamo_version(pod: Pod) -> tuple[int, int] | None:
    """Dynamo's version in the pod: runtimeVersionOverride, otherwise a version in the image tag."""
    override = pod.cursor["runtimeVersionOverride"].value
    text = override if isinstance(override, str) else tag_of(pod.image)
    found = SEMVER.match(text or "")
    return (int(found[1]), int(found[2])) if found else None


def tag_of(image: str) -> str | None:
    """The tag, None for a digest or no tag."""
    if "@" in image:
        return None
    name = image.rsplit("/", 1)[-1]
    return name.partition(":")[2] or None


def shown(version: tuple[int, int]) -> str:
    """`1.6` of (1, 6)."""
    return ".".join(map(str, version))
