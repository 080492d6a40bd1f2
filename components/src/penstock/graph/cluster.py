"""The sections of a graph that apply only on a cluster: volumes, permissions, networks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from penstock.graph.references import Image
from penstock.strict_yaml.base import (
    FolderPath,
    HttpUrl,
    Items,
    ObjectName,
    Opaque,
    Positive,
    Quantity,
    Spec,
    Text,
    invalid,
)


class CacheClaim(Spec):
    size: Quantity = Field(
        description="Storage size of the claim; the files of gpt-oss-120b take 61 GiB."
    )
    storage_class: ObjectName | None = Field(
        default=None, description="StorageClass; if unset, the cluster's default."
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        default="ReadWriteMany",
        description="Access mode of the claim. With ReadWriteOnce, all pods must run on one node, "
        "which the chart does not ensure.",
    )


class ModelCache(Spec):
    pvc: ObjectName = Field(
        description="Name of the PersistentVolumeClaim for the model files. Fill the volume in "
        "advance with a Hugging Face cache, let the pods download into it, or set `download`."
    )
    mount_path: FolderPath = Field(
        default="/opt/model-cache",
        description="Directory where every pod mounts the volume. HF_HOME is set to it.",
    )
    create: CacheClaim | None = Field(
        default=None,
        description="Create the claim; if unset, the claim must exist. A created claim remains "
        "when the release is uninstalled.",
    )
    download: bool = Field(
        default=False,
        description="Download the model (at model.revision, which must be a commit) and the draft "
        "model once, in a Job. Workers wait for the Job. No component accesses the Hugging Face "
        "Hub.",
    )
    offline: bool = Field(
        default=False,
        description="Prevent all pods from accessing the Hugging Face Hub, as in an air-gapped "
        "cluster. The claim must then contain all files.",
    )


class NetworkPolicy(Spec):
    enabled: bool = Field(
        default=False,
        description="Create NetworkPolicies. The pods of the graph then accept connections only "
        "from each other and from the peers of `clients` and `scrapers`. They may connect to each "
        "other. To other addresses, they may connect only on the ports of DNS, HTTPS, the API "
        "server, and the graph's etcd, NATS and Prometheus.",
    )
    clients: Items[Opaque] = Field(
        default=(),
        description="NetworkPolicyPeers that may connect to the endpoint; if empty, all peers may.",
    )
    scrapers: Items[Opaque] = Field(
        default=(),
        description="NetworkPolicyPeers that may connect to the metrics ports; if empty, only the "
        "pods of the graph may. The peers of `clients` may also read the metrics of a frontend, "
        "because these are on the port of the endpoint.",
    )
    egress: Items[Opaque] = Field(
        default=(),
        description="Additional egress rules of every pod, for example for a model store.",
    )


class Monitoring(Spec):
    pod_monitors: bool = Field(
        default=False,
        description="Create PodMonitors of the Prometheus operator for frontends and workers.",
    )
    interval_s: Positive = Field(default=15, description="Scrape interval in seconds.")
    labels: dict[str, str] = Field(
        default={}, description="Labels of the PodMonitors, by which Prometheus selects them."
    )
    prometheus: HttpUrl = Field(
        default="http://prometheus-operated.monitoring.svc:9090",
        description="URL of Prometheus, which KEDA and the planner query.",
    )


class Topology(Spec):
    name: Text = Field(description="Name of Grove's ClusterTopology, which defines the domains.")
    pack_domain: Text = Field(
        description="Kind of topology domain, such as rack. All pods of the graph are placed in "
        "one domain of this kind."
    )


def _no_boolean(count: object) -> object:
    """pydantic takes true for the choice 1."""
    if isinstance(count, bool):
        raise invalid("", f"must be 1 or 3, got the boolean {str(count).lower()}", "Write 1 or 3.")
    return count


class Etcd(Spec):
    image: Image = Field(
        default="quay.io/coreos/etcd:v3.5.21", description="Container image with `etcd`."
    )
    replicas: Annotated[Literal[1, 3], BeforeValidator(_no_boolean)] = Field(
        default=1, description="Number of etcd members; 3 members tolerate the loss of one."
    )
    storage: Quantity = Field(default="1Gi", description="Volume size per member.")
    storage_class: Text | None = Field(
        default=None, description="StorageClass; if unset, the cluster's default."
    )


class Cluster(Spec):
    service_account: ObjectName | None = Field(
        default=None,
        description="Existing ServiceAccount for all pods except the planner's, such as one with "
        "a cloud identity. The chart gives it the role that kubernetes discovery needs. If unset, "
        "the pods use a ServiceAccount of the operator or, with platform plain, one without "
        "permissions.",
    )
    security: Literal["least", "nonroot", "image"] = Field(
        default="least",
        description="Security context of the pods. least: pods run as user 1000 without "
        "capabilities. Pods with RDMA devices run as root with the capability IPC_LOCK, which "
        "only root keeps. nonroot: all pods run as user 1000. Pods with RDMA devices then need "
        "nodes with unlimited locked memory. image: the image decides. Pods with RDMA devices "
        "still get IPC_LOCK. With EFA, pods with RDMA devices are privileged in all three cases.",
    )
    ssh_secret: ObjectName | None = Field(
        default=None,
        description="Secret with the SSH key (private.key and private.key.pub) for TensorRT-LLM "
        "workers on several nodes with platform plain. With platform dynamo, the operator creates "
        "such a Secret itself.",
    )
    disruption_budgets: bool = Field(
        default=True,
        description="Create a PodDisruptionBudget, which permits the eviction of one pod at a "
        "time. Each component with several pods gets one. Most components with an autoscaler get "
        "one too.",
    )
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy(), description="Which clients may connect to the pods."
    )
    monitoring: Monitoring = Field(default=Monitoring(), description="Prometheus scraping.")
    topology: Topology | None = Field(
        default=None,
        description="Placement of all pods close to each other, in one topology domain; if unset, "
        "no constraint.",
    )
    etcd: Etcd = Field(
        default=Etcd(),
        description="The etcd that the chart creates with platform plain, unless "
        "infrastructure.etcd_endpoints is set.",
    )
