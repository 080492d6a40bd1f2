"""The releases that lack what others have, as ranges for the results of rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checks.version_range import Versions
from penstock.engines.flag_history import Presence
from penstock.engines.releases import DEPLOYED, OLDEST, RELEASES, following

EVERY_RELEASE = Versions(dynamo=f">={OLDEST}", of_releases_only=True)
# For an image of NVIDIA, which is one of a release even if its tag is a placeholder.
EVERY_PUBLISHED = Versions(dynamo=f">={OLDEST}")


@dataclass(frozen=True, kw_only=True)
class Absence:
    """Releases that lack a flag or a module."""

    versions: Versions
    # As the end of a message; empty if no release has it.
    since: str = ""
    # Whether an older release had it.
    was_removed: bool = False


def outside(seen: Presence, *, is_parsed: bool) -> Iterator[Absence]:
    """The releases before and after ``seen``. ``is_parsed``: whether the parser of the deployed
    release has it; if not, it is present only up to the release before."""
    if seen.first != OLDEST:
        yield Absence(
            versions=Versions(dynamo=f">={OLDEST},<{seen.first}"),
            since=f" before Dynamo {seen.first}",
        )
    # The sources of a release may name a flag that its parser rejects.
    known = list(RELEASES)
    at = known.index(DEPLOYED)
    is_rejected = not is_parsed and known.index(seen.first) <= at
    last = min(seen.last, known[at - 1], key=known.index) if is_rejected else seen.last
    if (first_without := following(last)) is not None:
        # Pre-releases count, as the next release is one.
        yield Absence(
            versions=Versions(dynamo=f">={first_without}.dev0"),
            since=f" since Dynamo {first_without}",
            was_removed=True,
        )
