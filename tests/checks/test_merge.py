"""Findings with the same cause become one, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from penstock.checks.finding import Finding, Level
from penstock.checks.merge import merged
from tests.checks.support import check, sglang_disagg, trtllm_disagg, vllm_disagg, vllm_disagg_dgd

LIMITS = {"engine/config/max-num-batched-tokens": 100}


def finding(component: str, **changes: Any) -> Finding:
    made = Finding(
        rule="PS124",
        level=Level.ERROR,
        file="g.yaml",
        line=1,
        column=1,
        place=f"{component}.x",
        message=f"{component} is too small",
        why="w",
        fix=f"Raise x of {component}.",
        component=component,
    )
    return replace(made, **changes)


def of(rule: str, text: str) -> list[Finding]:
    return [finding for finding in merged(check(text)) if finding.rule == rule]


def test_a_setting_of_all_pools_is_one_finding() -> None:
    (finding,) = of("PS124", vllm_disagg(LIMITS))
    assert [place.component for place in finding.places] == ["prefill", "decode"]
    assert {place.place for place in finding.places} == {"engine.config.max-num-batched-tokens"}
    fixed = {"config": {"max-num-batched-tokens": 256}}
    assert yaml.safe_load(finding.yaml) == {"prefill": fixed, "decode": fixed}


def test_the_same_setting_of_two_pools_is_one_finding_with_both_lines() -> None:
    each = {f"{pool}/config/max-num-batched-tokens": 100 for pool in ("prefill", "decode")}
    (finding,) = of("PS124", vllm_disagg(each))
    lines = [place.line for place in finding.places]
    assert None not in lines
    assert len(set(lines)) == 2


def test_the_yaml_of_a_manifest_has_a_part_for_each_object() -> None:
    each = {f"{pool}/max-num-batched-tokens": 100 for pool in ("prefill", "decode")}
    (finding,) = of("PS124", vllm_disagg_dgd(each))
    headings = [line for line in finding.yaml.splitlines() if line.startswith("# in ")]
    maps = [heading.split("/")[1].rpartition("-")[0] for heading in headings]
    assert maps == ["case-prefill", "case-decode"]


def test_other_values_are_other_causes() -> None:
    each = {
        "prefill/config/max-num-batched-tokens": 100,
        "decode/config/max-num-batched-tokens": 90,
    }
    assert len(of("PS124", vllm_disagg(each))) == 2


def test_a_name_inside_a_flag_is_not_the_component() -> None:
    flags = {f"{pool}/args": ["--nsa-decode-backend", "x"] for pool in ("prefill", "decode")}
    (finding,) = of("PS144", sglang_disagg(flags))
    assert len(finding.places) == 2
    assert "(also" not in finding.message


def test_messages_that_name_the_component_are_merged() -> None:
    (joined,) = merged([finding("prefill"), finding("decode"), finding("worker")])
    assert joined.message == "prefill is too small (also decode and worker)"
    assert joined.fix == "Raise x of prefill. Do the same for decode and worker."
    assert [place.place for place in joined.places] == ["prefill.x", "decode.x", "worker.x"]


def test_what_differs_beyond_the_name_is_not_merged() -> None:
    first = finding("prefill")
    for other in (
        finding("decode", message="decode is too large"),
        finding("decode", fix="Lower x of decode."),
        finding("decode", why="v"),
        finding("decode", level=Level.WARNING),
        finding("decode", rule="PS125"),
        finding("decode", suppressed="known"),
        finding("decode", file="h.yaml"),
        finding("decode", replaces="--x"),
        finding("decode", yaml="decode: 1"),
        # The roles of the names are exchanged: each is about its own pool.
        finding("decode", message="prefill is too small"),
    ):
        assert merged([first, other]) == (first, other)


def test_two_findings_of_one_component_are_two_causes() -> None:
    both = (finding("prefill"), finding("prefill", line=2), finding("decode"))
    assert merged(both) == both


def test_the_findings_of_each_graph_in_a_file_are_one() -> None:
    first, second = ((finding("prefill", line=n), finding("decode", line=n + 1)) for n in (1, 11))
    parts = merged((*first, *second))
    assert [part.line for part in parts] == [1, 11]
    assert [len(part.places) for part in parts] == [2, 2]


def test_fixes_that_contradict_each_other_are_not_merged() -> None:
    one, other = finding("a", yaml="x: {a: 1}"), finding("b", yaml="x: {b: 1}")
    assert len(merged([one, other])) == 1
    assert merged([replace(one, yaml="a: {z: 1}"), replace(other, yaml="b: {z: 1}")])[0].yaml == (
        "a:\n  z: 1\nb:\n  z: 1"
    )


def test_findings_outside_of_components_stay() -> None:
    both = (finding("", place="a"), finding("", place="b"))
    assert merged(both) == both


def test_every_place_of_the_findings_is_kept() -> None:
    findings = check(trtllm_disagg({"engine/config/stream_interval": 20}))
    places = [place for finding in merged(findings) for place in finding.places]
    assert len(places) == len(findings)
