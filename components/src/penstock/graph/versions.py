"""The versions of Dynamo that a graph can target with `dynamo`, and their order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from penstock.graph.choices import DynamoVersion

VERSIONS: tuple[str, ...] = get_args(DynamoVersion)
# Of the chart (appVersion) and of penstock's own environment.
DEFAULT: DynamoVersion = "1.6.1"
# Releases whose wheel is on no public index, and the version whose facts are used instead.
WITHOUT_WHEEL: Mapping[str, DynamoVersion] = {"1.6.2": "1.6.1", "1.7.0": "1.7.0.dev20261026"}
# The mocker's configuration has sections since then.
OLDEST_MOCKER = (1, 6, 0)
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
# A suffix that makes another version of it, such as -rc2. The chart has the same condition.
PRE_RELEASE = r"-(rc|alpha|beta|dev|pre|post)[.0-9]*(-|$)"
_TAG = re.compile(rf"(v?)({'|'.join(map(re.escape, VERSIONS))})((?!{PRE_RELEASE})-[A-Za-z].*)?")
Numbers = tuple[int, int, int]


def numbers(version: str) -> Numbers:
    """The release of a version: (1, 7, 0) of 1.7.0.dev20261026."""
    match = _NUMBERS.match(version)
    if match is None:
        raise ValueError(f"{version!r} does not begin with three numbers")
    return int(match[1]), int(match[2]), int(match[3])


def order(version: str) -> tuple[Numbers, bool, str]:
    """A sort key: a pre-release comes before its release."""
    return numbers(version), not is_prerelease(version), version


def is_prerelease(version: str) -> bool:
    return ".dev" in version or "rc" in version


def wheel_of(version: str) -> str:
    """The version whose wheel has the facts about this version: itself, or the nearest one."""
    return WITHOUT_WHEEL.get(version, version)


def about_wheel(version: str) -> str | None:
    """The note of an output that uses facts of another version; None if the version has its own."""
    other = WITHOUT_WHEEL.get(version)
    return other and f"the wheel of {version} is not on PyPI: penstock uses the facts of {other}"


def core(version: str) -> str:
    """The three numbers of a version, as the operator writes it."""
    return ".".join(map(str, numbers(version)))


def minor(version: str) -> str:
    """`1.7` of 1.7.0.dev20261026."""
    return core(version).rpartition(".")[0]


def version_in_tag(image: str) -> str | None:
    """The version in `VERSIONS` that the image's tag is, with a `v` before it and a suffix such as
    `-efa` or without; None for every other tag, as it may be a version of something else."""
    tag = _tag(image)
    return tag[2] if tag else None


def with_version(image: str, version: str) -> str:
    """The image with another version in its tag, whose `v` and suffix are kept."""
    tag = _tag(image)
    if tag is None:
        raise ValueError(f"{image} has no version of Dynamo in its tag")
    name = image.rpartition(":")[0]
    return f"{name}:{tag[1]}{version}{tag[3] or ''}"


def _tag(image: str) -> re.Match[str] | None:
    if "@" in image:
        return None
    return _TAG.fullmatch(image.rsplit("/", 1)[-1].partition(":")[2])
