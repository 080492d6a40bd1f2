"""Deployments read from small manifests."""

from __future__ import annotations

import pytest

from penstock.errors import ManifestError
from penstock.manifests.deployment import Engine, KnownConfig, NoConfig, Role, UnknownConfig
from penstock.manifests.read import read_text
from tests.manifests.manifests import FRONTEND, alpha, beta, first, read, read_objects, worker

VLLM = "command: [python3, -m, dynamo.vllm]\n"


def test_a_v1beta1_graph_has_its_components_in_order() -> None:
    deployment = read(beta(FRONTEND + worker(VLLM)))
    assert [c.name for c in deployment.components] == ["Frontend", "w"]
    assert (deployment.name, deployment.namespace, deployment.source) == ("g", "default", "f.yaml")
    assert deployment.component("w").place == "spec.components[1]"


ENTRYPOINT = "no command: the image's entrypoint gets these arguments"


@pytest.mark.parametrize(
    ("kind", "container", "argv", "is_script"),
    [
        ("frontend", "", "python3 -m dynamo.frontend", False),
        (
            *("frontend", "args: [-m, dynamo.frontend, --router-mode, kv]"),
            *("python3 -m dynamo.frontend --router-mode kv", False),
        ),
        (
            *("worker", "args: ['python3 -m dynamo.vllm --model a/b', -x]"),
            *("python3 -m dynamo.vllm --model a/b", True),
        ),
        ("worker", "args: [python3, -m, dynamo.vllm]", "python3 -m dynamo.vllm", False),
        ("epp", "args: [serve, --x]", "serve --x", False),
        (
            *("worker", VLLM + "args: ['${MODEL}', '$(NOPE)']"),
            *("python3 -m dynamo.vllm ${MODEL} $(NOPE)", False),
        ),
        (
            *("worker", "command: [numactl, --membind=0, python3, -u, -m, dynamo.vllm]"),
            *("numactl --membind=0 python3 -u -m dynamo.vllm", False),
        ),
    ],
)
def test_what_runs_is_what_the_operator_and_the_container_say(
    kind: str, container: str, argv: str, is_script: bool
) -> None:
    component = first(beta(worker(container + "\n", kind=kind)))
    (launch,) = component.launches
    assert (" ".join(launch.argv), launch.shell) == (argv, is_script)
    is_of_image = container.startswith("args") and kind != "frontend" and not is_script
    assert len(launch.unresolved) == argv.count("$") + is_of_image
    assert (ENTRYPOINT in launch.unresolved) == is_of_image
    assert (component.engine is Engine.VLLM) == ("dynamo.vllm" in argv)


def test_a_v1alpha1_graph_is_read_like_a_v1beta1_graph() -> None:
    deployment = read(
        alpha("""
        Decode:
          componentType: worker
          subComponentType: decode
          replicas: 0
          multinode: {nodeCount: 4}
          resources: {limits: {gpu: "4"}}
          envFromSecret: token
          extraPodSpec:
            terminationGracePeriodSeconds: 300
            mainContainer:
              image: a/sglang:1
              workingDir: /w
              command: [python3, -m, dynamo.sglang]
              args: [--disaggregation-mode, decode]
        """)
    )
    (component,) = deployment.components
    assert (component.role, component.engine) == (Role.DECODE, Engine.SGLANG)
    assert (component.replicas, component.nodes, component.gpus) == (0, 4, 16)
    assert component.grace_s == 300
    assert component.place == "spec.services.Decode"
    assert component.launches[0].secrets == ("token",)
    assert component.launches[0].cwd == "/w"


def test_objects_read_like_text() -> None:
    import yaml

    text = beta(FRONTEND + worker(VLLM))
    assert read_objects(yaml.safe_load_all(text), "f.yaml") == read_text(text, "f.yaml")


def test_the_items_of_a_kubectl_list_are_read() -> None:
    text = beta(FRONTEND).replace("\n", "\n  ").strip()
    (deployment,) = read_text(f"apiVersion: v1\nkind: List\nitems:\n- {text}\n", "f.yaml")
    assert deployment.name == "g"


def test_several_graphs_in_one_text_are_all_read() -> None:
    text = beta(FRONTEND, name="a") + "---\n" + beta(FRONTEND, name="b")
    assert [d.name for d in read_text(text, "f.yaml", namespace="ns")] == ["a", "b"]
    assert {d.namespace for d in read_text(text, "f.yaml", namespace="ns")} == {"ns"}


def test_merge_keys_and_anchors_are_followed() -> None:
    text = alpha("""
        A: &a
          componentType: worker
          extraPodSpec: {mainContainer: {image: i, command: [python3, -m, dynamo.vllm]}}
        B:
          <<: *a
          replicas: 3
        """)
    assert [c.replicas for c in read(text).components] == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "role"),
    [
        ("[--disaggregation-mode, prefill]", Role.PREFILL),
        ("[--disaggregation-mode=decode]", Role.DECODE),
        ("[--disaggregation-mode, agg]", Role.WORKER),
        ("[--disaggregation-mode, encode]", Role.ENCODE),
        ("[--is-prefill-worker]", Role.PREFILL),
        ("[--is-decode-worker]", Role.DECODE),
        ("[]", Role.WORKER),
    ],
)
@pytest.mark.parametrize("kind", ["main", "worker", "prefill-pool"])
def test_the_launch_decides_the_role_if_the_type_does_not(
    kind: str, arguments: str, role: Role
) -> None:
    text = alpha(f"""
        W:
          componentType: {kind}
          extraPodSpec:
            mainContainer: {{image: i, command: [python3, -m, dynamo.vllm], args: {arguments}}}
        """)
    assert first(text).role is role


MODE = "env: [{name: DYN_TRTLLM_DISAGGREGATION_MODE, value: prefill}]\n"


@pytest.mark.parametrize(
    ("kind", "container", "role"),
    [
        ("decode", VLLM + "args: [--disaggregation-mode, prefill]\n", Role.PREFILL),
        ("worker", "command: [python3, -m, dynamo.trtllm]\n" + MODE, Role.PREFILL),
        ("planner", "command: [python3, -m, dynamo.planner]\n", Role.PLANNER),
        ("epp", "", Role.EPP),
        ("", "command: [python3, -m, dynamo.router]\n", Role.OTHER),
    ],
)
def test_the_launch_overrides_the_type_only_if_it_serves_an_engine(
    kind: str, container: str, role: Role
) -> None:
    text = worker(container, kind=kind).replace("  type: \n", "")
    assert first(beta(text)).role is role


def test_a_decode_worker_without_mode_is_aggregated_unless_there_is_prefill() -> None:
    lone = beta(worker(VLLM, kind="decode"))
    assert first(lone).role is Role.WORKER
    prefill = worker(VLLM, kind="prefill").replace("name: w", "name: p")
    assert first(beta(worker(VLLM, kind="decode") + prefill)).role is Role.DECODE


@pytest.mark.parametrize("engine", list(Engine))
def test_the_engine_is_the_module(engine: Engine) -> None:
    assert first(beta(worker(f"command: [python3, -m, {engine.module}]\n"))).engine is engine


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ("{limits: {nvidia.com/gpu: '4'}, requests: {nvidia.com/gpu: '2'}}", 4),
        ("{requests: {nvidia.com/gpu: 2}}", 2),
        ("{limits: {gpu.intel.com/xe: '8'}}", 8),
        ("{limits: {amd.com/gpu: 1, cpu: 4}}", 1),
        ("{limits: {nvidia.com/mig-1g.10gb: 3}}", 3),
        ("{limits: {rdma/ib: 8, memory: 4Gi}}", 0),
    ],
)
def test_gpus_of_every_vendor_count_over_all_nodes(resources: str, count: int) -> None:
    container = VLLM + f"resources: {resources}\n"
    assert first(beta(worker(container))).gpus == count
    component = first(beta(worker(container, more="multinode: {}\n")))
    assert (component.nodes, component.gpus) == (2, 2 * count)


def test_claimed_gpus_count_if_the_file_has_the_template() -> None:
    template = """
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaimTemplate
        metadata: {name: two}
        spec:
          spec:
            devices:
              requests: [{name: g, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]
        """
    pod = "resourceClaims: [{name: g, resourceClaimTemplateName: two}]\n"
    assert first(beta(worker(VLLM, pod=pod), more=template)).gpus == 2
    assert first(beta(worker(VLLM, pod=pod))).gpus == 0


def test_a_sidecar_is_a_launch_only_if_it_runs_a_dynamo_module() -> None:
    text = worker(VLLM, more="frontendSidecar: side\n")
    text += "\n      - {name: side, image: i, args: [-m, dynamo.frontend, --router-mode, direct]}"
    text += "\n      - {name: logs, image: i, command: [fluent-bit]}"
    component = first(beta(text))
    assert [launch.module for launch in component.launches] == ["dynamo.vllm", "dynamo.frontend"]
    assert component.launches[1].arguments == ("--router-mode", "direct")


def test_an_alpha_frontend_sidecar_is_a_launch() -> None:
    text = alpha("""
        W:
          componentType: worker
          extraPodSpec: {mainContainer: {image: i, command: [python3, -m, dynamo.vllm]}}
          frontendSidecar: {image: i, envFromSecret: s, envs: [{name: A, value: "1"}]}
        """)
    launch = first(text).launches[1]
    assert (launch.argv[-1], launch.env, launch.secrets) == ("dynamo.frontend", {"A": "1"}, ("s",))


def test_several_engines_in_one_pod_are_several_launches() -> None:
    script = "for i in 0 1; do python3 -m dynamo.vllm --port 800$i & done; wait"
    component = first(beta(worker(f"command: [bash, -c]\nargs: ['{script}']\n")))
    assert [launch.argv[-1] for launch in component.launches] == ["8000", "8001"]
    assert all(launch.shell for launch in component.launches)


CONFIG = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: cm}
    data:
      e.yaml: |
        tensor_parallel_size: 4
        kv_cache_config: {dtype: fp8}
      m.json: '{"block_size": 16}'
    """
MOUNT = "volumeMounts: [{name: c, mountPath: /cfg}]\n"
VOLUME = "volumes: [{name: c, configMap: {name: cm}}]\n"
TRTLLM = "command: [python3, -m, dynamo.trtllm, --extra-engine-args, %s]\n"


def test_the_engines_file_comes_from_the_configmap() -> None:
    text = beta(worker(TRTLLM % "/cfg/e.yaml" + MOUNT, pod=VOLUME), more=CONFIG)
    config = first(text).engine_config
    assert isinstance(config, KnownConfig)
    assert config.values == {"tensor_parallel_size": 4, "kv_cache_config": {"dtype": "fp8"}}
    assert (config.path, config.place) == ("/cfg/e.yaml", "ConfigMap/cm/e.yaml")
    assert sorted(first(text).launches[0].files) == ["/cfg/e.yaml", "/cfg/m.json"]


HEREDOC = """
        command: [bash, -c]
        env: [{name: TP, value: "2"}]
        args:
        - |
          cat > /tmp/e.yaml <<EOF
          tensor_parallel_size: %s
          EOF
          exec python3 -m dynamo.vllm --config /tmp/e.yaml
        """
VARIABLE = "env: [{name: DYN_TRTLLM_EXTRA_ENGINE_ARGS, value: /cfg/e.yaml}]\n" + MOUNT
MOCKER = "command: [python3, -m, dynamo.mocker, --extra-engine-args=/cfg/m.json]\n" + MOUNT


@pytest.mark.parametrize(
    ("container", "key", "value"),
    [
        (TRTLLM % "./e.yaml" + MOUNT + "workingDir: /cfg/\n", "tensor_parallel_size", 4),
        ("command: [python3, -m, dynamo.trtllm]\n" + VARIABLE, "tensor_parallel_size", 4),
        (MOCKER, "block_size", 16),
        (HEREDOC % "$TP", "tensor_parallel_size", 2),
    ],
)
def test_the_engines_file_is_found_by_path_variable_and_in_the_script(
    container: str, key: str, value: int
) -> None:
    config = first(beta(worker(container, pod=VOLUME), more=CONFIG)).engine_config
    assert isinstance(config, KnownConfig)
    assert config.values[key] == value
    assert config.place.startswith("written by" if container.startswith("\n") else "ConfigMap/cm/")


CLAIM = "volumes: [{name: c, persistentVolumeClaim: {claimName: models}}]\n"


@pytest.mark.parametrize(
    ("container", "pod", "path", "reason"),
    [
        (TRTLLM % "/opt/e.yaml", "", "/opt/e.yaml", "it is in the image"),
        (
            *(TRTLLM % "/cfg/e.yaml" + MOUNT, CLAIM, "/cfg/e.yaml"),
            "it is on the volume c (persistentVolumeClaim models)",
        ),
        (
            TRTLLM % "/cfg/e.yaml" + MOUNT,
            VOLUME,
            "/cfg/e.yaml",
            "it is on the volume c (configMap cm)",
        ),
        (
            *(HEREDOC % "$(nvidia-smi -L | wc -l)", "", "/tmp/e.yaml"),
            "contains $(nvidia-smi -L | wc -l): the output of a command",
        ),
    ],
)
def test_a_file_that_the_manifest_lacks_is_unknown(
    container: str, pod: str, path: str, reason: str
) -> None:
    config = first(beta(worker(container, pod=pod))).engine_config
    assert config == UnknownConfig(path=path, reason=reason)


@pytest.mark.parametrize(
    ("mount", "volume", "path"),
    [
        ("{name: c, mountPath: /x.yaml, subPath: e.yaml}", "configMap: {name: cm}", "/x.yaml"),
        (
            "{name: c, mountPath: /d}",
            "configMap: {name: cm, items: [{key: e.yaml, path: sub/n.yaml}]}",
            "/d/sub/n.yaml",
        ),
        (
            "{name: c, mountPath: /d, subPath: sub}",
            "configMap: {name: cm, items: [{key: e.yaml, path: sub/n.yaml}]}",
            "/d/n.yaml",
        ),
        (
            "{name: c, mountPath: /d}",
            "projected: {sources: [{secret: {name: s}}, {configMap: {name: cm}}]}",
            "/d/e.yaml",
        ),
    ],
)
def test_every_kind_of_configmap_mount_is_read(mount: str, volume: str, path: str) -> None:
    container = TRTLLM % path + f"volumeMounts: [{mount}]\n"
    text = beta(worker(container, pod=f"volumes: [{{name: c, {volume}}}]\n"), more=CONFIG)
    assert isinstance(first(text).engine_config, KnownConfig)


def test_a_launch_without_a_file_has_no_config() -> None:
    assert first(beta(worker(VLLM))).engine_config == NoConfig()


def test_sglangs_file_may_set_the_mode() -> None:
    config = CONFIG.replace("tensor_parallel_size: 4", "disaggregation-mode: prefill")
    container = "command: [python3, -m, dynamo.sglang, --config, /cfg/e.yaml]\n" + MOUNT
    assert first(beta(worker(container, pod=VOLUME), more=config)).role is Role.PREFILL


def test_the_error_carries_every_problem() -> None:
    with pytest.raises(ManifestError) as caught:
        read_text("kind: DynamoGraphDeployment\n", "f.yaml")
    assert caught.value.exit_code == 5
    assert "f.yaml:1 apiVersion: no apiVersion" in str(caught.value)
