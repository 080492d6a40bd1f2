"""The versions of Dynamo and of the engine in a pod, from runtimeVersionOverride or the image.

Without a version, the modules and flags decide which releases a deployment may be written for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from packaging.version import InvalidVersion, Version

from penstock.engines.flag_history import has_history, presence, releases_of
from penstock.engines.flags import flag_table
from penstock.engines.releases import NEWEST, OLDEST, RELEASES, Release, following
from penstock.manifests.deployment import Engine
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment

SEMVER = re.compile(r"^v?(\d+)\.(\d+)\.(\d+)([-+.].*)?$")
# A suffix that makes another version of it, as in 1.5.0-kimi-k3-dev.1 and 1.7.0.dev20261026.
_PRE_RELEASE = re.compile(r"(^|[-._+])(rc|alpha|beta|dev|pre|preview|nightly)[-._]?\d*([-._]|$)")
# The same version for other hardware, or built again.
_VARIANT = re.compile(r"([-._+](cuda|cu|efa|amd|arm|x86|xpu|post|ubuntu)[\w]*)*")
# The first two numbers of the release that penstock deploys.
DEPLOYED_RELEASE = (1, 6)
_NVIDIA = re.compile(r"nvcr\.io/nvidia/ai-dynamo/")
# Dynamo's images, in any registry.
_DYNAMO = re.compile(r"(-runtime|dynamo)[^/]*$|nvidia/ai-dynamo/")
# Images of other programs, with versions of their own: ModelExpress 0.5.1 is not Dynamo 0.5.
_WITH_OWN_VERSIONS = re.compile(r"(^|/)model-?express[^/]*$")
# Images of an engine without Dynamo, whose tags are versions of the engine.
_ENGINE_IMAGES: Mapping[Engine, re.Pattern[str]] = {
    Engine.VLLM: re.compile(r"(^|/)vllm-openai$"),
    Engine.SGLANG: re.compile(r"(^|/)lmsysorg/sglang$"),
    Engine.TRTLLM: re.compile(r"(^|/)tensorrt-llm/release$"),
}


TITLES = {Engine.TRTLLM: "TensorRT-LLM", Engine.VLLM: "vLLM", Engine.SGLANG: "SGLang"}


# NVIDIA's builds before a release, by tag, whose engines are known: releases.data.ts in
# docs/fern/components of ai-dynamo/dynamo.
_BUILDS: Mapping[re.Pattern[str], Mapping[Engine, str]] = {
    re.compile(r"1\.1\.0-dev\.1"): {Engine.VLLM: "0.17.1"},
    re.compile(r"1\.1\.0-dev\.2"): {Engine.TRTLLM: "1.3.0rc9"},
    re.compile(r"1\.2\.0-deepseek-v4-.*dev\.2"): {Engine.VLLM: "0.20.0"},
    re.compile(r"1\.2\.0-deepseek-v4-.*dev\.3"): {Engine.VLLM: "0.20.1"},
    re.compile(r"1\.3\.0-dev\.1"): {
        Engine.VLLM: "0.22.0",
        Engine.TRTLLM: "1.3.0rc17",
        Engine.SGLANG: "0.5.12.post1",
    },
}


@dataclass(frozen=True, kw_only=True)
class Software:
    """The versions of one image. Several of one kind: it may be any of them."""

    # The version as which the image is judged: for a build between two releases, the release before
    # it. Empty if the image states none.
    dynamo: tuple[Version, ...] = ()
    engines: Mapping[Engine, tuple[Version, ...]] = field(default_factory=dict)
    # The version that the image itself states.
    stated: Version | None = None
    # For a build between two releases: the later one, whose features the build may already have.
    later: Release | None = None
    # The engines whose version is nevertheless known.
    exact: frozenset[Engine] = frozenset()
    # False if the versions are only possible.
    is_stated: bool = True


def one_of(releases: tuple[str, ...]) -> Software:
    """An image of one of these releases; nothing states which."""
    entries = [RELEASES[name] for name in releases]
    return Software(
        dynamo=tuple(Version(release.dynamo) for release in entries),
        engines={
            engine: tuple(Version(getattr(release, engine.value)) for release in entries)
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
    if _WITH_OWN_VERSIONS.search(name):
        return Software()
    for engine, pattern in _ENGINE_IMAGES.items():
        if pattern.search(name) and not isinstance(override, str):
            version = _parsed(tag)
            return Software(engines={engine: (version,)}, stated=version) if version else Software()
    stated = SEMVER.match(override if isinstance(override, str) else tag)
    version = _parsed(stated.group()) if stated else None
    if stated is None or version is None:
        return Software()
    if _minor(version) not in RELEASES and not _DYNAMO.search(name):
        return Software()  # the version of something else
    # An override has no suffix, so that the tag decides.
    suffix = (SEMVER.match(tag) or stated)[4] or ""
    image = _of_dynamo(version, is_prerelease=_is_prerelease(suffix, name))
    known = _engines_of_build(tag) if _NVIDIA.match(name) else {}
    return replace(image, engines={**image.engines, **known}, exact=frozenset(known))


def _engines_of_build(tag: str) -> dict[Engine, tuple[Version, ...]]:
    """The engines that differ from those of the release before the build."""
    engines = next((known for build, known in _BUILDS.items() if build.fullmatch(tag)), {})
    return {engine: (Version(version),) for engine, version in engines.items()}


def _of_dynamo(version: Version, *, is_prerelease: bool) -> Software:
    """The nearest release at or below the version, or the oldest."""
    minor, order = _minor(version), list(RELEASES)
    is_before = is_prerelease and version.micro == 0  # 1.6.0-rc1 is not yet 1.6
    until = [
        name for name in order if _key(name) < _key(minor) or (name == minor and not is_before)
    ]
    name = until[-1] if until else OLDEST
    release = RELEASES[name]
    is_between = is_prerelease and name != NEWEST
    nearest = Version(release.dynamo)
    if name == minor:  # a build before 1.6.1 is judged as 1.6.0
        nearest = Version(f"{minor}.{max(version.micro - 1, 0)}") if is_prerelease else version
    return Software(
        dynamo=(nearest,),
        engines={engine: (Version(getattr(release, engine.value)),) for engine in _ENGINE_IMAGES},
        stated=version,
        later=RELEASES[following(minor) or NEWEST] if is_between else None,
    )


def _key(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def newer_than_known(pod: Pod) -> tuple[Version, str, str] | None:
    """(version, name of the program, version as which it is judged) of an image that is newer than
    all known releases, or than those of its minor release; None for other images."""
    image = software(pod)
    if image.stated is None:
        return None
    if image.dynamo:
        name = "Dynamo"
        known = (RELEASES.get(_minor(image.stated)) or RELEASES[NEWEST]).dynamo
    else:
        (engine,) = image.engines
        name, known = TITLES[engine], getattr(RELEASES[NEWEST], engine.value)
    # 0.8.1.post2 is 0.8.1 built again.
    return (image.stated, name, known) if image.stated.release > Version(known).release else None


def _is_prerelease(suffix: str, name: str) -> bool:
    """NVIDIA's images of one model may contain a newer engine; own images may have any suffix."""
    of_a_model = bool(_NVIDIA.match(name)) and not _VARIANT.fullmatch(suffix)
    return is_preview(suffix) or of_a_model


def is_preview(suffix: str) -> bool:
    """Whether a suffix of a tag makes it a build before a release, such as -dev.1."""
    return bool(_PRE_RELEASE.search(suffix))


def _parsed(text: str) -> Version | None:
    """The version at the beginning of a tag, with `.dev` or `.post` but without other suffixes."""
    match = re.match(r"v?\d+(\.\d+)+(([-.]?rc|\.post|\.dev)\d+)*", text)
    try:
        return Version(match.group()) if match else None
    except InvalidVersion:
        return None


def _minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _without_digest(image: str) -> str:
    return image.partition("@")[0]


def dynamo_version(pod: Pod) -> tuple[int, int] | None:
    """Dynamo's release in the pod, such as (1, 6); None if the image does not state it."""
    image = software(pod)
    version = image.stated if image.dynamo else None
    return (version.major, version.minor) if version else None


def tag_of(image: str) -> str | None:
    """The tag, without a digest after it, as the operator reads it; None if there is none."""
    name = _without_digest(image).rsplit("/", 1)[-1]
    return name.partition(":")[2] or None


def shown(version: tuple[int, int]) -> str:
    """`1.6` of (1, 6)."""
    return ".".join(map(str, version))


def possible_releases(deployment: ServingDeployment) -> tuple[str, ...]:
    """The releases that have every module and flag, of those that any release has; oldest first.
    All releases if no release has them together."""
    known = list(RELEASES)
    possible = set(known)
    for component in deployment.components:
        for launch in component.launches:
            module = launch.module or ""
            if (runs := releases_of(module)) is not None:
                possible &= set(known[known.index(runs.first) : known.index(runs.last) + 1])
            table = flag_table(module)
            if table is None or not has_history(module):
                continue
            for flag in table.read(launch.arguments):
                span = presence(module, flag.spelling.partition(".")[0])
                if span is not None:
                    possible &= set(known[known.index(span.first) : known.index(span.last) + 1])
    return tuple(name for name in known if name in possible) or tuple(known)
