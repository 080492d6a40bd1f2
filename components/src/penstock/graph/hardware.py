"""The hardware that a graph runs on: GPUs, nodes and the network between nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.strict_yaml.base import Items, Positive, Spec, Text


class Hardware(Spec):
    gpu: Literal["h100", "h200", "b200", "b300", "gb200", "gb300"] | None = Field(
        default=None,
        description="GPU model of the worker nodes. Worker pods are scheduled on nodes with this "
        "GPU. If unset, any GPU node is used, and the chart derives nothing from the GPU model.",
    )
    product_labels: Items[Text] | None = Field(
        default=None,
        description="Values of the node label nvidia.com/gpu.product. Worker pods are scheduled "
        "on nodes with one of them; if unset, the known values for hardware.gpu. [] selects any "
        "node.",
    )
    gpus_per_node: Positive | None = Field(
        default=None,
        description="Number of GPUs per node; if unset, `check` cannot tell whether a pod fits on "
        "a node.",
    )
    nodes: Positive | None = Field(
        default=None,
        description="Number of GPU nodes that the graph may use; if unset, `check` cannot tell "
        "whether the graph fits on the cluster.",
    )
    gpu_hour_price: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Price per GPU-hour in any currency, used by `simulate`; if unset, it reports "
        "no cost.",
    )
    fabric: Literal["ib", "roce", "efa", "mnnvl", "none"] | None = Field(
        default=None,
        description="Network between nodes for KV transfer and collectives. ib: InfiniBand. roce: "
        "RoCE. efa: AWS EFA. mnnvl: the NVLink of a rack, for which the chart creates a "
        "ComputeDomain. none: TCP only. This field and kv_transfer.transport determine the RDMA "
        "devices, the privileges and the UCX settings.",
    )
