"""What `up` does with parts of published manifests that cannot run on a laptop."""

from __future__ import annotations

import pytest

from penstock.errors import ManifestError
from penstock.local.adapt import adapt, require_pairs
from penstock.local.deployment import LocalDeployment, Overrides
from penstock.manifests.deployment import Component, Deployment, Engine, Role
from penstock.manifests.flags import flag_value
from penstock.manifests.read import read_text
from tests.local.builders import MOCKER, component, deployment, frontend, mocker
from tests.local.test_adapt import LAPTOP, adapted, no_settings, nowhere, simulate

PROFILE = "/workspace/tests/planner/profiling_results/H200_TP1P_TP1D"
EPP = """\
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: picked}
spec:
  components:
  - name: Epp
    type: epp
    podTemplate: {spec: {containers: [{name: main, image: epp:1.6.1}]}}
  - name: Worker
    type: worker
    frontendSidecar: sidecar
    podTemplate:
      spec:
        containers:
        - name: main
          image: planner:1.6.1
          command: [python3, -m, dynamo.mocker, --model-path, acme/model]
        - name: sidecar
          image: frontend:1.6.1
          args: [-m, dynamo.frontend, --router-mode, direct]
"""


def arguments(local: LocalDeployment, name: str) -> tuple[str, ...]:
    program = local.program(name)
    assert program is not None
    return program.argv


def test_an_endpoint_picker_is_reported_and_its_frontends_route_by_themselves() -> None:
    (graph,) = read_text(EPP, "graph.yaml")
    local = adapted(graph)
    assert flag_value(arguments(local, "worker-1"), "--router-mode") == "kv"
    notes = "\n".join(local.notes)
    assert "Epp: not started on this machine (an endpoint picker, which only a cluster has" in notes
    assert "worker-1: using --router-mode kv instead of direct" in notes


def test_direct_routing_by_variable_is_replaced_too_and_other_modes_are_not() -> None:
    direct = component(
        "Frontend",
        Role.FRONTEND,
        *("python3", "-m", "dynamo.frontend"),
        env={"DYN_ROUTER_MODE": "direct"},
    )
    local = adapted(deployment(direct, mocker("worker", "agg")))
    assert flag_value(arguments(local, "frontend"), "--router-mode") == "kv"
    random = frontend("--router-mode", "random", env={"DYN_ROUTER_MODE": "direct"})
    local = adapted(deployment(random, mocker("worker", "agg")))
    assert flag_value(arguments(local, "frontend"), "--router-mode") == "random"
    assert not any("direct" in note for note in local.notes)


def test_flags_that_only_an_engines_chat_processor_reads_are_left_out() -> None:
    processor = ("--dyn-chat-processor", "sglang", "--reasoning-parser", "qwen3")
    engines = frontend(*processor, "--router-temperature", "0.5", "--tool-call-parser=qwen3_coder")
    local = adapted(deployment(engines, mocker("worker", "agg")))
    argv = arguments(local, "frontend")
    assert flag_value(argv, "--router-temperature") == "0.5"
    assert not {"qwen3", "--reasoning-parser", "--tool-call-parser=qwen3_coder"} & set(argv)
    assert (
        "frontend: ignoring --reasoning-parser, --tool-call-parser, which only sglang's chat "
        "processor reads"
    ) in local.notes


def with_profile(graph: Deployment, *existing: str) -> LocalDeployment:
    return adapt(
        graph,
        LAPTOP,
        Overrides(),
        nowhere,
        simulate,
        no_settings,
        exists=lambda path: path in existing,
    )


def profiled(**more: dict[str, str]) -> Component:
    argv = (*MOCKER, "--planner-profile-data", PROFILE, "--speedup-ratio", "2")
    return component("worker", Role.WORKER, *argv, engine=Engine.MOCKER, **more)  # type: ignore[arg-type]


def test_a_mocker_without_the_files_of_its_image_runs_and_a_note_names_them() -> None:
    local = with_profile(deployment(frontend(), profiled()))
    argv = arguments(local, "worker")
    assert PROFILE not in argv
    assert flag_value(argv, "--speedup-ratio") == "2"
    assert (
        f"worker: ignoring --planner-profile-data: {PROFILE} is neither in the manifest nor on "
        "this machine"
    ) in local.notes
    assert "worker: the step times are the mocker's own, not those of the graph's GPUs" in (
        local.notes
    )


def test_a_mocker_keeps_files_of_the_manifest_and_of_this_machine() -> None:
    for local in (
        with_profile(deployment(frontend(), profiled()), PROFILE),
        with_profile(deployment(frontend(), profiled(files={PROFILE: "{}"}))),
    ):
        assert flag_value(arguments(local, "worker"), "--planner-profile-data") == PROFILE
        assert not any("ignoring" in note for note in local.notes)


def test_a_mocker_with_step_times_of_aisimulate_runs_without_them() -> None:
    simulated = mocker("worker", "agg", "--aic-perf-model", "--aic-backend", "vllm", "--block", "8")
    local = adapted(deployment(frontend(), simulated))
    argv = arguments(local, "worker")
    assert argv[-2:] == ("--block", "8")
    assert "vllm" not in argv
    assert (
        "worker: ignoring --aic-perf-model, --aic-backend: AISimulate is not installed with this "
        "mocker"
    ) in local.notes


def test_prefill_workers_without_decode_workers_are_refused_with_the_component_that_is_meant() -> (
    None
):
    unset = component("decode", Role.DECODE, *MOCKER, engine=Engine.MOCKER)
    graph = deployment(frontend(), mocker("prefill", "prefill"), unset)
    with pytest.raises(ManifestError, match=r"prefill: runs as a prefill worker, but no .*decode"):
        require_pairs(graph, adapted(graph).programs)
    with pytest.raises(ManifestError, match=r"Add `--disaggregation-mode decode` to .* of decode"):
        require_pairs(graph, adapted(graph).programs)
    paired = deployment(frontend(), mocker("prefill", "prefill"), mocker("decode", "decode"))
    require_pairs(paired, adapted(paired).programs)


def test_a_graph_without_a_worker_says_what_its_components_run() -> None:
    other = component("Video", Role.WORKER, "python", "-u", "/app/serve.py")
    with pytest.raises(
        ManifestError, match=r"no worker .*\(not started: Video runs python -u /app/serve\.py\)"
    ):
        adapted(deployment(frontend(), other))
