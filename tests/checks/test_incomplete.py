"""One run reports the errors of a file and everything that does not depend on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from penstock.checks.finding import Finding, Level
from tests.checks.support import (
    REMOVE,
    TRTLLM_DISAGG,
    check,
    trtllm_agg,
    trtllm_disagg,
    vllm_agg,
    vllm_disagg_dgd,
)
from tests.support.command_line import ROOT

# 7 errors and warnings that have nothing to do with the router, and notes.
WRONG: Mapping[str, Any] = {
    "decode/config/stream_interval": 20,
    "decode/config/max_seq_len": 1000,
    "prefill/config/max_batch_size": 9000,
    "decode/config/no_such_key": 1,
    "decode/env/UCX_TLS": "rc",
    "frontend/migration_limit": 0,
    "kv_transfer/timeout_ms": 1000,
}
MAIN = "dgd/spec/components/{}/podTemplate/spec/containers/main"


def rules(text: str) -> dict[str, list[Finding]]:
    findings: dict[str, list[Finding]] = {}
    for finding in check(text):
        findings.setdefault(finding.rule, []).append(finding)
    return findings


def loud(text: str) -> set[tuple[str, str, str]]:
    levels = (Level.ERROR, Level.WARNING)
    return {(f.rule, f.place, f.message) for f in check(text) if f.level in levels}


def invalid(text: str) -> list[str]:
    """Places of the errors of PS002."""
    return [f.place for f in check(text) if f.rule == "PS002" and f.level is Level.ERROR]


@pytest.mark.slow
def test_an_invalid_router_hides_no_other_finding() -> None:
    sound = loud(trtllm_disagg(WRONG))
    assert len({rule for rule, *_ in sound}) >= 6
    broken = loud(trtllm_disagg({**WRONG, "router": {"mode": "kvv"}}))
    assert {finding for finding in broken if finding[0] != "PS002"} == sound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"decode/replicas": "2x"}, "decode.replicas"),
        ({"decode/replicas": "2"}, "decode.replicas"),
        ({"decode/args": "--a 1"}, "decode.args"),
        ({"frontend/replicas": True}, "frontend.replicas"),
        ({"router/replica_syn": True}, "router.replica_syn"),
        ({"hardware/gpus": 3}, "hardware.gpus"),
        ({"gateway": {"limits": {"x": 1}}}, "gateway.limits"),
        ({"engine/device": "tpu"}, "engine.device"),
        ({"infrastructure/events": "kafka"}, "infrastructure.events"),
        ({"prefill/env": [{"name": "A", "value": "b"}]}, "prefill.env"),
    ],
)
def test_other_rules_are_checked_in_spite_of(change: dict[str, Any], place: str) -> None:
    text = trtllm_disagg({**WRONG, **change})
    findings = rules(text)
    assert place in {finding.place for finding in findings["PS002"]}
    assert {"PS601", "PS123"} <= set(findings)
    expected = {finding for finding in loud(text) if finding[0] != "PS002"}
    assert expected <= loud(trtllm_disagg(WRONG))
    (note,) = [finding for finding in findings["PS002"] if finding.level is Level.NOTE]
    assert place in note.message


@pytest.mark.slow
def test_problems_behind_other_problems_are_reported_in_the_same_run() -> None:
    """The model compares two fields only when all others are valid."""
    changes = {
        "router": {"mode": "kvv"},
        "prefill": {**TRTLLM_DISAGG["prefill"], "request_limit": 4},
        "infrastructure": {"requests": "nats"},
    }
    assert invalid(trtllm_disagg(changes)) == ["prefill.request_limit", "router.mode"]


@pytest.mark.slow
def test_a_finding_that_depends_on_the_invalid_value_is_not_reported() -> None:
    """The router's mode decides whether disabled prefix caching is an error."""
    disabled = {"engine/config/kv_cache_config/enable_block_reuse": False}
    assert "PS502" in rules(trtllm_agg(disabled))
    findings = rules(trtllm_agg({**disabled, "router": {"mode": "kvv"}}))
    assert "PS502" not in findings
    assert "PS504" not in findings


def test_a_default_in_place_of_the_invalid_value_is_no_finding() -> None:
    """With the defaults, one replica on no GPU is not what was meant."""
    findings = rules(vllm_agg({"worker/replicas": "many", "worker/gpus": "four"}))
    places = {finding.place for each in findings.values() for finding in each}
    assert not [
        rule for rule in findings if rule != "PS002" for f in findings[rule] if "gpus" in f.place
    ]
    assert {"worker.replicas", "worker.gpus"} <= places
    assert "PS209" not in findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "absent"),
    [
        ({"hardware/nodes": 1, "decode/replicas": "２"}, "PS209"),  # full-width
        ({"hardware/nodes": 1, "decode/replicas": "64"}, "PS209"),
        ({"hardware": "A100"}, "PS431"),
        ({"kv_transfer": "NIXL"}, "PS431"),
        ({"engine/config": 5}, "PS401"),
        ({"decode/config": ["x"]}, "PS123"),
        ({"decode/tp": 64}, "PS205"),
    ],
)
def test_a_finding_about_a_value_that_was_made_up_is_not_reported(
    change: dict[str, Any], absent: str
) -> None:
    findings = rules(trtllm_disagg(change))
    assert "PS002" in findings
    assert absent not in findings


@pytest.mark.parametrize(
    "change", [{"decode/config/pipeline_parallel_size": "abc"}, {"decode/gpus": 9}]
)
def test_a_section_that_was_left_out_is_not_reported_as_missing(change: dict[str, Any]) -> None:
    messages = [finding.message for finding in rules(trtllm_disagg(change))["PS003"]]
    assert not [message for message in messages if "missing" in message or "no worker" in message]


@pytest.mark.slow
@pytest.mark.parametrize("value", [2.5, "abc", 0, -1])
def test_no_rule_computes_with_an_invalid_parallelism_or_block_size(value: Any) -> None:
    key = "decode/config/{}".format
    triton = {key("moe_config"): {"backend": "TRITON"}, key("moe_expert_parallel_size"): 4}
    layout = rules(trtllm_disagg({**triton, key("tensor_parallel_size"): value}))
    assert "PS102" in layout
    assert {"PS201", "PS205", "PS211"}.isdisjoint(layout)
    assert "PS211" in rules(trtllm_disagg({**triton, key("tensor_parallel_size"): 2}))
    if value != "abc":
        blocks = rules(trtllm_disagg({key("kv_cache_config/tokens_per_block"): value}))
        # The chart refuses it, as it computes the size of the transfer buffer; 0 is unset there.
        assert ("PS003" if value else "PS102") in blocks
        assert "PS413" not in blocks


def test_an_unknown_section_that_was_misspelled_is_read_as_meant() -> None:
    tree = yaml.safe_load(trtllm_disagg(WRONG))
    tree["decodes"] = tree.pop("decode")
    text = yaml.safe_dump(tree, sort_keys=False)
    assert invalid(text) == ["decode", "decodes"] or invalid(text) == ["decodes"]
    assert "no_pool" not in str(check(text))


@pytest.mark.parametrize(
    "text",
    [
        "model: {id: x}\nengine: {kind: vllm}\nworker: {gpus: b: c}\n",
        "services: {x: {image: y}}\n",
        "model: {id: x}\n",
        "engine: {kind: vllm}\nworker: {}\n",
        trtllm_disagg({"decode": REMOVE}),
        trtllm_disagg({"model": REMOVE}),
        trtllm_disagg({"model": []}),
    ],
)
def test_a_graph_that_cannot_be_understood_has_only_its_errors(text: str) -> None:
    findings = rules(text)
    assert set(findings) == {"PS002"}
    (note,) = [finding for finding in findings["PS002"] if finding.level is Level.NOTE]
    assert note.message == "the other rules were not checked, because the file has errors"


def test_an_unknown_engine_leaves_what_holds_for_every_engine() -> None:
    findings = rules(vllm_agg({"engine/kind": "tgi", "frontend/migration_limit": 0}))
    assert "PS511" in findings
    assert not [rule for rule in findings if rule.startswith("PS1") and rule != "PS125"]


def test_a_duplicate_key_is_reported_beside_the_findings() -> None:
    text = trtllm_disagg(WRONG).replace("  migration_limit: 0\n", "  migration_limit: 0\n" * 2)
    findings = rules(text)
    assert [f.place for f in findings["PS002"]][:1] == ["frontend.migration_limit"]
    assert "PS601" in findings
    assert "PS511" not in findings


def test_the_name_of_the_file_hides_nothing(tmp_path: Any) -> None:
    from penstock.checks.run import check_file
    from penstock.serving.understand import Hints

    path = tmp_path / "My Graph.yaml"
    path.write_text(trtllm_disagg(WRONG))
    found = {finding.rule for finding in check_file(path, Hints())}
    assert {"PS002", "PS601", "PS123"} <= found


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"kv_transfer/buffer_tokens": 32769},
        {"decode/gpus": 9},
        {"decode/args": ["--max-seq-len", "8192"]},
    ],
)
def test_an_error_of_the_chart_hides_nothing(change: dict[str, Any]) -> None:
    findings = rules(trtllm_disagg({**WRONG, **change}))
    assert {"PS003", "PS601", "PS123"} <= set(findings)


@pytest.mark.slow
def test_standard_input_is_checked_in_the_same_way() -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "check", "--json", "-"]
    text = trtllm_disagg({**WRONG, "router": {"mode": "kvv"}})
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    found = {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert {"PS002", "PS601", "PS123"} <= found
    assert done.returncode == 14


def sick(changes: Mapping[str, Any]) -> str:
    """A manifest with a finding in prefill and one in decode."""
    each = {f"{pool}/max-num-batched-tokens": 100 for pool in ("prefill", "decode")}
    return vllm_disagg_dgd({**each, **changes})


def components(text: str, rule: str) -> set[str]:
    return {finding.component for finding in check(text) if finding.rule == rule}


def test_a_value_of_the_wrong_type_leaves_the_other_components() -> None:
    text = sick({"dgd/spec/components/prefill/replicas": "2"})
    assert components(text, "PS004") == {""}
    assert components(text, "PS124") == {"decode"}
    assert components(sick({}), "PS124") == {"prefill", "decode"}


def test_a_placeholder_in_an_image_hides_only_what_depends_on_it() -> None:
    images = {
        f"{MAIN.format(pool)}/image": "${IMAGE}" for pool in ("prefill", "decode", "frontend")
    }
    text = sick(images)
    assert components(text, "PS124") == {"prefill", "decode"}
    (placeholder,) = rules(text)["PS909"]
    assert "${IMAGE} in 3 places" in placeholder.message
    depends = [f for f in check(text) if f.rule.startswith("PS9") or f.rule == "PS107"]
    assert depends == [placeholder]


def test_a_placeholder_in_the_metadata_hides_nothing() -> None:
    text = sick({"dgd/metadata/labels": {"team": "<your-team>"}})
    assert components(text, "PS124") == {"prefill", "decode"}


def test_a_finding_that_mentions_a_broken_component_is_not_reported() -> None:
    text = sick({"dgd/spec/components/prefill/replicas": "2", "decode/kv-cache-dtype": "fp8"})
    for finding in check(text):
        if finding.rule != "PS004":
            assert "prefill" not in f"{finding.message} {finding.fix}", finding


@pytest.mark.parametrize(
    "changes",
    [
        {f"{MAIN.format('decode')}/image": REMOVE, f"{MAIN.format('decode')}/name": "other"},
        {"dgd/spec/components": {"a": 1}},
        {"dgd/apiVersion": "nvidia.com/v3"},
    ],
)
def test_a_manifest_that_cannot_be_understood_has_only_its_errors(changes: dict[str, Any]) -> None:
    findings = rules(sick(changes))
    assert set(findings) == {"PS004"}
    assert "the other rules were not checked" in findings["PS004"][-1].message


def test_a_syntax_error_in_a_later_document_stops_the_rules() -> None:
    assert set(rules(sick({}) + "---\na: b: c\n")) == {"PS004"}
