"""Engines on GPUs: their model, GPUs per replica, and the addresses of each replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InputError, ManifestError
from penstock.local import gpu_engine
from penstock.local.adapt import adapt
from penstock.local.deployment import Overrides, Program
from penstock.local.machine import Machine
from penstock.manifests.deployment import Component, Engine, Launch, Role
from tests.local.builders import component, deployment, frontend
from tests.local.test_adapt import no_settings, simulate

NAMES = [engine.value for engine in Engine if engine is not Engine.MOCKER]
MACHINE = Machine(gpus=8, interpreters={name: f"/envs/{name}/bin/python" for name in NAMES})
EVENTS = {"publisher": "zmq", "endpoint": "tcp://*:5557", "enable_kv_cache_events": True}


def worker(engine: Engine, *more: str, gpus: int = 1, **options: Any) -> Component:
    flag = "--model" if engine is Engine.VLLM else "--model-path"
    argv = ("python3", "-m", f"dynamo.{engine}", flag, "acme/model", *more)
    return component("worker", Role.WORKER, *argv, engine=engine, gpus=gpus, **options)


def adapted(
    each: Component, folder: Path | None = Path("/hub/acme"), settings: object = None
) -> Program:
    read = (lambda c, launch: settings) if settings else no_settings
    graph = deployment(frontend(), each)
    local = adapt(graph, MACHINE, Overrides(), lambda model: folder, simulate, read)  # type: ignore[arg-type]
    program = local.program("worker")
    assert program is not None
    return program


@pytest.mark.parametrize("engine", [Engine.TRTLLM, Engine.VLLM, Engine.SGLANG])
def test_a_model_that_is_not_on_this_machine_is_an_error(engine: Engine) -> None:
    with pytest.raises(InputError, match=r"'acme/model' is neither .*Run `hf download acme/model`"):
        adapted(worker(engine), folder=None)


def test_a_hub_id_stays_and_a_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.safetensors").write_bytes(b"x" * 10)
    (tmp_path / "model" / "b.safetensors").write_bytes(b"x" * 5)
    monkeypatch.chdir(tmp_path)
    arguments = ("--model-path", "model", "--x")
    model = gpu_engine.model(Engine.TRTLLM, arguments, tmp_path / "model")
    assert model.arguments == ("--model-path", str(tmp_path / "model"), "--x")
    assert model.weights_bytes == 15
    assert "acme/model" in adapted(worker(Engine.TRTLLM)).argv


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (worker(Engine.VLLM, gpus=16, nodes=2), "one replica spans 2 nodes.*--engine mocker"),
        (worker(Engine.SGLANG, gpus=0), "its pod requests 0 GPUs for 1 processes of sglang"),
    ],
)
def test_a_replica_that_does_not_fit_this_machine_is_refused(
    refused: Component, message: str
) -> None:
    with pytest.raises(ManifestError, match=f"worker: {message}"):
        adapted(refused)


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [(4, None, 1), (8, None, 2), (8, "0,1,2,3", 4), (6, None, None)],
)
def test_engines_of_one_pod_share_its_gpus(
    gpus: int, visible: str | None, expected: int | None
) -> None:
    env = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    argv = ("python3", "-m", "dynamo.trtllm")
    launches = tuple(Launch(argv=argv, env=env) for _ in range(4))
    pod = component("worker", Role.WORKER, engine=Engine.TRTLLM, launches=launches, gpus=gpus)
    if expected is None:
        with pytest.raises(ManifestError, match="requests 6 GPUs for 4 processes"):
            gpu_engine.replica_gpus(pod, launches[0])
    else:
        assert gpu_engine.replica_gpus(pod, launches[0]) == expected


def test_each_vllm_replica_has_its_own_loopback_addresses() -> None:
    settings = {"engine_args": {"kv_events_config": EVENTS, "data_parallel_size": 1}}
    program = adapted(worker(Engine.VLLM), settings=settings)
    assert json.loads(program.argv[-1])["endpoint"] == "ipc://@penstock-kv-events-{port:kv_events}"
    assert program.argv[-2] == "--kv-events-config"
    assert program.ports == ("nixl", "kv_events")
    assert program.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "{port:nixl}"
    assert program.env["VLLM_HOST_IP"] == "127.0.0.1"
    assert program.env["NCCL_SOCKET_IFNAME"] == "lo"


def test_vllm_with_several_ranks_keeps_its_events_address() -> None:
    settings = {"engine_args": {"kv_events_config": EVENTS, "data_parallel_size": 2}}
    assert "--kv-events-config" not in adapted(worker(Engine.VLLM), settings=settings).argv


def test_each_sglang_replica_has_its_own_addresses() -> None:
    more = ("--disaggregation-mode", "prefill", "--kv-events-config", json.dumps(EVENTS))
    program = adapted(worker(Engine.SGLANG, *more))
    at = program.argv.index("--disaggregation-bootstrap-port")
    assert program.argv[at + 1] == "{port:bootstrap}"
    assert "penstock-kv-events" in program.argv[-1]
    assert "--disaggregation-bootstrap-port" not in adapted(worker(Engine.SGLANG)).argv


def test_the_ranks_of_tensorrt_llm_communicate_over_loopback() -> None:
    env = adapted(worker(Engine.TRTLLM)).env
    assert env["OMPI_MCA_btl_tcp_if_include"] == env["OMPI_MCA_oob_tcp_if_include"] == "lo"
