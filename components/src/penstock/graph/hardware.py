"""The hardware that a graph runs on: GPUs, nodes and the network between nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.strict_yaml.base import Items, Positive, Spec, Text


class Hardware(Spec):
    gpu: Literal["h100", "h200", "b200", "b300", "gb200", "gb300"] | None = Field(
        default=None,
        description="GPU of every worker node, and with it the nodes that workers may run on; "
        "unset: not stated, nothing derived.",
    )
    product_labels: Items[Text] | None = Field(
        default=None,
        description="Values of the node label nvidia.com/gpu.product that are this GPU; unset: the "
        "ones known for hardware.gpu; []: any node.",
    )
    gpus_per_node: Positive | None = Field(
        default=None, description="GPUs in one node; unset: not stated."
    )
    nodes: Positive | None = Field(
        default=None, description="GPU nodes that the graph may use; unset: not stated."
    )
    gpu_hour_price: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Price of one GPU for one hour, in any currency: `simulate` and `plan` reckon "
        "with it. Unset: not stated.",
    )
    fabric: Literal["ib", "roce", "efa", "mnnvl", "none"] | None = Field(
        default=None,
        description="What carries KV and collectives between nodes: InfiniBand, RoCE, AWS EFA, the "
        "rack's NVLink (a ComputeDomain is made), or nothing but TCP; devices, privileges and "
        "UCX settings follow. Unset: not stated.",
    )
