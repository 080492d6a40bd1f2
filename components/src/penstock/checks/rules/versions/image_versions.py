"""Rules about versions: image tags, mixed releases and deprecated APIs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.version import Version

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.versions.placeholders import hides_version
from penstock.checks.rules.versions.published_tags import nearest_published
from penstock.engines.releases import RELEASES
from penstock.engines.settings import Location
from penstock.image_reference import image_problem
from penstock.manifests.deployment import Component, Role
from penstock.manifests.fields import stored, stored_releases
from penstock.manifests.pods import V1ALPHA1, V1BETA1
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import (
    DEPLOYED_RELEASE,
    SEMVER,
    dynamo_version,
    newer_than_known,
    shown,
    tag_of,
)
from penstock.serving.worker import WORKERS

NVIDIA = re.compile(r"nvcr\.io/nvidia/ai-dynamo/")
UPDATE = "Update penstock, or check the findings against the release notes."


def unknown_version(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        pod = deployment.pods[component.name]
        if (
            pod.cursor["runtimeVersionOverride"].value
            or not pod.image
            or component.role is Role.OTHER
        ):
            continue
        tag = tag_of(pod.image)
        is_version = tag is not None and SEMVER.match(tag)
        if is_version or hides_version(pod.image) or image_problem(pod.image):
            continue  # PS909 reports placeholders, PS784 malformed references
        yield RuleResult(
            location=Location(component.name, "field", ("main", "image")),
            message=f"the tag of {pod.image} is not a version, and runtimeVersionOverride is unset",
            fix=Fix(
                text="Set runtimeVersionOverride to the Dynamo version in the image.",
                fields={"runtimeVersionOverride": "1.6.1"},
            ),
            level=Level.NOTE if deployment.api_version == V1ALPHA1 else None,
        )


def bad_override(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        value = deployment.pods[component.name].cursor["runtimeVersionOverride"].value
        if value is not None and not re.fullmatch(r"\d+\.\d+\.\d+", str(value)):
            yield RuleResult(
                location=Location(component.name, "field", ("runtimeVersionOverride",)),
                message=f"runtimeVersionOverride {value!r} is not N.N.N",
                fix=Fix(
                    text="Write a version of three numbers, such as 1.6.1.",
                    fields={"runtimeVersionOverride": "1.6.1"},
                ),
            )


def mixed_pools(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        first, second = prefill.component.image, decode.component.image
        if first != second:
            versions = dynamo_version(prefill.pod), dynamo_version(decode.pod)
            is_same = None not in versions and versions[0] == versions[1]
            # Propose the image whose version is known; of two known ones, the newer.
            is_decode_newer = versions[1] is not None and versions[1] > (versions[0] or (0, 0))
            image, other = (second, prefill) if is_decode_newer else (first, decode)
            yield RuleResult(
                location=other.location("field", "main", "image"),
                message=f"{decode.name} runs {second}, {prefill.name} runs {first}",
                fix=Fix(
                    text="Use the same image for both pools.",
                    fields={"main/image": image},
                    graph={f"{other.name}.image": image},
                ),
                level=Level.NOTE if is_same else None,
            )


def _release(version: tuple[int, int]) -> int:
    """A number that counts releases: 1.0 followed 0.9."""
    return 10 * version[0] + version[1]


def frontend_skew(deployment: ServingDeployment) -> Iterable[RuleResult]:
    workers = {w.name: v for w in deployment.workers if (v := dynamo_version(w.pod)) is not None}
    for component in deployment.with_role(Role.FRONTEND):
        version = dynamo_version(deployment.pods[component.name])
        for name, other in workers.items() if version else ():
            if version is not None and abs(_release(version) - _release(other)) > 2:
                older = name if other < version else component.name
                yield RuleResult(
                    location=Location(older, "field", ("main", "image")),
                    message=f"{component.name} runs Dynamo {shown(version)} and {name} "
                    f"{shown(other)}: more than two releases apart",
                    fix=_release_of(deployment.component(older), max(version, other)),
                )


def _release_of(component: Component, version: tuple[int, int]) -> Fix:
    """The component's image with the newest tag of a release that these checks know."""
    text = f"Use Dynamo {shown(version)} in all components."
    tag = tag_of(component.image)
    release = RELEASES.get(shown(version))
    if release is None or tag is None or not SEMVER.fullmatch(tag):
        return Fix(text=text)
    image = component.image.removesuffix(tag) + release.dynamo
    return Fix(text=text, fields={"main/image": image})


def mixed_releases(deployment: ServingDeployment) -> Iterable[RuleResult]:
    seen = {
        component.name: version
        for component in deployment.components
        if component.role in (*WORKERS, Role.FRONTEND)
        and (version := dynamo_version(deployment.pods[component.name])) is not None
    }
    if len(set(seen.values())) > 1:
        newest = max(seen.values())
        for name, version in seen.items():
            if version != newest:
                yield RuleResult(
                    location=Location(name, "field", ("main", "image")),
                    message=f"{name} runs Dynamo {shown(version)}, other components run "
                    f"{shown(newest)}",
                    fix=_release_of(deployment.component(name), newest),
                )


def too_old(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        version = dynamo_version(deployment.pods[component.name])
        if version is None or not NVIDIA.search(component.image) or component.role not in WORKERS:
            continue
        if version < (1, 5):
            yield RuleResult(
                location=Location(component.name, "field", ("main", "image")),
                message=f"{component.image} is older than Dynamo 1.5",
                fix=_release_of(component, DEPLOYED_RELEASE),
            )


def old_api(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.api_version == V1ALPHA1:
        since = next(release for release in stored_releases() if V1BETA1 in stored(release))
        update = f"Update the operator to {since} or later. Then use"
        verb = "Use" if deployment.operator >= Version(since) else update
        yield RuleResult(
            location=Location("", "manifest", ("apiVersion",)),
            message="nvidia.com/v1alpha1 is deprecated since Dynamo 1.5",
            fix=Fix(text=f"{verb} nvidia.com/v1beta1 with spec.components and podTemplate."),
        )


def ignored_fields(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        cursor = deployment.pods[component.name].cursor
        for field in ("autoscaling", "dynamoNamespace"):
            if deployment.api_version == V1ALPHA1 and not cursor[field].is_absent:
                yield RuleResult(
                    location=Location(component.name, "field", (field,)),
                    message=f"the operator ignores {field}",
                    fix=Fix(text=f"Remove {field}; scale with a scaling adapter and an HPA."),
                    # The operator itself sets the namespace.
                    level=Level.NOTE if field == "dynamoNamespace" else None,
                )


def newer_image(deployment: ServingDeployment) -> Iterable[RuleResult]:
    newer = {
        name: newer_than_known(pod)
        for name, pod in deployment.pods.items()
        if nearest_published(pod.image) is None  # PS912 reports it
    }
    found = [(*one, name) for name, one in newer.items() if one is not None]
    if found:  # one result: the same is true of all images
        version, program, known, component = max(found)
        yield RuleResult(
            location=Location(component, "field", ("main", "image")),
            message=f"the image has {program} {version}, which penstock does not know; it is "
            f"judged as {known}",
            fix=Fix(text=UPDATE),
        )
    operator, known = deployment.operator, stored_releases()[-1]
    if operator.release[:2] > Version(known).release:
        yield RuleResult(
            location=Location("", "manifest", ("apiVersion",)),
            message=f"the operator is {operator}, whose CRD penstock does not know; it is judged "
            f"as {known}",
            fix=Fix(text=UPDATE),
        )
