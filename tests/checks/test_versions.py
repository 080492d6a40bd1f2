"""Rules apply to the versions that they were verified for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.checks.finding import Finding, Level
from penstock.checks.run import ONLY_ON_A_CLUSTER, require_sound
from penstock.errors import CheckError
from penstock.manifests.source import open_source
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    VLLM_AGG,
    check,
    found,
    levels,
    manifest,
    sglang_agg,
    trtllm_agg_dgd,
    vllm_agg,
    vllm_agg_dgd,
    vllm_disagg_dgd,
)

REGISTRY = "nvcr.io/nvidia/ai-dynamo"
WORKER = "dgd/spec/components/worker"
IMAGE = f"{WORKER}/podTemplate/spec/containers/main/image"
ARGS = f"{WORKER}/podTemplate/spec/containers/main/args"
DECODE_ENV = "dgd/spec/components/decode/podTemplate/spec/containers/main/env"


def with_image(base: Mapping[str, Any], tag: str, changes: Mapping[str, Any]) -> str:
    name = "tensorrtllm-runtime" if base is TRTLLM_AGG else "vllm-runtime"
    return manifest(base, {IMAGE: f"{REGISTRY}/{name}:{tag}", **changes})


VARIABLE = {
    f"{WORKER}/podTemplate/spec/containers/main/env/VLLM_USE_FLASHINFER_MOE_FP4": {
        "name": "VLLM_USE_FLASHINFER_MOE_FP4",
        "value": "1",
    }
}
STATISTICS = {"worker/enable_iter_perf_stats": REMOVE}
NO_EVENTS = {"worker/kv-events-config": REMOVE}
ASYNC = {"worker/async-scheduling": True}
SPECULATION, DRAFTS = "worker/speculative-config", {"num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("rule", "base", "changes", "expected"),
    [
        # vLLM 0.23 of Dynamo 1.3 reads the variable, 0.26 does not.
        ("PS146", VLLM_AGG, VARIABLE, {"1.3.0": [], "1.4.0": ["warning"], "1.6.1": ["warning"]}),
        # Only 1.6 enables the statistics because of the operator's variable.
        (
            "PS117",
            TRTLLM_AGG,
            STATISTICS,
            {"1.3.0": [], "1.5.0-kimi-k3-dev.1": [], "1.6.1": ["note"]},
        ),
        # Up to Dynamo 1.0 the vLLM worker enables KV events itself (dynamo/vllm/args.py).
        (
            "PS501",
            VLLM_AGG,
            NO_EVENTS,
            {"1.0.2": [], "1.1.1": ["warning"], "1.3.0": ["warning"], "1.6.1": ["warning"]},
        ),
        # vLLM 0.12 began to refuse methods; the model runner of 0.33 lacks only some.
        (
            "PS139",
            VLLM_AGG,
            {**ASYNC, SPECULATION: {**DRAFTS, "method": "ngram", "prompt_lookup_max": 4}},
            {"0.7.1": [], "0.9.1": ["error"], "1.6.1": ["error"], "1.7.0": []},
        ),
        (
            "PS139",
            VLLM_AGG,
            {**ASYNC, SPECULATION: {**DRAFTS, "method": "suffix"}},
            {"1.6.1": ["error"], "1.7.0": ["error"]},
        ),
        (
            "PS17305",
            VLLM_AGG,
            {
                **ASYNC,
                SPECULATION: {
                    **DRAFTS,
                    "method": "eagle3",
                    "model": "nvidia/gpt-oss-120b-Eagle3-v3",
                    "disable_padded_drafter_batch": True,
                },
            },
            {"0.8.1": ["error"], "1.6.1": ["error"], "1.7.0": []},
        ),
        # vLLM 0.20 began to compare the blocks with the context length.
        (
            "PS127",
            VLLM_AGG,
            {"worker/num-gpu-blocks-override": 10},
            {"0.9.1": ["warning"], "1.1.1": ["warning"], "1.2.1": ["error"], "1.7.0": ["error"]},
        ),
        # From vLLM 0.20 on a step must have tokens, and from 0.28 on drafts take fewer.
        (
            "PS161",
            VLLM_AGG,
            {
                "worker/max-num-batched-tokens": 256,
                SPECULATION: {**DRAFTS, "method": "draft_model", "model": "openai/gpt-oss-20b"},
            },
            {"1.1.1": [], "1.2.1": ["error"], "1.4.2": ["error"], "1.5.1": []},
        ),
        # A key that vLLM had before 0.12, and one that no version has.
        (
            "PS155",
            VLLM_AGG,
            {"worker/compilation-config": {"max_capture_size": 8}},
            {"0.7.1": [], "0.8.1": ["error"], "1.7.0": ["error"]},
        ),
        (
            "PS155",
            VLLM_AGG,
            {"worker/compilation-config": {"cudagraph_mod": "FULL"}},
            {"0.4.1": ["error"], "0.9.1": ["error"], "1.7.0": ["error"]},
        ),
    ],
)
def test_a_rule_reports_nothing_for_versions_outside_its_range(
    rule: str, base: Mapping[str, Any], changes: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    assert {tag: levels(with_image(base, tag, changes), rule) for tag in expected} == expected


@pytest.mark.parametrize(
    ("tag", "flag"),
    [
        ("1.2.0", "--publish-events-and-metrics"),
        ("1.3.0", "--publish-kv-events"),
        ("1.6.1", "--publish-kv-events"),
    ],
)
def test_the_fix_has_a_flag_of_the_stated_version(tag: str, flag: str) -> None:
    text = with_image(TRTLLM_AGG, tag, {})
    (published,) = (line for line in text.splitlines() if "--publish-kv-events" in line)
    (unpublished,) = found(text.replace(f"{published}\n", ""), "PS501")
    assert f"- {flag}\n" in f"{unpublished.yaml}\n"
    assert flag in unpublished.fix


@pytest.mark.parametrize("tag", ["1.6.3", "1.7.0-dev.20261026", "1.9.0", "1.7.0-some-model-dev.1"])
def test_a_newer_image_is_judged_as_the_newest_known_release(tag: str) -> None:
    text = with_image(VLLM_AGG, tag, VARIABLE)
    assert levels(text, "PS146") == ["warning"]
    newer = [finding.message for finding in found(text, "PS910")]
    verdict = {"1.6.3": "it is judged as 1.6.2", "1.9.0": "it is judged as 1.7.0"}.get(tag)
    assert newer == (
        [f"the image has Dynamo {tag}, which penstock does not know; {verdict}"] if verdict else []
    )


def test_a_newer_image_of_an_engine_is_named_as_such() -> None:
    (newer,) = found(vllm_agg_dgd({IMAGE: "vllm/vllm-openai:v0.50.1"}), "PS910")
    assert newer.level is Level.WARNING
    assert "has vLLM 0.50.1" in newer.message


def test_rules_about_later_versions_are_one_note() -> None:
    """vLLM 0.26 of Dynamo 1.4 no longer reads the variable, 1.6 enables the statistics itself."""
    (note,) = found(with_image(VLLM_AGG, "1.3.0", VARIABLE), "PS911")
    assert note.level is Level.NOTE
    assert "PS146 (vLLM since 0.26.0)" in note.message
    assert found(with_image(VLLM_AGG, "1.6.1", VARIABLE), "PS911") == []


SILENT = "The setting is silently ignored."
LOGGED = "The setting is ignored. vLLM logs that it does not know the variable."


def of_variable(tag: str, name: str, value: str, rule: str) -> list[Finding]:
    entry = {f"{WORKER}/podTemplate/spec/containers/main/env/X": {"name": name, "value": value}}
    return found(with_image(VLLM_AGG, tag, entry), rule)


def test_a_variable_counts_from_the_version_of_the_engine_that_added_it() -> None:
    """vLLM 0.17.0 added it; no release of Dynamo has 0.17 or 0.18."""
    name = "VLLM_FLASHINFER_ALLREDUCE_BACKEND"
    (early,) = of_variable("1.0.2", name, "mnnvl", "PS177")  # vLLM 0.16.0
    assert early.message == f"{name} has no effect before vLLM 0.17.0"
    assert early.why == SILENT
    assert of_variable("1.1.1", name, "mnnvl", "PS177") == []  # vLLM 0.19.0


@pytest.mark.parametrize(
    ("tag", "value", "why", "fix"),
    [
        ("1.0.2", "pplx", SILENT, "Use --all2all-backend instead of VLLM_ALL2ALL_BACKEND."),
        ("1.1.1", "pplx", LOGGED, "Remove VLLM_ALL2ALL_BACKEND; vLLM has no pplx since 0.17."),
        ("1.4.0", "naive", LOGGED, "Remove VLLM_ALL2ALL_BACKEND; vLLM has no naive since 0.19."),
        (
            "1.4.0",
            "deepep_low_latency",
            LOGGED,
            "Use --all2all-backend instead of VLLM_ALL2ALL_BACKEND.",
        ),
    ],
)
def test_a_variable_without_effect_says_what_its_version_of_vllm_does(
    tag: str, value: str, why: str, fix: str
) -> None:
    (finding,) = of_variable(tag, "VLLM_ALL2ALL_BACKEND", value, "PS146")
    assert (finding.why, finding.fix) == (why, fix)


@pytest.mark.parametrize(
    ("tag", "name", "fix"),
    [
        ("1.1.1", "VLLM_USE_CUDNN_PREFILL", "Use --attention-config.use_cudnn_prefill instead of"),
        ("1.4.0", "VLLM_USE_CUDNN_PREFILL", "Use --attention-config.mla_prefill_backend instead"),
        # The flag is newer than the variable.
        ("1.1.1", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "Remove VLLM_PREFIX_CACHE"),
        ("1.6.1", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "Use --prefix-cache-retention-interval"),
    ],
)
def test_the_flag_instead_of_a_variable_is_one_of_the_stated_version(
    tag: str, name: str, fix: str
) -> None:
    (finding,) = of_variable(tag, name, "1", "PS177")
    assert finding.fix.startswith(fix)


def test_an_image_without_a_version_may_have_a_vllm_that_logs_nothing() -> None:
    image = {IMAGE: "registry.example.com/llm/serving:stable"}
    (finding,) = found(vllm_agg_dgd({**image, **VARIABLE}), "PS146")
    assert "vLLM logs since 0.17.0 that it does not know the variable" in finding.why


def test_only_vllm_knows_its_variables() -> None:
    (finding,) = of_variable("1.6.1", "DYN_USE_KV_EVENTS", "false", "PS146")
    assert finding.why == SILENT


def test_a_build_between_two_releases_is_judged_as_the_one_before() -> None:
    tokens = {"worker/max-num-batched-tokens": 100}
    build = with_image(VLLM_AGG, "1.4.0-kimi-k3-dev.1", {**VARIABLE, **tokens})
    assert levels(build, "PS124") == ["error"]
    assert levels(build, "PS146") == []  # the release before is 1.3
    assert "PS146" in found(build, "PS911")[0].message


def test_an_image_without_a_version_is_judged_as_the_newest_release() -> None:
    image = {IMAGE: "registry.example.com/llm/serving:stable"}
    (ignored,) = found(vllm_agg_dgd({**image, **VARIABLE}), "PS146")
    assert ignored.level is Level.NOTE
    assert ignored.message.endswith("(assuming Dynamo 1.7)")
    # An error in every version needs no assumption.
    tokens = {"worker/max-num-batched-tokens": 100}
    (fewer,) = found(vllm_agg_dgd({**image, **tokens}), "PS124")
    assert fewer.level is Level.ERROR
    assert "assuming" not in fewer.message
    # In the newest release only.
    (statistics,) = found(trtllm_agg_dgd({**image, **STATISTICS}), "PS117")
    assert statistics.level is Level.NOTE


def test_flags_tell_the_release_of_an_image_without_a_version() -> None:
    """Dynamo 1.0 moved --migration-limit from the worker to the frontend."""
    old = {
        IMAGE: f"{REGISTRY}/vllm-runtime:latest",
        f"{ARGS}/2": "--migration-limit=3",
        "dgd/spec/components/frontend/podTemplate/spec/containers/main/args": ["--router-mode=kv"],
    }
    text = vllm_agg_dgd({**old, **VARIABLE})
    (removed,) = found(text, "PS144")
    assert removed.level is Level.NOTE
    assert levels(text, "PS146") == ["note"]
    tokens = vllm_agg_dgd({**old, "worker/max-num-batched-tokens": 100})
    assert levels(tokens, "PS124") == ["error"]


def test_an_own_image_may_have_flags_that_no_release_has() -> None:
    flag = {f"{ARGS}/2": "--modelexpress-role=source"}
    image = {IMAGE: "registry.example.com/llm/serving:stable"}
    assert levels(vllm_agg_dgd(flag), "PS141") == ["error"]
    assert levels(vllm_agg_dgd({**flag, **image}), "PS141") == ["note"]


@pytest.mark.parametrize("image", ["REPLACE_WITH_IMAGE", "registry.example/team/vllm-runtime:dev"])
def test_a_build_without_a_version_may_have_a_flag_that_resembles_none(image: str) -> None:
    """A branch of Dynamo may have added it, which the file does not state."""
    flag = {f"{ARGS}/2": "--own-shadow-engine"}
    (unknown,) = found(vllm_agg_dgd({**flag, IMAGE: image}), "PS141")
    assert unknown.level is Level.NOTE
    assert unknown.message == "no release of Dynamo has the flag --own-shadow-engine of dynamo.vllm"
    assert unknown.why == "A build that does not have the flag exits at startup."
    assert unknown.fix == "Use an image whose build has the flag, or remove --own-shadow-engine."
    (released,) = found(with_image(VLLM_AGG, "1.6.1", flag), "PS141")
    assert (released.level, released.fix) == (Level.ERROR, "Remove --own-shadow-engine.")
    # A misspelled flag is one in any build.
    typo = {f"{ARGS}/2": "--max-num-seqz=8", IMAGE: image}
    (misspelled,) = found(vllm_agg_dgd(typo), "PS141")
    assert misspelled.level is Level.WARNING
    assert misspelled.fix == "Replace --max-num-seqz with --max-num-seqs."


def test_a_key_of_an_engine_file_may_be_a_flag_of_an_own_build() -> None:
    key = {"worker/own-shadow-engine": True}
    image = {IMAGE: "registry.example/team/vllm-runtime:dev"}
    (unknown,) = found(vllm_agg_dgd({**key, **image}), "PS142")
    assert unknown.level is Level.NOTE
    assert unknown.message.startswith("no release of Dynamo has the flag --own-shadow-engine")
    assert unknown.fix == "Use an image whose build has the flag, or remove own-shadow-engine."
    assert levels(vllm_agg_dgd(key), "PS142") == ["error"]


def test_a_flag_of_a_newer_release_is_an_error() -> None:
    flag = {f"{ARGS}/2": "--publish-kv-events"}
    (early,) = found(with_image(TRTLLM_AGG, "1.2.0", flag), "PS141")
    assert (early.level, "before Dynamo 1.3" in early.message) == (Level.ERROR, True)
    assert levels(with_image(TRTLLM_AGG, "1.3.0", flag), "PS141") == []


def test_a_placeholder_is_one_finding_and_the_other_rules_apply() -> None:
    frontend = "dgd/spec/components/frontend/podTemplate/spec/containers/main/image"
    changes = {
        IMAGE: "${VLLM_IMAGE}",
        frontend: f"{REGISTRY}/dynamo-frontend:my-tag",
        "worker/max-num-batched-tokens": 100,
    }
    text = vllm_agg_dgd(changes)
    assert [(f.level, f.message) for f in found(text, "PS909")] == [
        (Level.WARNING, "my-tag in 1 place must be replaced"),
        (Level.NOTE, "${VLLM_IMAGE} in 1 place must be filled by a program"),
    ]
    assert levels(text, "PS124") == ["error"]
    assert not {f.rule for f in check(text)} & {"PS004", "PS901"}


def test_images_do_not_stop_up(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(vllm_agg_dgd({IMAGE: "<your-registry>/vllm-runtime:1.6.1"}))
    source = open_source(path)
    with pytest.raises(CheckError, match="PS909"):
        require_sound(source)
    require_sound(source, ignored=ONLY_ON_A_CLUSTER)


@pytest.mark.parametrize("value", ["$(ibstat -l | paste -sd,)", "${DEVICES}", "`devices`"])
def test_nothing_is_concluded_from_values_that_are_computed_at_start(value: str) -> None:
    for variable in ("UCX_NET_DEVICES", "UCX_TLS"):
        entry = {f"{DECODE_ENV}/{variable}": {"name": variable, "value": value}}
        text = vllm_disagg_dgd(entry)
        rules = {"PS434", "PS435", "PS436", "PS437"}
        assert not rules & {f.rule for f in check(text)}, variable


def test_kv_in_host_memory_needs_no_cuda_transport() -> None:
    tcp = {f"{DECODE_ENV}/UCX_TLS/value": "tcp"}
    assert levels(vllm_disagg_dgd(tcp), "PS434") == ["warning"]
    host = {**tcp, "decode/kv-transfer-config/kv_buffer_device": "cpu"}
    assert levels(vllm_disagg_dgd(host), "PS434") == []


@pytest.mark.parametrize(
    "arguments",
    [["--no-router-kv-events", "--router-kv-overlap-score-credit", "0"], ["--load-aware"]],
)
def test_a_router_that_ignores_prefixes_needs_no_caches(arguments: list[str]) -> None:
    off = {"worker/config/enable-prefix-caching": False}
    assert levels(vllm_agg(off), "PS502") == ["warning"]
    assert levels(vllm_agg({**off, "frontend": {"args": arguments}}), "PS502") == []


def test_attention_dp_is_a_size_since_sglang_0_5_22() -> None:
    """With it, GPUs beyond the KV heads hold other sequences, not copies of the heads."""
    wide = {"worker/gpus": 16, "worker/nodes": 2, "worker/config/tp-size": 16}
    assert levels(sglang_agg(wide), "PS210") == ["note"]
    assert levels(sglang_agg({**wide, "worker/config/attn-dp-size": 2}), "PS210") == []


def test_a_tag_before_a_digest_is_not_replaced() -> None:
    image = f"{REGISTRY}/vllm-runtime:1.3.1"
    (plain,) = found(vllm_agg_dgd({IMAGE: image}), "PS906")
    (pinned,) = found(vllm_agg_dgd({IMAGE: f"{image}@sha256:{'0' * 64}"}), "PS906")
    assert "vllm-runtime:1.6.2" in plain.yaml
    assert pinned.fix == plain.fix
    assert pinned.yaml == ""
