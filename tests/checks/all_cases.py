"""The cases of all rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from tests.checks.support import Case

# In this order, as the first case of a rule is the example of its page. The modules engine,
# parallelism and deployment include those of their parts.
MODULES = (
    *("engine", "engine_dry_run", "flag_limits", "autoscaling", "parallelism", "memory", "routing"),
    *("corrections", "known_issues", "kv_connectors", "engine_kernels", "versions_of_values"),
    *("exclusions", "documented", "entry_points", "image_contents", "pod_objects", "reported"),
)


@cache
def cases() -> Mapping[str, tuple[Case, ...]]:
    """Rule id → its cases. To write their files takes seconds, which the collection need not wait
    for."""
    by_rule: dict[str, list[Case]] = {}
    for name in MODULES:
        for case in import_module(f"tests.checks.cases_{name}").CASES:
            by_rule.setdefault(case.rule, []).append(case)
    return {rule: tuple(of_rule) for rule, of_rule in by_rule.items()}
