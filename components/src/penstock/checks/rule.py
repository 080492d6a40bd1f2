"""One rule: its id and texts, and the function that checks a deployment against it.

`@rule(...)` turns that function into a `Rule`; `checks/registry.py` collects the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from penstock.checks.finding import Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine

if TYPE_CHECKING:
    from penstock.serving.deployment import ServingDeployment

Check = Callable[["ServingDeployment"], Iterable[RuleResult]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The texts are printed by `penstock check --explain` and on the rule's page of the site."""

    id: str
    # A noun phrase or a short statement of the problem.
    title: str
    level: Level
    # What in the configuration is wrong.
    cause: str
    # What happens then, and when.
    effect: str
    # What to change.
    remedy: str
    # Where the knowledge comes from: an issue, a page, a file of a package.
    source: str
    # The versions for which the source was read. `checks/run.py` drops results for others.
    versions: Versions
    check: Check
    # A measurement or a case of another deployment. Not part of findings, which are about one file.
    example: str = ""
    # Levels that some results have instead of `level`.
    other_levels: tuple[Level, ...] = ()
    # The engines whose workers it concerns, if not those of `versions`. Empty: all.
    engines: tuple[Engine, ...] = ()
    # When it reports nothing although the cause is there.
    exceptions: str = ""

    @property
    def applies_to(self) -> tuple[Engine, ...]:
        """The engines whose workers it concerns; empty: all, or no engine at all."""
        return self.engines or tuple(e for e in Engine if getattr(self.versions, e.value, ""))


def rule(
    *,
    id: str,  # noqa: A002  the field's name
    title: str,
    level: Level,
    cause: str,
    effect: str,
    remedy: str,
    source: str,
    versions: Versions,
    example: str = "",
    other_levels: tuple[Level, ...] = (),
    engines: tuple[Engine, ...] = (),
    exceptions: str = "",
) -> Callable[[Check], Rule]:
    """Declare the decorated function as the check of a rule."""

    def declare(check: Check) -> Rule:
        return Rule(
            id=id,
            title=title,
            level=level,
            cause=cause,
            effect=effect,
            remedy=remedy,
            source=source,
            versions=versions,
            check=check,
            example=example,
            other_levels=other_levels,
            engines=engines,
            exceptions=exceptions,
        )

    return declare


def reported_by_reader(_: ServingDeployment) -> Iterable[RuleResult]:
    """The check of a rule that reading the file reports, before there is a deployment."""
    return ()


def reported_by_run(_: ServingDeployment) -> Iterable[RuleResult]:
    """The check of a rule that `checks/run.py` reports while it runs the others."""
    return ()


def rules_of(modules: Iterable[ModuleType]) -> tuple[Rule, ...]:
    """The rules that the modules define, in the order of the modules and their source lines."""
    return tuple(
        value for module in modules for value in vars(module).values() if isinstance(value, Rule)
    )
