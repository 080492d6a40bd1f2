"""Facts of images: their tags, releases and versions, and which of them NVIDIA has published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from packaging.version import Version

from penstock.checks.rules.versions.placeholders import hides_version
from penstock.engines.flags import load
from penstock.engines.releases import RELEASES, Release
from penstock.engines.value_history import first_version
from penstock.graph.image_reference import image_problem
from penstock.manifests.deployment import WORKERS
from penstock.manifests.fields import stored, stored_releases
from penstock.manifests.pods import V1BETA1
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import (
    SEMVER,
    dynamo_version,
    is_preview,
    newer_than_known,
    shown,
    software,
    tag_of,
)
from penstock.serving.worker import Worker

NVIDIA = "nvcr.io/nvidia/ai-dynamo/"
# Settings with which the engine loads another class than config.json names.
_OTHER_CLASS = ("hf-overrides", "json-model-override-args", "model-impl")
_PLUGINS = ("VLLM_PLUGINS", "SGLANG_EXTERNAL_MODEL_PACKAGE")


def is_version(image: str) -> bool:
    """Whether the image's tag is a version of three numbers, with or without a suffix."""
    return bool(SEMVER.match(tag_of(image) or ""))


def is_reported(image: str) -> bool:
    """Whether PS909 reports a placeholder for the version, or PS784 a malformed reference."""
    return hides_version(image) or bool(image_problem(image))


def with_tag(image: str, tag: str) -> str | None:
    """The image with another tag; None if its tag is not a version, or if a digest follows."""
    old = tag_of(image) or ""
    return image.removesuffix(old) + tag if SEMVER.fullmatch(old) and "@" not in image else None


def retagged(image: str, tag: str | None) -> str | None:
    """As `with_tag`; None also if the image's tag has a suffix, as that of a build for a model."""
    has_suffix = "-" in (tag_of(image) or "")
    return None if has_suffix or tag is None else with_tag(image, tag)


def of_release(image: str, version: tuple[int, int]) -> Mapping[str, str]:
    """`Fix.fields` with the newest tag of a release such as (1, 6); empty as for `with_tag`, or if
    these checks do not know the release."""
    release = RELEASES.get(shown(version))
    changed = with_tag(image, release.dynamo) if release else None
    return {"main/image": changed} if changed else {}


def stated_releases(deployment: ServingDeployment) -> Mapping[str, tuple[int, int]]:
    """The releases of Dynamo that the images of workers and frontends state, by component."""
    frontends = deployment.frontend_components
    versions = {
        component.name: dynamo_version(deployment.pods[component.name])
        for component in deployment.components
        if component.role in WORKERS or component in frontends
    }
    return {name: version for name, version in versions.items() if version is not None}


def newest_unknown(deployment: ServingDeployment) -> tuple[Version, str, str, str] | None:
    """(version, program, version as which it is judged, component) of the newest image that is
    newer than the known releases; None if there is none. It stands for all of them."""
    unknown = [
        (*newer, name)
        for name, pod in deployment.pods.items()
        # PS912 reports tags that are not published.
        if nearest_published(pod.image) is None and (newer := newer_than_known(pod)) is not None
    ]
    return max(unknown, default=None)


def first_with_v1beta1() -> str:
    """The first release whose operator has v1beta1."""
    return next(release for release in stored_releases() if V1BETA1 in stored(release))


def needed_version(deployment: ServingDeployment, worker: Worker) -> str | None:
    """The first version of the engine that has the model's class; None if it is not known, or if
    the engine may not be the image's, or loads another class."""
    facts = deployment.facts_of(worker)
    first = first_version(worker.engine, facts.architecture) if facts is not None else None
    return None if first is None or _may_differ(worker) else first


def _may_differ(worker: Worker) -> bool:
    overrides = any(worker.get(key) is not None for key in _OTHER_CLASS)
    plugins = any(worker.env(name) for name in _PLUGINS)
    return overrides or plugins or "pip install" in str(worker.pod.cursor.value)


def engine_version(worker: Worker) -> Version | None:
    """The engine's version in NVIDIA's image: for a build between releases, in the later one.
    None for an engine that the image does not have, such as llama.cpp."""
    image = software(worker.pod)
    is_nvidia = worker.pod.image.startswith(NVIDIA) and worker.engine in image.engines
    if not is_nvidia or image.stated is None or not image.dynamo:
        return None
    if image.later is not None:
        return Version(getattr(image.later, worker.engine.value))
    return image.engines[worker.engine][0]


def release_with(worker: Worker, version: str) -> Release:
    """The first release with at least this version of the worker's engine."""
    engine = worker.engine.value
    return next(r for r in RELEASES.values() if Version(getattr(r, engine)) >= Version(version))


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
