"""The tags of NVIDIA's images, from engines/data/published_tags.json."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from penstock.engines.flags import load
from penstock.serving.versions import is_preview

TABLE = "published_tags.json"
_IMAGE = re.compile(r"nvcr\.io/nvidia/ai-dynamo/([\w-]+):([^@]+)")
# A release with a suffix. NVIDIA's own suffixes are such as -cuda13, -efa and -amd64.
_TAG = re.compile(
    r"v?(?P<release>(?P<plain>(?P<minor>\d+\.\d+)\.\d+(\.post\d+)?)(?P<variant>([-._].*)?))"
)
# The newest minor releases that may get patches after the date of the list. Older ones never did.
_OPEN = 2


@cache
def _tags(image: str) -> Sequence[str]:
    """The tags of an image, and the releases before the list if the image is as old as the list."""
    tags: Sequence[str] = load(TABLE)["images"].get(image, ())
    is_oldest = bool(tags) and tags[0].startswith(f"{_minors()[0]}.")
    return [*load(TABLE)["releases_before_the_list"], *tags] if is_oldest else tags


@cache
def _parts() -> Sequence[re.Match[str]]:
    """The tags of all images."""
    listed = load(TABLE)["images"].values()
    return [m for tags in listed for tag in tags if (m := _TAG.fullmatch(tag))]


def nearest_published(image: str) -> str | None:
    """For an image whose tag NVIDIA has not published: the nearest tag that it has; else None."""
    parts = _IMAGE.fullmatch(image)
    tag = _TAG.fullmatch(parts[2]) if parts else None
    if parts is None or tag is None or is_preview(tag["variant"]):
        return None
    near = _nearest(tag, _tags(parts[1]))
    return None if near == tag[0] else near


def _nearest(tag: re.Match[str], tags: Sequence[str]) -> str | None:
    """The tag itself, without `v`, if it is or may be published; None: the list does not decide."""
    release, minor = tag["release"], tag["minor"]
    if release in tags:
        return release
    until = [t for t in tags if "-" not in t and _numbers(t)[:2] <= _numbers(minor)]
    if not until or (minor in _minors() and not any(t.startswith(f"{minor}.") for t in until)):
        return None  # PS783 reports an image that the release does not have
    newest, open_minors = max(until, key=_numbers), _minors()[-_OPEN:]
    if _numbers(minor) >= _numbers(open_minors[0]) and _numbers(tag["plain"]) > _numbers(newest):
        return None  # PS910 reports it
    if minor in load(TABLE)["only_plain"] and tag["plain"] in tags:
        is_known = any(part["variant"] == tag["variant"] for part in _parts())
        return release if is_known else tag["plain"]
    near = [t for t in tags if t.startswith(release) or release.startswith(t)]
    return max(near, key=len, default=newest)


@cache
def _minors() -> Sequence[str]:
    """The minor releases of the list, oldest first."""
    return sorted({part["minor"] for part in _parts()}, key=_numbers)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
