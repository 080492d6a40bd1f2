"""Rules about what no release changed apply to old and new images; the others to their releases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.checks.registry import by_id
from penstock.checks.version_range import OPERATOR
from tests.checks.all_cases import cases
from tests.checks.cases_autoscaling import beside
from tests.checks.support import (
    REMOVE,
    check,
    dump,
    is_graph,
    rendered,
    sglang_disagg_dgd,
    trtllm_agg_dgd,
    trtllm_disagg_dgd,
    vllm_agg_dgd,
    vllm_disagg_dgd,
)

TAG = re.compile(r"^(\s+(?:- )?image: \S+:)\d+\.\d+\.\d+$", re.MULTILINE)
OLD, NEW = "0.6.1", "1.7.0"
# Of the rules whose other cases are about some releases only.
ANOTHER_CASE = {"PS404": 1, "PS407": 2, "PS410": 1, "PS440": 2, "PS448": 1}
EVERY_RELEASE = (
    *("PS401", "PS402", "PS403", "PS404", "PS407", "PS408", "PS409", "PS410", "PS412", "PS413"),
    *("PS414", "PS415", "PS416", "PS417", "PS420", "PS421", "PS440", "PS446", "PS448", "PS449"),
    *("PS454", "PS470", "PS501", "PS502", "PS503", "PS504", "PS505", "PS506", "PS507", "PS509"),
    *("PS510", "PS515", "PS516", "PS530", "PS531", "PS533", "PS537", "PS601", "PS603", "PS604"),
    *("PS605", "PS606", "PS607", "PS613", "PS702", "PS714", "PS716", "PS720", "PS727", "PS729"),
    *("PS757", "PS758", "PS766", "PS767", "PS775", "PS801", "PS802", "PS804", "PS805", "PS806"),
    *("PS807", "PS808", "PS811"),
)


def at(text: str, tag: str) -> str:
    """The manifest, or that of a graph, with images of the release."""
    objects = dump(*rendered(text)) if is_graph(text) else text
    tagged, count = TAG.subn(rf"\g<1>{tag}", objects)
    assert count
    return tagged


def levels(text: str, rule: str, tag: str) -> list[str]:
    return [
        str(finding.level) for finding in check(at(text, tag), only=rule) if finding.rule == rule
    ]


@pytest.mark.parametrize("rule", EVERY_RELEASE)
def test_a_rule_without_versions_of_the_image_applies_to_an_old_and_a_new_image(rule: str) -> None:
    versions = by_id(rule).versions
    assert versions.every or versions == OPERATOR
    case = cases()[rule][ANOTHER_CASE.get(rule, 0)]
    for tag in (OLD, NEW):
        assert rule in {
            finding.rule for finding in check(at(case.bad, tag), gpu=case.gpu, only=rule)
        }, tag


@pytest.mark.parametrize(
    ("rule", "case", "expected"),
    [
        ("PS411", 0, {"0.7.1": True, "0.9.1": False}),
        ("PS418", 0, {"0.6.1": False, "0.7.1": True}),
        ("PS419", 0, {"1.3.1": False, "1.4.2": True}),
        ("PS444", 0, {"0.7.1": False, "0.8.1": True, "1.6.1": True, "1.7.0": False}),
        ("PS445", 0, {"0.8.1": False, "0.9.1": True}),
        ("PS450", 0, {"1.3.1": False, "1.4.2": True}),
        ("PS456", 0, {"0.5.1": False, "0.6.1": True}),
        ("PS458", 0, {"0.7.1": False, "0.8.1": True}),
        ("PS459", 0, {"1.1.1": False, "1.2.1": True}),
        ("PS463", 1, {"0.5.1": False, "0.6.1": True}),
        ("PS472", 0, {"0.4.1": True, "1.6.1": True, "1.7.0": False}),
        ("PS518", 0, {"0.4.1": True, "1.5.1": True, "1.6.1": False}),
        ("PS612", 0, {"0.7.1": False, "0.8.1": True, "1.3.1": False}),
        ("PS705", 0, {"1.2.1": False, "1.3.1": True}),
        ("PS706", 0, {"0.7.1": False, "0.8.1": True}),
        ("PS782", 0, {"0.4.1": True, "1.4.2": False}),
        ("PS812", 0, {"1.4.2": False, "1.5.1": True}),
        ("PS813", 0, {"1.0.2": False, "1.1.1": True}),
        ("PS906", 0, {"0.4.1": True, "1.5.1": False}),
    ],
)
def test_a_range_begins_and_ends_with_the_release_that_changed_it(
    rule: str, case: int, expected: Mapping[str, bool]
) -> None:
    one = cases()[rule][case]
    found = {
        tag: rule in {f.rule for f in check(at(one.bad, tag), gpu=one.gpu, only=rule)}
        for tag in expected
    }
    assert found == expected


def test_pools_without_a_transfer_backend_at_a_release_before_1_0() -> None:
    """vLLM's worker had a connector by default then, TensorRT-LLM's never."""
    section = "cache_transceiver_config"
    without = {f"{pool}/{section}": REMOVE for pool in ("prefill", "decode")}
    assert levels(trtllm_disagg_dgd(without), "PS401", "0.9.0") == ["error", "error"]
    text = vllm_disagg_dgd({f"{pool}/kv-transfer-config": REMOVE for pool in ("prefill", "decode")})
    assert levels(text, "PS401", "0.9.0") == []
    assert levels(text, "PS401", "1.0.2") == ["error", "warning"]


@pytest.mark.parametrize(
    ("flag", "name", "expected"),
    [
        ("--dyn-tool-call-parser", "hermess", {"0.9.0": "Use --dyn-tool-call-parser hermes."}),
        ("--dyn-tool-call-parser", "hermes", {"0.9.0": "", "1.7.0": ""}),
        (
            "--dyn-tool-call-parser",
            "kimi_k3",
            {"1.3.1": "Use an image with Dynamo 1.4.", "1.4.2": "", "1.7.0": ""},
        ),
        (
            "--dyn-reasoning-parser",
            "glm45",
            {"0.9.1": "Use an image with Dynamo 1.0.", "1.0.2": ""},
        ),
    ],
)
def test_a_parser_is_one_of_the_release(flag: str, name: str, expected: Mapping[str, str]) -> None:
    args = "dgd/spec/components/worker/podTemplate/spec/containers/main/args"
    text = vllm_agg_dgd({args: ["--model", "Qwen/Qwen3-32B", flag, name]})
    for tag, fix in expected.items():
        fixes = [
            finding.fix.partition(" Replace")[0] for finding in check(at(text, tag), only="PS603")
        ]
        assert fixes == ([fix] if fix else []), tag


def test_a_build_before_a_release_may_have_its_parsers() -> None:
    args = "dgd/spec/components/worker/podTemplate/spec/containers/main/args"
    text = vllm_agg_dgd({args: ["--model", "a/b", "--dyn-tool-call-parser", "kimi_k3"]})
    assert levels(text, "PS603", "1.4.0-kimi-k3-dev.1") == ["note"]
    assert levels(text, "PS603", "1.2.0-own-dev.1") == ["error"]


def test_block_sizes_of_vllms_pools_may_differ_since_nixl_converts_them() -> None:
    sizes = {"prefill/block-size": 16, "decode/block-size": 64}
    text = vllm_disagg_dgd(sizes)
    assert levels(text, "PS413", "0.7.1") == ["error"]  # vLLM 0.11
    assert levels(text, "PS413", "1.6.1") == []


def test_expandable_segments_are_an_error_since_vllm_refuses_them() -> None:
    case = cases()["PS417"][0]
    assert levels(case.bad, "PS417", "1.2.1")[:1] == ["warning"]
    assert levels(case.bad, "PS417", "1.3.1")[:1] == ["error"]


def test_the_message_about_kv_block_size_is_that_of_the_release() -> None:
    case = cases()["PS507"][0]
    (early,) = check(at(case.bad, "1.3.1"), only="PS507")
    (late,) = check(at(case.bad, "1.4.2"), only="PS507")
    assert ("no effect" in early.message, "no effect" in late.message) == (False, True)


def plane(variable: str, value: str) -> str:
    """Only the decode worker has the variable."""
    env = "dgd/spec/components/decode/podTemplate/spec/containers/main/env"
    return trtllm_disagg_dgd({f"{env}/{variable}": {"name": variable, "value": value}})


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("DYN_REQUEST_PLANE", "nats", {"0.7.1": 0, "0.8.1": 1, "1.7.0": 1}),
        # The event plane was nats by default, so that the others have it too.
        ("DYN_EVENT_PLANE", "nats", {"1.1.1": 0, "1.2.1": 1, "1.7.0": 1}),
        ("DYN_REQUEST_PLANE", "http", {"0.7.1": 0, "1.2.1": 0, "1.3.1": 1}),
        ("DYN_REQUEST_PLANE", "tpc", {"0.7.1": 0, "0.8.1": 1, "1.7.0": 1}),
    ],
)
def test_planes_are_compared_with_the_defaults_of_the_release(
    variable: str, value: str, expected: Mapping[str, int]
) -> None:
    text = plane(variable, value)
    assert {tag: len(levels(text, "PS512", tag)) for tag in expected} == expected


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("enable_power_awareness", False, {"1.4.2": ["warning"], "1.5.1": []}),
        ("batch_scheduling", {}, {"1.6.1": ["warning"], "1.7.0": []}),
        ("no_operation", True, {"1.1.1": [], "1.2.1": ["warning"]}),
        ("prophet_window_size", 0, {"1.5.1": [], "1.6.1": ["error"]}),
        ("min_endpoints", 1, {"1.1.1": ["warning"], "1.7.0": ["warning"]}),
    ],
)
def test_a_field_of_the_planner_is_one_of_the_release(
    field: str, value: Any, expected: Mapping[str, list[str]]
) -> None:
    text = beside(**{field: value})
    assert {tag: levels(text, "PS811", tag) for tag in expected} == expected


def test_a_smaller_tp_of_decode_is_an_error_before_vllm_0_14() -> None:
    def pools(prefill: int, decode: int) -> str:
        sizes = {"prefill/tensor-parallel-size": prefill, "decode/tensor-parallel-size": decode}
        return vllm_disagg_dgd(sizes)

    assert levels(pools(2, 1), "PS446", "0.8.1") == ["error"]  # vLLM 0.12
    assert levels(pools(2, 1), "PS446", "1.6.1") == []
    assert levels(pools(1, 2), "PS446", "0.8.1") == []


def test_the_default_backend_of_an_old_image_is_ucx() -> None:
    """Images before 0.8 set TRTLLM_USE_UCX_KVCACHE."""
    key = "cache_transceiver_config/backend"
    text = trtllm_disagg_dgd({f"prefill/{key}": "DEFAULT", f"decode/{key}": "UCX"})
    assert levels(text, "PS402", "0.7.1") == []
    assert levels(text, "PS402", "0.8.1") == ["error"]


def test_sglang_uses_mooncake_by_default_in_every_release() -> None:
    none = {"decode/disaggregation-transfer-backend": REMOVE}
    text = sglang_disagg_dgd(none)
    for tag in (OLD, NEW):
        assert levels(text, "PS401", tag) == ["note"], tag
    assert levels(trtllm_agg_dgd(), "PS401", NEW) == []
