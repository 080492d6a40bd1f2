"""The versions of Dynamo that a graph can target with `dynamo`, and their order."""

from __future__ import annotations

import re
from typing import get_args

from penstock.graph.choices import DynamoVersion

VERSIONS: tuple[str, ...] = get_args(DynamoVersion)
# Of the chart (appVersion) and of penstock's own environment.
DEFAULT: DynamoVersion = "1.6.1"
# The mocker's configuration has sections since then.
OLDEST_MOCKER = (1, 6, 0)
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_IN_TAG = re.compile(r"v?\d+\.\d+\.\d+(?![\d.]*\d)")
Numbers = tuple[int, int, int]


def numbers(version: str) -> Numbers:
    """The release of a version: (1, 7, 0) of 1.7.0.dev20261026."""
    found = _NUMBERS.match(version)
    if found is None:
        raise ValueError(f"{version!r} does not begin with three numbers")
    return int(found[1]), int(found[2]), int(found[3])


def order(version: str) -> tuple[Numbers, bool, str]:
    """A sort key: a pre-release comes before its release."""
    return numbers(version), not is_prerelease(version), version


def is_prerelease(version: str) -> bool:
    return ".dev" in version or "rc" in version


def core(version: str) -> str:
    """The three numbers of a version, as the operator writes it."""
    return ".".join(map(str, numbers(version)))


def minor(version: str) -> str:
    """`1.7` of 1.7.0.dev20261026."""
    return core(version).rpartition(".")[0]


def release_in_tag(image: str) -> str | None:
    """The release that the image's tag begins with, as the operator reads it; None without one."""
    if "@" in image:
        return None
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return core(tag) if _IN_TAG.match(tag) else None


def with_release(image: str, version: str) -> str:
    """The image with the version in its tag, and what follows the old version in the tag kept."""
    name, _, tag = image.rpartition(":")
    rest = re.sub(r"^v?\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", "", tag)
    return f"{name}:{version}{rest}"
