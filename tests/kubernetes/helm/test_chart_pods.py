"""Pods: arguments, environment, resources, volumes, shutdown, and what each fabric needs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.graph.generate import _hardware
from penstock.hardware.gpus import GPUS
from tests.support.charts import Chart, Values, graph_values


@pytest.mark.parametrize(
    ("kind", "head", "config"),
    [
        ("vllm", ["--model", "a/b", "--served-model-name", "a/b"], "--config"),
        ("sglang", ["--model-path", "a/b", "--served-model-name", "a/b"], "--config"),
        ("mocker", ["--model-path", "a/b", "--model-name", "a/b"], "--extra-engine-args"),
    ],
)
def test_arguments_of_the_other_engines(
    chart: Chart, kind: str, head: list[str], config: str
) -> None:
    file = "engine.json" if kind == "mocker" else "engine.yaml"
    args = chart.args(graph_values(kind, shape="agg", model={"id": "a/b"}), "worker")
    assert args == [*head, config, f"/etc/penstock/{file}"]


def test_the_mocker_gets_no_parsers(chart: Chart) -> None:
    values = graph_values(model={"id": "a/b", "reasoning_parser": "gpt_oss"})
    assert "--dyn-reasoning-parser" not in chart.args(values, "decode")


@pytest.mark.parametrize("router", [{"mode": "random"}, {"kv_events": False}])
def test_workers_publish_events_only_if_the_router_uses_them(
    chart: Chart, router: dict[str, object]
) -> None:
    assert "--publish-kv-events" not in chart.args(graph_values("trtllm", router=router), "prefill")
    assert "kv-events-config" not in chart.config(graph_values("vllm", router=router), "prefill")


@pytest.mark.parametrize("kind", ["trtllm", "vllm", "sglang", "mocker"])
@pytest.mark.parametrize("drain", [1, 180, 3600])
def test_all_shutdown_waits_fit_into_the_grace_period(chart: Chart, kind: str, drain: int) -> None:
    values = graph_values(kind, drain_timeout_s=drain)
    pod, env = chart.pod(values, "prefill"), chart.env(values, "prefill")
    waits = int(env.get("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", 0))
    waits += int(env["DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"])
    drain_of_trtllm_prefill = 30
    assert drain <= waits
    assert waits + drain_of_trtllm_prefill <= int(env["DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"])
    assert int(env["DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"]) < pod["terminationGracePeriodSeconds"]
    assert pod["terminationGracePeriodSeconds"] == drain + 60


def test_a_frontend_finishes_its_streams(chart: Chart) -> None:
    values = graph_values(drain_timeout_s=300)
    pod, env = chart.pod(values, "frontend"), chart.env(values, "frontend")
    assert env["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"] == "300"
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    runtime = int(env["DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"])
    assert pause + 300 + runtime < pod["terminationGracePeriodSeconds"]


def test_the_more_specific_environment_wins(chart: Chart) -> None:
    values = graph_values(
        env={"A": "graph", "B": "graph", "C": "graph"},
        engine={"kind": "mocker", "env": {"B": "engine", "C": "engine"}},
        decode={"env": {"C": "decode", "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": "1"}},
    )
    env = chart.env(values, "decode")
    assert (env["A"], env["B"], env["C"]) == ("graph", "engine", "decode")
    assert env["DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"] == "1"
    assert chart.env(values, "frontend")["B"] == "graph"


def test_gpus_are_limits_and_zero_gpus_are_not_requested(chart: Chart) -> None:
    values = graph_values("trtllm", decode={"gpus": 4, "resources": {"cpu": "8", "memory": "64Gi"}})
    assert chart.main(values, "decode")["resources"] == {
        "limits": {"nvidia.com/gpu": "4", "memory": "64Gi"},
        "requests": {"cpu": "8", "memory": "64Gi"},
    }
    assert chart.main(values, "prefill")["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert "resources" not in chart.main(graph_values(), "prefill")


def test_the_cache_is_mounted_everywhere(chart: Chart) -> None:
    values = graph_values(model={"id": "a/b", "cache": {"pvc": "cache"}, "token_secret": "hf"})
    for name in ("frontend", "prefill", "decode"):
        main = chart.main(values, name)
        assert {"name": "model-cache", "mountPath": "/opt/model-cache"} in main["volumeMounts"]
        assert main["envFrom"] == [{"secretRef": {"name": "hf"}}]
        assert chart.env(values, name)["HF_HOME"] == "/opt/model-cache"
        claims = [v.get("persistentVolumeClaim") for v in chart.pod(values, name)["volumes"]]
        assert {"claimName": "cache"} in claims


def test_pod_fragments_are_merged_and_volumes_are_added(chart: Chart) -> None:
    values = graph_values(
        pod={
            "nodeSelector": {"a": "graph", "b": "graph"},
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "tolerations": [{"operator": "Exists"}],
        },
        decode={"pod": {"nodeSelector": {"b": "decode"}, "tolerations": [], "hostNetwork": False}},
    )
    decode = chart.pod(values, "decode")
    assert decode["nodeSelector"] == {"a": "graph", "b": "decode"}
    assert decode["tolerations"] == []
    assert decode["hostNetwork"] is False
    assert [v["name"] for v in decode["volumes"]] == ["engine-config", "scratch"]
    assert chart.pod(values, "frontend")["tolerations"] == [{"operator": "Exists"}]
    assert [v["name"] for v in chart.pod(values, "frontend")["volumes"]] == ["scratch"]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        (None, None),
        ("r/dynamo:1.6.1", None),
        ("r/dynamo:1.6.1-efa", None),
        ("r/dynamo:v1.6.1", "1.6.1"),
        ("r/dynamo:latest", "1.6.1"),
        ("localhost:5000/dynamo", "1.6.1"),
        ("r/dynamo@sha256:" + "a" * 64, "1.6.1"),
        ("r/dynamo:1.5.2@sha256:" + "a" * 64, "1.5.2"),
        ("r/dynamo:1.5.2_ours", "1.5.2"),
    ],
)
def test_the_operator_gets_a_version_if_the_tag_has_none(
    chart: Chart, image: str | None, version: str | None
) -> None:
    values = graph_values(engine={"kind": "mocker", "image": image})
    for component in chart.dgd(values)["spec"]["components"]:
        assert component.get("runtimeVersionOverride") == version


def test_each_component_may_have_its_own_image(chart: Chart) -> None:
    values = graph_values(
        "trtllm",
        engine={"kind": "trtllm", "image": "e:1.6.1"},
        frontend={"image": "f:1.6.1"},
        decode={"image": "d:1.6.1"},
    )
    images = [chart.main(values, n)["image"] for n in ("frontend", "prefill", "decode")]
    assert images == ["f:1.6.1", "e:1.6.1", "d:1.6.1"]


@pytest.mark.parametrize(
    ("infrastructure", "env"),
    [
        ({}, {}),
        ({"discovery": "file"}, {"DYN_DISCOVERY_BACKEND": "file"}),
        (
            {"discovery": "etcd", "etcd_endpoints": ["http://a:1", "http://b:1"]},
            {"DYN_DISCOVERY_BACKEND": "etcd", "ETCD_ENDPOINTS": "http://a:1,http://b:1"},
        ),
        (
            {"events": "nats", "requests": "nats", "nats_url": "nats://n:1"},
            {"DYN_EVENT_PLANE": "nats", "DYN_REQUEST_PLANE": "nats", "NATS_SERVER": "nats://n:1"},
        ),
    ],
)
def test_infrastructure_reaches_every_component(
    chart: Chart, infrastructure: dict[str, object], env: dict[str, str]
) -> None:
    values = graph_values(infrastructure=infrastructure)
    ours = {"DYN_DISCOVERY_BACKEND", "ETCD_ENDPOINTS", "NATS_SERVER"}
    ours |= {"DYN_EVENT_PLANE", "DYN_REQUEST_PLANE"}
    for name in ("frontend", "prefill", "decode"):
        assert {k: v for k, v in chart.env(values, name).items() if k in ours} == env


def test_the_operator_gets_the_etcd_endpoints_too(chart: Chart) -> None:
    dgd = chart.dgd(graph_values(infrastructure={"discovery": "etcd"}))
    assert dgd["metadata"]["annotations"]["nvidia.com/dynamo-discovery-backend"] == "etcd"


def test_sglang_keeps_its_own_timeout_unless_the_graph_sets_one(chart: Chart) -> None:
    name = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
    assert name not in chart.env(graph_values("sglang"), "decode")
    values = graph_values("sglang", kv_transfer={"timeout_ms": 90500})
    assert chart.env(values, "decode")[name] == "91"
    assert name not in chart.env(values, "frontend")


@pytest.mark.parametrize(
    ("sections", "status"),
    [
        ({}, None),
        ({"decode": {"request_limit": 8}}, "429"),
        ({"router": {"active_prefill_tokens_threshold": 8192}}, "429"),
        ({"decode": {"request_limit": 8}, "frontend": {"overload_status": 503}}, "503"),
        ({"frontend": {"overload_status": 429}}, "429"),
    ],
)
def test_the_status_of_overload_is_set_where_requests_are_rejected(
    chart: Chart, sections: dict[str, object], status: str | None
) -> None:
    environment = chart.env(graph_values(**sections), "frontend")
    assert environment.get("DYN_HTTP_OVERLOAD_STATUS_CODE") == status


def test_the_limit_without_a_token_is_set_where_the_graph_has_one(chart: Chart) -> None:
    for section, limit in (({}, None), ({"inactivity_timeout_s": 120}, "120")):
        environment = chart.env(graph_values(frontend=section), "frontend")
        assert environment.get("DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS") == limit


TRTLLM = {"kind": "trtllm"}


def graph(fabric: str | None, kind: str = "trtllm", **sections: Any) -> Values:
    hardware = {"fabric": fabric, **sections.pop("hardware", {})}
    return graph_values(kind, hardware=hardware, **sections)


def selected(pod: Values) -> list[str]:
    """The products that a pod's node must have one of; empty: any node."""
    required = pod.get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [
        value
        for term in terms.get("nodeSelectorTerms", [])
        for expression in term["matchExpressions"]
        if expression["key"] == "nvidia.com/gpu.product"
        for value in expression["values"]
    ]


@pytest.mark.parametrize("gpu", sorted(_hardware()))
def test_workers_run_on_nodes_with_the_graphs_gpu(chart: Chart, gpu: str) -> None:
    values = graph(None, hardware={"gpu": gpu})
    assert selected(chart.pod(values, "decode")) == list(GPUS[gpu].products)
    assert selected(chart.pod(values, "frontend")) == []


def test_product_labels_override_the_known_ones(chart: Chart) -> None:
    labeled = graph(None, hardware={"gpu": "h100", "product_labels": ["NVIDIA-H100-NVL"]})
    assert selected(chart.pod(labeled, "decode")) == ["NVIDIA-H100-NVL"]
    anywhere = graph(None, hardware={"gpu": "h100", "product_labels": []})
    assert selected(chart.pod(anywhere, "decode")) == []


def test_pods_tolerate_gpu_nodes_and_arm_nodes_on_grace(chart: Chart) -> None:
    def tolerated(gpu: str, name: str) -> set[str]:
        pod = chart.pod(graph(None, hardware={"gpu": gpu}), name)
        return {toleration["key"] for toleration in pod.get("tolerations", [])}

    assert tolerated("b200", "decode") == {"nvidia.com/gpu"}
    assert tolerated("b200", "frontend") == set()
    assert tolerated("gb200", "decode") == {"nvidia.com/gpu", "kubernetes.io/arch"}
    assert tolerated("gb200", "frontend") == {"kubernetes.io/arch"}


def test_tolerations_of_a_graph_are_added(chart: Chart) -> None:
    toleration = {"key": "team", "operator": "Exists"}
    pod = chart.pod(graph(None, pod={"tolerations": [toleration]}), "decode")
    assert [t["key"] for t in pod["tolerations"]] == ["nvidia.com/gpu", "team"]


DEVICES = [
    ("ib", "rdma/ib", {"UCX_TLS", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH"}),
    ("roce", "rdma/ib", {"UCX_TLS", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH", "UCX_IB_ADDR_TYPE"}),
    (
        "efa",
        "vpc.amazonaws.com/efa",
        {"FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "FI_EFA_ENABLE_SHM_TRANSFER"}
        | {"TRTLLM_NIXL_KVCACHE_BACKEND"},
    ),
]


@pytest.mark.parametrize(("fabric", "resource", "variables"), DEVICES)
def test_each_fabric_has_its_devices_and_settings(
    chart: Chart, fabric: str, resource: str, variables: set[str]
) -> None:
    values = graph(fabric, decode={"gpus": 4})
    limits = chart.main(values, "decode")["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "4", resource: "4"}
    written = {n for n in chart.env(values, "decode") if n.startswith(("UCX", "FI_", "TRTLLM"))}
    assert written == variables
    assert not {n for n in chart.env(values, "frontend") if n.startswith(("UCX", "FI_"))}


def test_efa_has_its_own_images_and_nixl_backend(chart: Chart) -> None:
    assert chart.main(graph("efa"), "decode")["image"].endswith("tensorrtllm-runtime:1.6.1-efa")
    vllm = chart.config(graph("efa", "vllm"), "decode")["kv-transfer-config"]
    assert vllm["kv_connector_extra_config"] == {"backends": ["LIBFABRIC"]}
    sglang = chart.env(graph("efa", "sglang"), "decode")
    assert sglang["SGLANG_DISAGGREGATION_NIXL_BACKEND"] == "LIBFABRIC"


def test_the_number_of_devices_can_be_set(chart: Chart) -> None:
    values = graph("efa", kv_transfer={"rdma_devices": 32}, decode={"gpus": 8})
    assert chart.main(values, "decode")["resources"]["limits"]["vpc.amazonaws.com/efa"] == "32"


def test_the_racks_nvlink_is_a_compute_domain(chart: Chart) -> None:
    values = graph("mnnvl", hardware={"gpu": "gb200"})
    (domain,) = (o for o in chart.render(values).objects if o["kind"] == "ComputeDomain")
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    pod = chart.pod(values, "decode")
    (claim,) = pod["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template
    assert chart.main(values, "decode")["resources"]["claims"] == [{"name": claim["name"]}]
    assert chart.env(values, "decode")["UCX_CUDA_IPC_ENABLE_MNNVL"] == "y"
    assert "resourceClaims" not in chart.pod(values, "frontend")


def test_a_single_pool_on_one_node_needs_no_fabric(chart: Chart) -> None:
    for fabric in ("ib", "mnnvl"):
        values = graph(fabric, shape="agg")
        assert chart.main(values, "worker")["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        kinds = {o["kind"] for o in chart.render(values).objects}
        assert "ComputeDomain" not in kinds


def test_an_engine_on_two_nodes_needs_a_fabric(chart: Chart) -> None:
    values = graph("ib", shape="agg", worker={"nodes": 2, "gpus": 8})
    assert chart.main(values, "worker")["resources"]["limits"]["rdma/ib"] == "8"
    assert "UCX_TLS" not in chart.env(values, "worker")  # NCCL only, no KV transfer


def test_without_a_fabric_kv_is_transferred_over_tcp_only(chart: Chart) -> None:
    values = graph("none")
    assert chart.env(values, "decode")["UCX_TLS"].split(",")[0] == "tcp"
    assert chart.main(values, "decode")["resources"]["limits"] == {"nvidia.com/gpu": "1"}


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("name", ["frontend", "prefill", "decode"])
def test_pods_without_rdma_satisfy_the_restricted_pod_security_standard(
    chart: Chart, name: str
) -> None:
    values = graph_values("trtllm")
    pod = chart.pod(values, name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 1000  # dynamo, in NVIDIA's images
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert chart.main(values, name)["securityContext"] == RESTRICTED


@pytest.mark.parametrize(
    ("security", "fabric", "user", "container"),
    [
        ("least", "ib", 0, {"drop": ["ALL"], "add": ["IPC_LOCK"]}),
        ("nonroot", "ib", 1000, {"drop": ["ALL"], "add": ["IPC_LOCK"]}),
        ("image", "ib", None, {"add": ["IPC_LOCK"]}),
        ("image", None, None, None),
    ],
)
def test_rdma_pods_are_root_only_where_the_nodes_limit_locked_memory(
    chart: Chart, security: str, fabric: str | None, user: int | None, container: object
) -> None:
    values = graph(fabric, cluster={"security": security})
    pod, main = chart.pod(values, "decode"), chart.main(values, "decode")
    assert pod.get("securityContext", {}).get("runAsUser") == user
    assert main.get("securityContext", {}).get("capabilities") == container
    if security != "image":
        frontend = chart.pod(values, "frontend")
        assert frontend["securityContext"]["runAsUser"] == 1000


def test_only_efa_is_privileged(chart: Chart) -> None:
    assert chart.main(graph("efa"), "decode")["securityContext"] == {"privileged": True}
    assert chart.main(graph("efa"), "frontend")["securityContext"] == RESTRICTED
