"""The versions of Dynamo and of the engine in a pod, from runtimeVersionOverride or the image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from penstock.engines.releases import NEWEST, RELEASES, Release, following
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import Pod

SEMVER = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)([-+.].*)?$")
# The newest Dynamo release that penstock knows.
NEWEST_RELEASE, NEWEST_VERSION = (1, 6), RELEASES[NEWEST].dynamo
# A suffix that makes another version of it, as in 1.5.0-kimi-k3-dev.1 and 1.7.0.dev20261026.
_PRE_RELEASE = re.compile(r"(^|[-._+])(rc|alpha|beta|dev|pre|preview|nightly)[-._]?\d*([-._]|$)")
# The same version for other hardware, or built again.
_VARIANT = re.compile(r"([-._+](cuda|cu|efa|amd|arm|x86|xpu|post|ubuntu)[\w]*)*")
_NVIDIA = re.compile(r"nvcr\.io/nvidia/ai-dynamo/")
# Dynamo's images, in any registry.
_DYNAMO = re.compile(r"(-runtime|dynamo)[^/]*$|nvidia/ai-dynamo/")
_UNKNOWN_OLD = Version("0")
# Images of an engine without Dynamo, whose tags are versions of the engine.
_ENGINE_IMAGES: Mapping[Engine, re.Pattern[str]] = {
    Engine.VLLM: re.compile(r"(^|/)vllm-openai$"),
    Engine.SGLANG: re.compile(r"(^|/)lmsysorg/sglang$"),
    Engine.TRTLLM: re.compile(r"(^|/)tensorrt-llm/release$"),
}


@dataclass(frozen=True, kw_only=True)
class Software:
    """The versions of one image. Several of one kind: it may be any of them."""

    # Empty if the image states none.
    dynamo: tuple[Version, ...] = ()
    engines: Mapping[Engine, tuple[Version, ...]] = field(default_factory=dict)
    # For a build between two releases, the release after it, whose features it may have already.
    later: Release | None = None
    # False if the versions are only possible.
    is_stated: bool = True


def one_of(releases: tuple[str, ...]) -> Software:
    """An image of one of these releases; nothing states which."""
    found = [RELEASES[name] for name in releases]
    return Software(
        dynamo=tuple(Version(release.dynamo) for release in found),
        engines={
            engine: tuple(Version(getattr(release, engine.value)) for release in found)
            for engine in _ENGINE_IMAGES
        },
        is_stated=False,
    )


def software(pod: Pod) -> Software:
    """What the image of a pod contains, as far as its name and runtimeVersionOverride state it."""
    override = pod.cursor["runtimeVersionOverride"].value
    name, _, tag = _without_digest(pod.image).rpartition(":")
    if not name or "/" in tag:  # the port of a registry
        name, tag = _without_digest(pod.image), ""
    for engine, pattern in _ENGINE_IMAGES.items():
        if pattern.search(name) and not isinstance(override, str):
            version = _parsed(tag)
            return Software(engines={engine: (version,)} if version else {})
    stated = SEMVER.match(override if isinstance(override, str) else tag)
    version = _parsed(stated.group()) if stated else None
    if stated is None or version is None:
        return Software()
    if _minor(version) not in RELEASES and not _DYNAMO.search(name):
        return Software()  # the version of something else
    # An override has no suffix, so that the tag decides.
    suffix = (SEMVER.match(tag) or stated)[4] or ""
    return _of_dynamo(version, is_prerelease=_is_prerelease(suffix, name))


def _of_dynamo(version: Version, *, is_prerelease: bool) -> Software:
    before = _previous(version) if is_prerelease else None
    releases = [r for r in (before, RELEASES.get(_minor(version))) if r is not None]
    is_listed = any(Version(release.dynamo) == version for release in releases)
    if is_listed:  # a pre-release whose engines are known
        releases, is_prerelease = releases[-1:], False
    between = [Version(r.dynamo) for r in (before,) if r is not None and not is_listed]
    engines = {
        engine: tuple(Version(getattr(r, engine.value)) for r in releases)
        for engine in _ENGINE_IMAGES
        if releases
    }
    if version < Version(next(iter(RELEASES))):
        engines = dict.fromkeys(_ENGINE_IMAGES, (_UNKNOWN_OLD,))
    later = following(_minor(version)) if is_prerelease and releases else None
    return Software(
        dynamo=(*between, version), engines=engines, later=RELEASES[later] if later else None
    )


def _is_prerelease(suffix: str, name: str) -> bool:
    """NVIDIA's images of one model may contain a newer engine; own images may have any suffix."""
    of_a_model = bool(_NVIDIA.match(name)) and not _VARIANT.fullmatch(suffix)
    return bool(_PRE_RELEASE.search(suffix)) or of_a_model


def _previous(version: Version) -> Release | None:
    known = list(RELEASES)
    minor = _minor(version)
    if minor not in known:
        return None
    at = known.index(minor)
    return RELEASES[known[at - 1]] if at else None


def _parsed(text: str) -> Version | None:
    """The version at the beginning of a tag, with `.dev` or `.post` but without other suffixes."""
    found = re.match(r"v?\d+(\.\d+)+(([-.]?rc|\.post|\.dev)\d+)*", text)
    try:
        return Version(found.group()) if found else None
    except InvalidVersion:
        return None


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _without_digest(image: str) -> str:
    return image.partition("@")[0]


def dynamo_version(pod: Pod) -> tuple[int, int] | None:
    """Dynamo's release in the pod, such as (1, 6); None if the image does not state it."""
    stated = software(pod).dynamo
    return (stated[-1].major, stated[-1].minor) if stated else None


def tag_of(image: str) -> str | None:
    """The tag, without a digest after it, as the operator reads it; None if there is none."""
    name = _without_digest(image).rsplit("/", 1)[-1]
    return name.partition(":")[2] or None


def shown(version: tuple[int, int]) -> str:
    """`1.6` of (1, 6)."""
    return ".".join(map(str, version))
