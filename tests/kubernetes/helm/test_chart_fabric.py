"""Scheduling, network devices and security contexts of pods."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.graph.generate import _hardware
from penstock.hardware.gpus import GPUS
from tests.support.charts import Chart, Values, graph_values

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


def test_root_of_an_engine_on_several_nodes_keeps_what_ssh_needs(chart: Chart) -> None:
    values = graph("ib", decode={"nodes": 2, "gpus": 8})
    capabilities = chart.main(values, "decode")["securityContext"]["capabilities"]
    assert capabilities == {"add": ["IPC_LOCK"]}
