"""Levels, messages and fixes that reviewers of held-out manifests called wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.checks.finding import Level
from tests.checks.cases_engine_kernels import vllm
from tests.checks.cases_parallelism import H100
from tests.checks.support import (
    REMOVE,
    check,
    only,
    trtllm_agg,
    trtllm_disagg_dgd,
    vllm_agg,
    vllm_agg_dgd,
)

DECODE = "dgd/spec/components/decode/podTemplate/spec/containers/main"
WORKER = "dgd/spec/components/worker/podTemplate/spec/containers/main"
NIC = f"{DECODE}/resources/limits/rdma~1ib"
PRIVILEGED = {f"{DECODE}/securityContext/privileged": True}


def trtllm(changes: Mapping[str, Any]) -> str:
    return trtllm_disagg_dgd(changes)


def test_ipc_lock_replaces_privileged_only_with_an_rdma_resource() -> None:
    finding = only(trtllm(PRIVILEGED), "PS711")
    assert (finding.level, "IPC_LOCK" in finding.fix) == (Level.NOTE, True)
    without = only(trtllm({**PRIVILEGED, NIC: REMOVE}), "PS711")
    assert (without.level, "IPC_LOCK" in without.fix, without.yaml) == (Level.NOTE, False, "")


def test_the_port_of_a_fix_is_the_one_that_the_worker_serves() -> None:
    ports = {f"{WORKER}/ports": [{"name": "metrics", "containerPort": 9400}]}
    assert "containerPort: 9090" in only(vllm_agg_dgd(ports), "PS727").fix
    moved = {f"{WORKER}/env/PORT": {"name": "DYN_SYSTEM_PORT", "value": "8081"}}
    assert "containerPort: 8081" in only(vllm_agg_dgd({**ports, **moved}), "PS727").fix


def test_the_message_about_visible_devices_states_what_the_process_sees() -> None:
    text = vllm(tensor_parallel_size=1, gpus=1, env={"CUDA_VISIBLE_DEVICES": "2"})
    message = only(text, "PS231").message
    assert "CUDA_VISIBLE_DEVICES is 2" in message
    assert "sees 0" in message


def test_a_placeholder_has_no_further_problem_at_its_place() -> None:
    changes = {"dgd/spec/components/decode/replicas": "${REPLICAS}"}
    findings = check(trtllm(changes))
    assert not [finding for finding in findings if finding.level is Level.ERROR]
    assert "${REPLICAS} in 1 place must be filled by a program" in [
        finding.message for finding in findings
    ]
    (replaced,) = [
        finding
        for finding in check(trtllm({"dgd/spec/components/decode/replicas": "<your-replicas>"}))
        if finding.level is Level.ERROR
    ]
    assert (replaced.rule, replaced.message) == (
        "PS909",
        "<your-replicas> in 1 place must be replaced",
    )
    assert [
        finding.rule
        for finding in check(trtllm({"dgd/spec/components/decode/replicas": [2]}))
        if finding.level is Level.ERROR
    ] == ["PS004"]


def test_a_flag_without_its_value_is_not_said_to_use_the_last_one() -> None:
    twice = ["--max-beam-width", "--max-beam-width", "1"]
    finding = only(trtllm_agg({"worker/args": twice}), "PS150")
    assert (finding.level, "expected one argument" in finding.why) == (Level.ERROR, True)
    values = ["--max-beam-width", "2", "--max-beam-width", "1"]
    finding = only(trtllm_agg({"worker/args": values}), "PS150")
    assert (finding.level, finding.why) == (Level.WARNING, "The last value is used.")


def test_a_name_with_dots_is_a_note() -> None:
    assert only(vllm_agg_dgd({"dgd/metadata/name": "qwen-0.6b"}), "PS751").level is Level.NOTE
    assert only(vllm_agg_dgd({"dgd/metadata/name": "Qwen"}), "PS751").level is Level.ERROR


def test_a_value_is_a_note_for_an_image_that_is_not_dynamos() -> None:
    flag = {f"{WORKER}/args/2": "--max-model-len=many"}
    own = {f"{WORKER}/image": "registry.example/team/build:1.6.1"}
    mirror = {f"{WORKER}/image": "registry.example/team/vllm-runtime:1.6.1"}
    assert only(vllm_agg_dgd({**flag, **mirror}), "PS143").level is Level.ERROR
    assert only(vllm_agg_dgd({**flag, **own}), "PS143").level is Level.NOTE


def test_a_file_for_a_heredoc_is_a_template() -> None:
    name = {"dgd/metadata/name": "$NAME", f"{WORKER}/args/1": "$MODEL_PATH"}
    findings = [finding for finding in check(vllm_agg_dgd(name)) if finding.level is not Level.NOTE]
    assert findings == []
    (filled,) = [finding for finding in check(vllm_agg_dgd(name)) if finding.rule == "PS909"]
    assert filled.message == "$NAME in 1 place must be filled by a program"
    assert filled.why.startswith("The values are not known here")


@pytest.mark.parametrize("image", ["$ignore", "registry.example/team/vllm-runtime:$tag"])
def test_a_lower_case_name_in_an_image_is_a_placeholder(image: str) -> None:
    """As in the golden files of the operator's tests, whose values a test compares."""
    changed = {f"{WORKER}/image": image, "dgd/metadata/name": "$glob:agg-*"}
    findings = check(vllm_agg_dgd(changed))
    assert [finding for finding in findings if finding.level is not Level.NOTE] == []
    (filled,) = [finding for finding in findings if finding.rule == "PS909"]
    name = image[image.index("$") :]
    assert filled.message == f"$glob, {name} in 2 places must be filled by a program"
    assert filled.fix == "Render the file, for example with envsubst, and check the result."


def test_vllm_counts_activations_in_the_memory_fraction() -> None:
    fractions = {0.97: Level.NOTE, 0.99: Level.WARNING, 1.5: Level.ERROR}
    for fraction, level in fractions.items():
        text = vllm_agg({"worker/config/gpu-memory-utilization": fraction})
        assert only(text, "PS306").level is level


def test_a_model_that_fits_at_the_end_of_the_range_may_fit() -> None:
    """gpt-oss-120b takes 64.5 GiB of the 79.2 GiB of an H100."""
    fractions = {0.82: Level.WARNING, 0.7: Level.ERROR}
    for fraction, level in fractions.items():
        changes = {"hardware": H100, "worker/gpus": 1}
        key = "worker/config/gpu-memory-utilization"
        finding = only(vllm_agg(changes | {key: fraction}), "PS301")
        assert finding.level is level
        assert ("may not fit" in finding.message) == (level is Level.WARNING)
