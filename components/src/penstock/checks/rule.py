"""One rule: its id and texts, and the function that checks a deployment against it.

The rules are rows in `rules/*/rules.yaml`; `checks/registry.py` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    # The versions for which the source was read. `checks/run.py` drops results for others.
    versions: Versions
    check: Check
    # What in the configuration is wrong.
    cause: str = ""
    # What happens then, and when.
    effect: str = ""
    # What to change.
    remedy: str = ""
    # Where the knowledge comes from: an issue, a page, a file of a package.
    source: str = ""
    # A measurement or a case of another deployment. Not part of findings, which are about one file.
    example: str = ""
    # Levels that some results have instead of `level`.
    other_levels: tuple[Level, ...] = ()
    # The engines whose workers it concerns, if not those of `versions`. Empty: all.
    engines: tuple[Engine, ...] = ()
    # When it reports nothing although the cause is there.
    exceptions: str = ""
    # `FILE:LINE` of a user's rule; empty for those of penstock.
    origin: str = ""
    # The id that suppresses this rule and others of its kind; empty: none.
    group: str = ""
    group_title: str = ""

    @property
    def applies_to(self) -> tuple[Engine, ...]:
        """The engines whose workers it concerns; empty: all, or no engine at all."""
        return self.engines or tuple(e for e in Engine if getattr(self.versions, e.value, ""))


def reported_by_reader(_: ServingDeployment) -> Iterable[RuleResult]:
    """The check of a rule that reading the file reports, before there is a deployment."""
    return ()


def reported_by_run(_: ServingDeployment) -> Iterable[RuleResult]:
    """The check of a rule that `checks/run.py` reports while it runs the others."""
    return ()
