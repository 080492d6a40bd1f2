from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.engine import NoSimulation, Simulation
from penstock.errors import ManifestError, UsageError
from penstock.local.adapt import adapt
from penstock.local.deployment import LocalDeployment, Overrides, Program
from penstock.local.machine import Machine
from penstock.local.ports import is_local
from penstock.local.predicted_timing import FILE, PredictedTiming
from penstock.manifests.deployment import Component, Deployment, Engine, Launch, Role
from penstock.tokenizer import FOLDER
from tests.local.builders import TRTLLM, component, deployment, frontend, mocker

LAPTOP = Machine(gpus=0, python="/env/bin/python")
GPU_NODE = Machine(gpus=8, python="/env/bin/python", interpreters={"trtllm": "/trtllm/bin/python"})


def nowhere(model: str) -> Path | None:
    return None


def simulate(component: Component, launch: Launch) -> Simulation | NoSimulation:
    mode = "prefill" if component.role is Role.PREFILL else "decode"
    return Simulation(
        arguments=("--engine-type", "trtllm", "--disaggregation-mode", mode),
        model="acme/model",
        served_names=("served",),
        simulated=("block size 32",),
        not_simulated=("parsers",),
    )


def no_settings(component: Component, launch: Launch) -> dict[str, object]:
    return {}


def adapted(
    deployment: Deployment, machine: Machine = LAPTOP, **overrides: object
) -> LocalDeployment:
    return adapt(deployment, machine, Overrides(**overrides), nowhere, simulate, no_settings)  # type: ignore[arg-type]


def trtllm(role: Role) -> Component:
    return component(str(role), role, *TRTLLM, engine=Engine.TRTLLM)


def on_gpus(engine: Engine, *argv: str, **more: Any) -> Component:
    return component("worker", Role.WORKER, *argv, engine=engine, **more)


def timed_engine(kind: str, **more: object) -> dict[str, object]:
    limits = {"num_gpu_blocks": 9, "block_size": 32, "max_num_seqs": 4}
    config = {"model": "acme/model", "system": "b200_sxm", "tp": 2}
    rank = {**limits, "max_num_batched_tokens": 512, "timing_model": {"config": config}}
    return {"engine": {**rank, "worker_type": kind, **more}, "dp_size": 2}


TIMING = PredictedTiming(
    python="/sim/bin/python",
    engines={
        "prefill": timed_engine("prefill", kv_transfer_bytes_per_token=36864),
        "worker": timed_engine("aggregated"),
    },
    notes=("assumed: much",),
)


def adapted_with_timing(
    deployment: Deployment, machine: Machine = LAPTOP, **overrides: object
) -> LocalDeployment:
    chosen = Overrides(**overrides)  # type: ignore[arg-type]
    return adapt(deployment, machine, chosen, nowhere, simulate, no_settings, TIMING)


def named(local: LocalDeployment, name: str) -> Program:
    program = local.program(name)
    assert program is not None
    return program


def with_frontend(*flags: str, env: dict[str, str] | None = None) -> LocalDeployment:
    """The local graph of a frontend and a mocker."""
    return adapted(deployment(frontend(*flags, env=env), mocker("worker", "agg")))


def test_a_mocker_with_predicted_timing_runs_in_its_environment_with_the_replayed_engine() -> None:
    local = adapted_with_timing(deployment(frontend(), trtllm(Role.PREFILL), trtllm(Role.WORKER)))
    prefill, worker = named(local, "prefill"), named(local, "worker")
    assert prefill.argv[:3] == ("/sim/bin/python", "-m", "dynamo.mocker")
    mode = ("--disaggregation-mode", "prefill", "--extra-engine-args", FILE)
    assert prefill.argv[-6:] == (*mode, "--kv-bytes-per-token", "36864")
    assert worker.argv[-4:] == ("--disaggregation-mode", "agg", "--extra-engine-args", FILE)
    assert json.loads(prefill.files[FILE]) == TIMING.engines["prefill"]
    assert (prefill.role, worker.role) == (Role.PREFILL, Role.WORKER)
    assert prefill.argv[prefill.argv.index("--model-name") + 1] == "served"


def test_predicted_timing_is_described_and_the_mockers_own_settings_are_not() -> None:
    local = adapted_with_timing(deployment(frontend(), trtllm(Role.PREFILL)))
    assert (
        "prefill: predicted timing, not measured: acme/model on b200_sxm, tp 2; "
        "2 data-parallel ranks, each with 9 KV blocks of 32 tokens, 4 sequences, "
        "512 tokens per step"
    ) in local.notes
    assert local.notes[-1] == "assumed: much"
    assert not any("mocker settings" in note for note in local.notes)


def test_predicted_timing_for_an_engine_that_is_not_substituted_is_an_error() -> None:
    graph = deployment(frontend(), trtllm(Role.PREFILL))
    with pytest.raises(UsageError, match="prefill would run trtllm itself: add --engine mocker"):
        adapted_with_timing(graph, GPU_NODE)
    assert adapted_with_timing(graph, GPU_NODE, engine=Engine.MOCKER).program("prefill") is not None


def test_changed_limits_start_a_new_generation() -> None:
    graph = deployment(frontend(), trtllm(Role.PREFILL))
    engines = {"prefill": timed_engine("prefill", max_num_seqs=5)}
    timing = PredictedTiming(python=TIMING.python, engines=engines)
    after = adapt(graph, LAPTOP, Overrides(), nowhere, simulate, no_settings, timing)
    assert named(adapted_with_timing(graph), "prefill").key != named(after, "prefill").key


def test_a_mocker_graph_runs_unchanged_and_a_note_names_the_packaged_tokenizer() -> None:
    local = adapted(
        deployment(frontend(), mocker("prefill", "prefill"), mocker("decode", "decode"))
    )
    prefill = named(local, "prefill")
    assert prefill.argv[:3] == ("/env/bin/python", "-m", "dynamo.mocker")
    assert str(FOLDER) in prefill.argv
    assert prefill.argv[5:7] == ("--model-name", "acme/model")
    assert not prefill.is_substitute
    assert prefill.is_mocker
    assert any("acme/model" in note and "tokenizer" in note for note in local.notes)


def test_a_local_model_folder_is_used() -> None:
    graph = deployment(frontend(), mocker("worker", "agg"))
    local = adapt(
        graph, LAPTOP, Overrides(), lambda model: Path("/models/acme"), simulate, no_settings
    )
    worker = named(local, "worker")
    assert "/models/acme" in worker.argv
    assert [note for note in local.notes if note.startswith("tokenizer")] == []


def test_an_engine_without_a_gpu_is_substituted_and_notes_list_what_is_lost() -> None:
    local = adapted(deployment(frontend(), trtllm(Role.PREFILL), trtllm(Role.DECODE)))
    decode = named(local, "decode")
    assert decode.is_substitute
    assert decode.is_mocker
    assert decode.role is Role.DECODE
    assert "dynamo.mocker" in decode.argv
    assert "decode: using mocker instead of trtllm (no GPU on this machine)" in local.notes
    assert "decode: mocker settings from the graph: block size 32" in local.notes
    assert "decode: not simulated: parsers" in local.notes


def test_an_engine_with_a_gpu_and_its_environment_is_not_substituted() -> None:
    graph = deployment(frontend(), on_gpus(Engine.TRTLLM, *TRTLLM, gpus=2))
    local = adapt(graph, GPU_NODE, Overrides(), lambda model: Path("/m"), simulate, no_settings)
    worker = named(local, "worker")
    assert worker.argv[:3] == ("/trtllm/bin/python", "-m", "dynamo.trtllm")
    assert (worker.is_substitute, worker.gpus) == (False, 2)
    assert "worker: running trtllm on this machine's GPUs, 2 for each replica" in local.notes


NO_ENVIRONMENT = (
    "this machine has a GPU, but not environment trtllm: `penstock tools env install trtllm`"
)


@pytest.mark.parametrize(
    ("machine", "overrides", "reason"),
    [
        (Machine(gpus=1, python="/env/bin/python"), {}, NO_ENVIRONMENT),
        (Machine(gpus=0, no_gpu="NVML: version mismatch"), {}, "NVML: version mismatch"),
        (GPU_NODE, {"engine": Engine.MOCKER}, "--engine mocker"),
    ],
)
def test_a_note_says_why_the_mocker_replaces_an_engine(
    machine: Machine, overrides: dict[str, Engine], reason: str
) -> None:
    local = adapted(deployment(frontend(), trtllm(Role.WORKER)), machine, **overrides)
    assert f"worker: using mocker instead of trtllm ({reason})" in local.notes


def test_several_engines_in_one_pod_become_several_programs() -> None:
    launches = tuple(
        Launch(argv=(*TRTLLM, "--disaggregation-mode", mode), env={})
        for mode in ("prefill", "decode")
    )
    pod = component("Pod", Role.WORKER, engine=Engine.TRTLLM, launches=launches)
    assert [p.name for p in adapted(deployment(frontend(), pod)).programs] == [
        "pod-0",
        "pod-1",
        "frontend",
    ]


def test_a_note_names_a_component_that_is_not_started() -> None:
    planner = component("Planner", Role.PLANNER, "python3", "-m", "dynamo.planner")
    local = adapted(deployment(frontend(), mocker("worker", "agg"), planner))
    assert local.program("planner") is None
    assert "Planner: not started on this machine (planner: dynamo.planner)" in local.notes


@pytest.mark.parametrize(
    ("components", "words"),
    [((frontend(),), "no worker"), ((mocker("worker", "agg"),), "no frontend")],
)
def test_a_graph_that_cannot_serve_is_an_error(
    components: tuple[Component, ...], words: str
) -> None:
    with pytest.raises(ManifestError, match=words):
        adapted(deployment(*components))


def test_flags_of_planes_are_removed_and_set_the_infrastructure() -> None:
    local = with_frontend(
        "--discovery-backend", "etcd", "--event-plane=nats", "--request-plane", "nats"
    )
    planes = local.infrastructure
    assert (planes.discovery, planes.events, planes.requests) == ("etcd", "nats", "nats")
    argv = named(local, "frontend").argv
    assert not any("plane" in part or "discovery" in part for part in argv)


def test_kubernetes_discovery_becomes_file_discovery() -> None:
    env = {"DYN_DISCOVERY_BACKEND": "kubernetes", "ETCD_ENDPOINTS": ""}
    planes = with_frontend(env=env).infrastructure
    assert (planes.discovery, planes.etcd_endpoints) == ("file", ())


def test_only_servers_on_this_machine_are_used() -> None:
    """async-nats connects to each server of a list."""
    env = {
        "DYN_DISCOVERY_BACKEND": "etcd",
        "ETCD_ENDPOINTS": "http://127.0.0.1:2379,http://b:2379,[::1]:2379,http://[b",
        "DYN_EVENT_PLANE": "nats",
        "NATS_SERVER": "nats://c:4222",
    }
    local = with_frontend(env=env)
    assert local.infrastructure.etcd_endpoints == ("http://127.0.0.1:2379", "[::1]:2379")
    assert local.infrastructure.nats_url == ""
    assert {n for n in local.notes if n.startswith("ignoring")} == {
        "ignoring http://b:2379 on this machine",
        "ignoring http://[b on this machine",
        "ignoring nats://c:4222 on this machine: starting a server here instead",
    }
    servers = "nats://127.0.0.1:4222,nats://c:4222, nats://localhost:4223"
    local = with_frontend(env={"DYN_REQUEST_PLANE": "nats", "NATS_SERVER": servers})
    assert local.infrastructure.nats_url == "nats://127.0.0.1:4222,nats://localhost:4223"
    assert "ignoring nats://c:4222 on this machine" in local.notes


NOT_LOCAL = (
    *("nats://127.0.0.1:4222,nats://c:4222", "http://c\\@127.0.0.1:2379"),
    *("http://127.0.0.1:2379/@c", "http://127.0.0.1@c:2379", "nats:///c", "/c", "?c"),
    *("127.0.0.1.c.org", "nats://0.0.0.0:4222", ""),
)
LOCAL = ("127.0.0.1:2379", "http://[::1]:2379/", "nats://user:word@localhost:4222", "127.9.9.9")


def test_what_a_client_may_read_as_another_machine_is_not_local() -> None:
    assert [url for url in (*NOT_LOCAL, *LOCAL) if is_local(url)] == [*LOCAL]


def test_the_port_comes_from_the_flag_then_the_environment_then_is_8000() -> None:
    worker = mocker("worker", "agg")
    assert adapted(deployment(frontend("--http-port", "9000"), worker)).port == 9000
    assert adapted(deployment(frontend(env={"DYN_HTTP_PORT": "9001"}), worker)).port == 9001
    assert adapted(deployment(frontend(), worker)).port == 8000
    assert adapted(deployment(frontend("--http-port=9000"), worker), port=0).port == 0


def test_an_edit_of_a_flag_changes_the_key_and_one_of_replicas_does_not() -> None:
    before, more, other = (
        adapted(deployment(frontend(), worker)).programs[0]
        for worker in (
            mocker("worker", "agg"),
            mocker("worker", "agg", replicas=4),
            mocker("worker", "agg", "--block-size", "64"),
        )
    )
    assert before.key == more.key
    assert before.key != other.key


def test_a_note_names_the_chat_processor_that_is_replaced() -> None:
    local = with_frontend("--dyn-chat-processor", "vllm")
    assert "--dyn-chat-processor" not in named(local, "frontend").argv
    assert any("chat processor" in note for note in local.notes)


def test_a_launch_behind_a_wrapper_is_recognized() -> None:
    launch = Launch(argv=("numactl", "-m", "0", "python3", "-m", "dynamo.trtllm", "--x"), env={})
    assert launch.module == "dynamo.trtllm"
    assert launch.arguments == ("--x",)


def test_notes_name_the_tls_and_grpc_flags_that_the_frontend_ignores() -> None:
    local = with_frontend("--tls-cert-path", "/c", "--kserve-grpc-server", "--router-mode", "kv")
    argv = named(local, "frontend").argv
    assert argv[-2:] == ("--router-mode", "kv")
    assert not {"--tls-cert-path", "/c", "--kserve-grpc-server"} & set(argv)
    assert sum("ignoring --" in note for note in local.notes) == 2
