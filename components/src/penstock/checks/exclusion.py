"""A setting that an engine refuses in some versions because of another setting.

Rules about many such pairs yield exclusions, and `results` makes the results of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.serving.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    # The key at fault, under the engine's name for it.
    key: str
    problem: str
    fix: str
    # Specifiers of the engine's version, if not those of the rule.
    versions: str = ""
    # What differs from the rule's.
    level: Level | None = None
    why: str = ""


def results(worker: Worker, exclusions: Iterable[Exclusion]) -> Iterator[RuleResult]:
    for one in exclusions:
        yield RuleResult(
            location=worker.config_location(one.key),
            message=one.problem,
            fix=Fix(text=one.fix),
            versions=_versions(worker.engine, one.versions) if one.versions else None,
            level=one.level,
            why=one.why,
        )


def _versions(engine: Engine, specifiers: str) -> Versions:
    return Versions(vllm=specifiers) if engine is Engine.VLLM else Versions(sglang=specifiers)
