"""The versions for which the fact behind a rule was verified, and whether an image has one of them.

`checks/run.py` applies them to the results of every rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from packaging.version import Version

from penstock.engines.flag_history import Presence
from penstock.engines.releases import DEPLOYED, NEWEST, OLDEST, RELEASES, following
from penstock.manifests.deployment import Engine
from penstock.serving.versions import TITLES, Software

# An image without a version is assumed to be one of so many newest releases.
RECENT = 3
NAMES = {
    "dynamo": "Dynamo",
    "operator": "Dynamo operator",
    **{engine.value: title for engine, title in TITLES.items()},
}


class Fit(StrEnum):
    """Whether an image has a version of the range."""

    # The image has a version of the range, or every known version is in the range.
    INSIDE = "inside"
    # The image has no version of the range.
    OUTSIDE = "outside"
    # The image has no version of the range, which begins later.
    EARLIER = "earlier"
    # A build between two releases, of which only the one before is in the range.
    BETWEEN = "between"
    # The image states no version, and the range has the newest releases, or all that it may be.
    ASSUMED = "assumed"
    # The image states no version, and only the newest release is in the range.
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions whose behavior a rule is about, as PEP 440 specifiers of each program, such as
    `>=1.4,<1.6`. Empty: the fact does not depend on it. The specifiers of an engine count
    only for components that run it.

    A limit is a release that changed the behavior, never the last one that was read: later
    images are judged as the newest known release.
    """

    dynamo: str = ""
    # The release of the operator, which does not depend on the image.
    operator: str = ""
    trtllm: str = ""
    vllm: str = ""
    sglang: str = ""
    # For facts that hold in every version: why they do. No range is given then.
    every: str = ""
    # Whether an image of one's own, without a version, may differ: it may have more flags.
    of_releases_only: bool = False

    def __post_init__(self) -> None:
        if bool(self.every) == any(text for _, text in self._all()):
            raise ValueError("give either ranges or the reason why the fact holds in every version")

    def fit(self, image: Software, engine: Engine | None, operator: Version) -> Fit:
        """For a component with this image that runs ``engine``, if any, under an operator."""
        if self.operator and not contains(self.operator, operator):
            return Fit.OUTSIDE
        limits = [(name, text) for name, text in self._given(engine) if name != "operator"]
        fits = {_fit(name, text, image) for name, text in limits}
        if self.of_releases_only and not image.is_stated:
            fits = {Fit.ASSUMED if fit is Fit.INSIDE else fit for fit in fits}
        ranked = (Fit.OUTSIDE, Fit.EARLIER, Fit.BETWEEN, Fit.DOUBTFUL, Fit.ASSUMED, Fit.INSIDE)
        return next((fit for fit in ranked if fit in fits), Fit.INSIDE)

    def text(self, engine: Engine | None = None) -> str:
        """`Dynamo 1.4 to 1.6, vLLM 0.26.0 to 0.31.0`, or only what counts for an engine."""
        if self.every:
            return f"every version ({self.every})"
        limits = self._given(engine) if engine else [(n, t) for n, t in self._all() if t]
        return ", ".join(f"{NAMES[name]} {_span(name, text)}" for name, text in limits)

    def _given(self, engine: Engine | None) -> list[tuple[str, str]]:
        """The specifiers that count for a component with this engine."""
        names = ("dynamo", "operator", engine.value if engine else "")
        return [(name, text) for name, text in self._all() if name in names and text]

    def _all(self) -> Iterator[tuple[str, str]]:
        for name in NAMES:
            yield name, getattr(self, name)


def contains(specifiers: str, version: Version) -> bool:
    """Whether a version is in a range such as `>=1.4,<1.7`; it may be a pre-release.

    As `SpecifierSet.contains` of packaging, without the 10 ms that its import takes.
    """
    public = Version(version.public) if version.local else version
    return all(_is_within(operator, limit, public) for operator, limit in _limits(specifiers))


@cache
def _limits(specifiers: str) -> tuple[tuple[str, Version], ...]:
    """The operator and the version of each specifier; ValueError for other operators."""
    limits = []
    for specifier in specifiers.split(","):
        operator = next(
            (name for name in (">=", "<=", "<") if specifier.strip().startswith(name)), None
        )
        if operator is None:
            raise ValueError(f"{specifier!r} of {specifiers!r} must begin with >=, <= or <")
        limits.append((operator, Version(specifier.strip().removeprefix(operator))))
    return tuple(limits)


def _is_within(operator: str, limit: Version, version: Version) -> bool:
    if operator == ">=":
        return version >= limit
    if operator == "<=":
        return version <= limit
    # PEP 440: `<1.7` excludes the pre-releases of 1.7, unlike `<1.7rc1`.
    if version.is_prerelease and not limit.is_prerelease:
        return version < limit and Version(version.base_version) != Version(limit.base_version)
    return version < limit


def _fit(name: str, accepted: str, image: Software) -> Fit:
    possible = image.dynamo if name == "dynamo" else image.engines.get(Engine(name), ())
    if not possible or not image.is_stated:
        return _without_version(name, accepted, possible, image)
    version = min(possible[-1], _known(name)[-1])  # a newer image is judged as the newest release
    if not contains(accepted, version):
        return Fit.EARLIER if _begins_after(accepted, version) else Fit.OUTSIDE
    is_between = image.later is not None and name not in image.exact
    later = Version(getattr(image.later, name)) if is_between else version
    return Fit.INSIDE if contains(accepted, later) else Fit.BETWEEN


def _begins_after(accepted: str, version: Version) -> bool:
    return any(limit > version for operator, limit in _limits(accepted) if operator == ">=")


def _without_version(
    name: str, accepted: str, possible: tuple[Version, ...], image: Software
) -> Fit:
    """``possible``: the versions that the flags allow, if they exclude the newest release."""
    known = _known(name)
    if all(contains(accepted, version) for version in known):
        return Fit.INSIDE
    if possible and all(contains(accepted, version) for version in possible):
        return Fit.ASSUMED
    if not contains(accepted, known[-1]):
        return Fit.OUTSIDE
    recent = (contains(accepted, version) for version in known[-RECENT:])
    return Fit.ASSUMED if not possible and all(recent) else Fit.DOUBTFUL


def _known(name: str) -> list[Version]:
    """The versions in the known releases, oldest first."""
    return [Version(getattr(release, name)) for release in RELEASES.values()]


def _span(name: str, text: str) -> str:
    """The first and the last known version in the range: `1.4 to 1.6`, `since 1.4`, `1.4`."""
    versions = {label: getattr(release, name) for label, release in RELEASES.items()}
    inside = [
        label if name in ("dynamo", "operator") else version
        for label, version in versions.items()
        if contains(text, Version(version))
    ]
    if not inside:  # a patch of the release corrects it: `1.6 before 1.6.2`
        return " before ".join(str(limit) for _, limit in _limits(text))
    if inside[-1] in (NEWEST, getattr(RELEASES[NEWEST], name)) and len(inside) < len(versions):
        return f"since {inside[0]}"
    return inside[0] if inside[0] == inside[-1] else f"{inside[0]} to {inside[-1]}"


# Facts that hold in every version, and why.
ARITHMETIC = Versions(every="arithmetic on the file's own values")
AGREEMENT = Versions(every="the pools must agree")
# vLLM and SGLang were compared from the oldest to the newest known release.
UNCHANGED = Versions(every="no release changed it")
KUBERNETES = Versions(every="Kubernetes")
HARDWARE = Versions(every="hardware")
SHELL = Versions(every="shell, YAML and file system")
PENSTOCK = Versions(every="penstock itself")
CRD = Versions(every="the schema of the API version that the file names")
OPERATOR_CRD = Versions(every="the CRD of the operator's release")
NETWORK = Versions(every="UCX, NIXL and RDMA devices")
MODEL_CARD = Versions(every="the model's card")
EVERY_IMAGE = Versions(every="a comparison of the images' own versions")
OPERATOR = Versions(operator=">=1.0")
# The oldest releases that are known: 0.4 of Dynamo, and the engines in its images.
DYNAMO = Versions(every="Dynamo since 0.4")
EVERY_TRTLLM = Versions(every="TensorRT-LLM since 1.0")
EVERY_VLLM = Versions(every="vLLM since 0.10.1")
EVERY_SGLANG = Versions(every="SGLang since 0.5.0")


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
