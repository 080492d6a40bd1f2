"""Levels, messages and fixes that reviewers of held-out manifests called wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.checks.finding import Finding, Level
from tests.checks.cases_engine_kernels import vllm
from tests.checks.support import REMOVE, TRTLLM_DISAGG, VLLM_AGG, check, manifest

DECODE = "dgd/spec/components/decode/podTemplate/spec/containers/main"
WORKER = "dgd/spec/components/worker/podTemplate/spec/containers/main"
NIC = f"{DECODE}/resources/limits/rdma~1ib"
PRIVILEGED = {f"{DECODE}/securityContext/privileged": True}


def only(text: str, rule: str) -> Finding:
    (finding,) = [one for one in check(text) if one.rule == rule]
    return finding


def trtllm(changes: Mapping[str, Any]) -> str:
    return manifest(TRTLLM_DISAGG, changes)


def test_ipc_lock_replaces_privileged_only_with_an_rdma_resource() -> None:
    finding = only(trtllm(PRIVILEGED), "PS711")
    assert (finding.level, "IPC_LOCK" in finding.fix) == (Level.NOTE, True)
    without = only(trtllm({**PRIVILEGED, NIC: REMOVE}), "PS711")
    assert (without.level, "IPC_LOCK" in without.fix, without.yaml) == (Level.NOTE, False, "")


def test_the_port_of_a_fix_is_the_one_that_the_worker_serves() -> None:
    ports = {f"{WORKER}/ports": [{"name": "metrics", "containerPort": 9400}]}
    assert "containerPort: 9090" in only(manifest(VLLM_AGG, ports), "PS727").fix
    moved = {f"{WORKER}/env/PORT": {"name": "DYN_SYSTEM_PORT", "value": "8081"}}
    assert "containerPort: 8081" in only(manifest(VLLM_AGG, {**ports, **moved}), "PS727").fix


def test_the_message_about_visible_devices_states_what_the_process_sees() -> None:
    text = vllm(tensor_parallel_size=1, gpus=1, env={"CUDA_VISIBLE_DEVICES": "2"})
    message = only(text, "PS231").message
    assert "CUDA_VISIBLE_DEVICES is 2" in message
    assert "sees 0" in message
