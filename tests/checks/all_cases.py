"""The cases of all rules."""

from __future__ import annotations

from tests.checks import (
    cases_autoscaling,
    cases_corrections,
    cases_documented,
    cases_engine,
    cases_engine_kernels,
    cases_entry_points,
    cases_exclusions,
    cases_flag_limits,
    cases_kv_connectors,
    cases_memory,
    cases_parallelism,
    cases_routing,
    cases_versions_of_values,
)
from tests.checks.support import Case

CASES: tuple[Case, ...] = (
    *cases_engine.CASES,
    *cases_flag_limits.CASES,
    *cases_autoscaling.CASES,
    *cases_parallelism.CASES,
    *cases_memory.CASES,
    *cases_routing.CASES,
    *cases_corrections.CASES,
    *cases_kv_connectors.CASES,
    *cases_engine_kernels.CASES,
    *cases_versions_of_values.CASES,
    *cases_exclusions.CASES,
    *cases_documented.CASES,
    *cases_entry_points.CASES,
)
# Of each rule.
FIRST_CASES = {case.rule: case for case in reversed(CASES)}
