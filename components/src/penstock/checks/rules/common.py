"""Functions that rules of several topics use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.checks.finding import Level, RuleResult
from penstock.checks.rule import Check
from penstock.serving.deployment import ServingDeployment
from penstock.serving.versions import NEWEST_RELEASE, dynamo_version, shown


def as_of_newest(check: Check) -> Check:
    """Report the results of ``check`` as warnings for images of other Dynamo versions.

    For rules that use the flag and key tables of the newest Dynamo release.
    """

    def checked(deployment: ServingDeployment) -> Iterator[RuleResult]:
        for result in check(deployment):
            version = dynamo_version(deployment.pods[result.location.component])
            is_current = version in (None, NEWEST_RELEASE)
            yield (
                result
                if is_current
                else replace(result, message=result.message + as_of(version), level=Level.WARNING)
            )

    return checked


def as_of(version: tuple[int, int] | None) -> str:
    """The suffix of a message about an image of another version than the newest."""
    age = "older" if version is not None and version < NEWEST_RELEASE else "newer"
    return f" (as of Dynamo {shown(NEWEST_RELEASE)}; this image is {age})"
