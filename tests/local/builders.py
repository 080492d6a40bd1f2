"""Builds small deployments in code, as the manifest reader would return them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.local.reconcile import ReplicaState
from penstock.local.state_file import FileDiscoveryState, LocalState, Phase, ReplicaStatus
from penstock.manifests.deployment import (
    Component,
    Deployment,
    Engine,
    EngineConfig,
    Launch,
    NoConfig,
    Role,
)

FRONTEND = ("python3", "-m", "dynamo.frontend", "--router-mode", "kv")
MOCKER = ("python3", "-m", "dynamo.mocker", "--model-path", "acme/model")
TRTLLM = ("python3", "-m", "dynamo.trtllm", "--model-path", "acme/model")


def component(
    name: str,
    role: Role,
    *argv: str,
    engine: Engine | None = None,
    replicas: int = 1,
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    config: EngineConfig | None = None,
    launches: tuple[Launch, ...] = (),
    gpus: int = 0,
    nodes: int = 1,
) -> Component:
    launch = Launch(argv=argv, env=env or {}, files=files or {}, place=name)
    return Component(
        name=name,
        role=role,
        replicas=replicas,
        gpus=gpus,
        nodes=nodes,
        image="registry/image:1.6.1",
        launches=launches or (launch,),
        engine=engine,
        engine_config=config or NoConfig(),
        grace_s=60,
        place=name,
    )


def frontend(*more: str, env: Mapping[str, str] | None = None, replicas: int = 1) -> Component:
    return component("Frontend", Role.FRONTEND, *FRONTEND, *more, env=env, replicas=replicas)


def mocker(name: str, mode: str, *more: str, replicas: int = 1) -> Component:
    argv = (*MOCKER, "--disaggregation-mode", mode, *more)
    return component(name, Role(name), *argv, engine=Engine.MOCKER, replicas=replicas)


def deployment(*components: Component) -> Deployment:
    return Deployment(
        name="graph",
        namespace="default",
        api_version="nvidia.com/v1beta1",
        components=components,
        source="graph.yaml",
    )


def running(pid: int = 1, sets: tuple[str, ...] = ()) -> LocalState:
    """The state file of a small running graph."""
    replica = ReplicaStatus(
        name="decode.0",
        program="decode",
        role=Role.DECODE,
        state=ReplicaState.READY,
        pid=2,
        port=None,
        system_port=20001,
        worker_id="ab",
        restarts=0,
        exit_code=None,
        log="/tmp/decode.0.log",
        is_substitute=True,
        is_mocker=True,
    )
    return LocalState(
        pid=pid,
        source="/graphs/graph.yaml",
        sets=sets,
        phase=Phase.READY,
        endpoint="http://127.0.0.1:8000/v1",
        models=("acme/model",),
        envoy=False,
        notes=("decode: using mocker instead of trtllm (no GPU on this machine)",),
        rejected_edit=(),
        desired_replicas={"decode": 1},
        discovery=FileDiscoveryState(folder="/run/discovery", namespace="default-graph-1"),
        replicas=(replica,),
    )
