"""The cases of all rules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tests.checks.support import Case


@cache
def cases() -> Mapping[str, tuple[Case, ...]]:
    """Rule id → its cases. To write their files takes seconds, which the collection need not wait
    for."""
    from tests.checks import (
        cases_autoscaling,
        cases_corrections,
        cases_documented,
        cases_engine,
        cases_engine_dry_run,
        cases_engine_kernels,
        cases_entry_points,
        cases_exclusions,
        cases_flag_limits,
        cases_image_contents,
        cases_known_issues,
        cases_kv_connectors,
        cases_memory,
        cases_parallelism,
        cases_pod_objects,
        cases_reported,
        cases_routing,
        cases_versions_of_values,
    )

    all_cases = (
        *cases_engine.CASES,
        *cases_engine_dry_run.CASES,
        *cases_flag_limits.CASES,
        *cases_autoscaling.CASES,
        *cases_parallelism.CASES,
        *cases_memory.CASES,
        *cases_routing.CASES,
        *cases_corrections.CASES,
        *cases_known_issues.CASES,
        *cases_kv_connectors.CASES,
        *cases_engine_kernels.CASES,
        *cases_versions_of_values.CASES,
        *cases_exclusions.CASES,
        *cases_documented.CASES,
        *cases_entry_points.CASES,
        *cases_image_contents.CASES,
        *cases_pod_objects.CASES,
        *cases_reported.CASES,
    )
    return {
        rule: tuple(c for c in all_cases if c.rule == rule) for rule in {c.rule for c in all_cases}
    }
