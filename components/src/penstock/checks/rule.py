"""One rule: what it is called, why it exists, and the function that judges a deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checks.finding import Level, RuleResult

if TYPE_CHECKING:
    from penstock.serving.deployment import ServingDeployment

Judge = Callable[["ServingDeployment"], Iterable[RuleResult]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """``cause``, ``effect`` and ``remedy`` are sentences of the README and of `--explain`;
    ``source`` says where the knowledge comes from: an issue, a page, a file of a package."""

    id: str
    title: str
    level: Level
    cause: str
    effect: str
    remedy: str
    source: str
    judge: Judge


def nothing(_: ServingDeployment) -> Iterable[RuleResult]:
    """The judge of rules that reading a file reports, before there is a deployment."""
    return ()
