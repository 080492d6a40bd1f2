"""The parts of a graph that only a cluster has: volumes, permissions, networks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

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
)


class CacheClaim(Spec):
    size: Quantity = Field(description="Storage; the files of gpt-oss-120b take 61 GiB.")
    storage_class: ObjectName | None = Field(
        default=None, description="StorageClass; unset: the cluster's default."
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        default="ReadWriteMany",
        description="ReadWriteOnce: only pods of one node mount it, which is yours to see to.",
    )


class ModelCache(Spec):
    pvc: ObjectName = Field(
        description="PersistentVolumeClaim with the model's files, or for them: filled beforehand "
        "(a Hugging Face cache), by the pods, or by download."
    )
    mount_path: FolderPath = Field(
        default="/opt/model-cache",
        description="Where the claim is mounted in every pod; HF_HOME points there.",
    )
    create: CacheClaim | None = Field(
        default=None,
        description="Make the claim; it stays when the release goes. Unset: it exists already.",
    )
    download: bool = Field(
        default=False,
        description="A Job fetches model.revision, and the draft model's, once; workers wait for "
        "it and never ask the hub.",
    )
    offline: bool = Field(
        default=False,
        description="No pod asks the hub: the claim holds everything, as in an air-gapped cluster.",
    )


class NetworkPolicy(Spec):
    enabled: bool = Field(
        default=False,
        description="Let the graph's pods be reached by each other and by whom the lists below "
        "name, and reach each other, DNS, the API server and HTTPS.",
    )
    clients: Items[Opaque] = Field(
        default=(),
        description="NetworkPolicyPeers that may use the endpoint; empty: everyone.",
    )
    scrapers: Items[Opaque] = Field(
        default=(), description="NetworkPolicyPeers that may read metrics; empty: nobody else."
    )
    egress: Items[Opaque] = Field(
        default=(), description="Further egress rules of every pod, such as a model store's."
    )


class Monitoring(Spec):
    pod_monitors: bool = Field(
        default=False,
        description="PodMonitors of the Prometheus operator, for frontends and workers.",
    )
    interval_s: Positive = Field(default=15, description="Seconds between two scrapes.")
    labels: dict[str, str] = Field(
        default={}, description="Labels by which Prometheus selects its PodMonitors."
    )
    prometheus: HttpUrl = Field(
        default="http://prometheus-operated.monitoring.svc:9090",
        description="URL at which KEDA and the planner ask Prometheus.",
    )


class Topology(Spec):
    name: Text = Field(description="ClusterTopology of Grove.")
    pack_domain: Text = Field(
        description="Domain of it, such as rack, that holds the whole graph's pods."
    )


class Etcd(Spec):
    image: Text = Field(
        default="quay.io/coreos/etcd:v3.5.21", description="Container image with `etcd`."
    )
    replicas: Literal[1, 3] = Field(
        default=1, description="Members; with 3 the loss of one is not noticed."
    )
    storage: Quantity = Field(default="1Gi", description="Volume of one member.")
    storage_class: Text | None = Field(
        default=None, description="StorageClass; unset: the cluster's default."
    )


class Cluster(Spec):
    service_account: ObjectName | None = Field(
        default=None,
        description="Existing ServiceAccount of every pod, such as a cloud identity's; it is bound "
        "to what discovery needs. Unset: the operator's own, or with platform plain one "
        "without rights.",
    )
    security: Literal["least", "nonroot", "image"] = Field(
        default="least",
        description="least: user 1000 without capabilities, but pods with RDMA devices run as root "
        "with IPC_LOCK, which only root keeps; nonroot: those too are user 1000, so nodes must "
        "not limit locked memory; image: nothing is set.",
    )
    ssh_secret: ObjectName | None = Field(
        default=None,
        description="Secret with private.key and private.key.pub, by which TensorRT-LLM on several "
        "nodes starts its ranks with platform plain; the operator makes its own.",
    )
    disruption_budgets: bool = Field(
        default=True,
        description="PodDisruptionBudgets that let a drained node take one pod of a component at a "
        "time, where a component has several.",
    )
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy(), description="Who may talk to the pods."
    )
    monitoring: Monitoring = Field(default=Monitoring(), description="What Prometheus scrapes.")
    topology: Topology | None = Field(
        default=None, description="Where in the cluster the pods lie together; unset: anywhere."
    )
    etcd: Etcd = Field(
        default=Etcd(),
        description="The etcd of platform plain, unless infrastructure.etcd_endpoints names one.",
    )
