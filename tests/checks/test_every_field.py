"""No finding rests on an invalid value, whatever field has it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.checks.support import TRTLLM_DISAGG, check, dump
from tests.graph.test_every_field import WRONG, Path, fields, kind_of

# The planner itself is valid, and scales both pools.
OF_PLANNER = "PS808"


@cache
def of_the_sound_graph() -> set[tuple[str, str]]:
    return {(finding.rule, finding.message) for finding in check(dump(dict(TRTLLM_DISAGG)))}


def with_value(path: Path, value: Any) -> str:
    values = section = json.loads(json.dumps(TRTLLM_DISAGG))
    for step in path[:-1]:
        section = section.setdefault(step, {})
    section[path[-1]] = value
    return dump(values)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if len(path) == 1 else [pytest.mark.nightly], id=".".join(path))
        for path in fields()
    ],
)
def test_an_invalid_value_adds_no_finding_but_its_own(path: Path) -> None:
    findings = check(with_value(path, WRONG[kind_of(path)][0]))
    place = ".".join(path)
    assert [f for f in findings if f.rule == "PS002" and f.place.startswith(path[0])], place
    others = {(f.rule, f.message) for f in findings if f.rule != "PS002"}
    assert {rule for rule, _ in others - of_the_sound_graph()} <= {OF_PLANNER}
