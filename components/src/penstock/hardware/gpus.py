"""The GPUs that a graph's `hardware.gpu` may name, and which of them another name means.

Memory is as CUDA reports it to the engines, which is less than nvidia-smi shows: from their logs.
The rest is from NVIDIA's data sheets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.text.names import nearest


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    memory_gib: float
    # Memory bandwidth in TB/s.
    hbm_tbs: float
    # CUDA architecture: 90 is Hopper, 100 and 103 are Blackwell.
    sm: int
    gpus_per_node: int
    # Number of GPUs that reach each other over NVLink.
    nvlink_domain: int
    # NVLink bandwidth in GB/s, one way.
    nvlink_gbs: int
    # One GPU's share of the network, in Gbit/s.
    nic_gbits: int
    # Values of the node label `nvidia.com/gpu.product`, from GPU feature discovery and from
    # generators of manifests; the most common one first.
    products: tuple[str, ...]

    @property
    def product(self) -> str:
        """Its name in node labels."""
        return self.products[0]

    @property
    def is_hopper(self) -> bool:
        """Whether its compute capability is 9.0."""
        return self.sm == 90

    @property
    def is_blackwell(self) -> bool:
        """Whether its compute capability is 10.0 or 10.3."""
        return self.sm in (100, 103)

    @property
    def is_grace(self) -> bool:
        """Whether it is on an Arm CPU in a rack of 72 GPUs with one NVLink domain."""
        return self.nvlink_domain > self.gpus_per_node


def _gpu(
    name: str, memory_gib: float, hbm_tbs: float, sm: int, nic_gbits: int, *products: str
) -> Gpu:
    grace = name.startswith("gb")
    return Gpu(
        name=name,
        memory_gib=memory_gib,
        hbm_tbs=hbm_tbs,
        sm=sm,
        gpus_per_node=4 if grace else 8,
        nvlink_domain=72 if grace else 8,
        nvlink_gbs=450 if sm == 90 else 900,
        nic_gbits=nic_gbits,
        products=products,
    )


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", 79.2, 3.35, 90, 400, "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-SXM5-80GB"),
        _gpu("h200", 139.8, 4.8, 90, 400, "NVIDIA-H200"),
        _gpu("b200", 178.4, 7.7, 100, 800, "NVIDIA-B200"),
        _gpu("b300", 267.7, 7.75, 103, 800, "NVIDIA-B300-SXM6-AC", "NVIDIA-B300"),
        _gpu("gb200", 184.3, 8.0, 100, 800, "NVIDIA-GB200"),
        _gpu("gb300", 276.6, 8.0, 103, 800, "NVIDIA-GB300"),
        # Not accepted in a graph, but manifests name it; few kernels support it.
        Gpu(
            name="rtx-pro-6000",
            memory_gib=95.0,
            hbm_tbs=1.8,
            sm=120,
            gpus_per_node=8,
            nvlink_domain=1,
            nvlink_gbs=0,
            nic_gbits=200,
            products=("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",),
        ),
    )
}


def gpu_of_product(label: str) -> Gpu | None:
    """The GPU of a node label such as `NVIDIA-H100-80GB-HBM3` or `nvidia-b200`; None if unknown.

    H100 NVL and H100 PCIe have other memory and other links, so they are unknown.
    """
    words = re.split(r"[^a-z0-9]+", label.lower())
    if {"nvl", "pcie", "mig"} & set(words):
        return None
    if {"rtx", "pro", "6000"} <= set(words):
        return GPUS["rtx-pro-6000"]
    return next((GPUS[word] for word in words if word in GPUS), None)


def find_gpu(text: str) -> Gpu | None:
    """The GPU of a name in any case, or of a product label; None if unknown."""
    return GPUS.get(text.lower()) or gpu_of_product(text)


# GPUs and accelerators whose names look like those of supported ones.
_OTHERS = re.compile(
    r"a(10g?|16|30|40|100|800|2000|4000|5000|6000)x?|l(4|20|40s?)|[vp]100s?|[tp]4|h(20|800)"
    r"|b(40|100)|gh200|rtx|gtx|geforce|quadro|titan|pro|ada|spark|thor|jetson|orin|nvl|pcie|mig"
    r"|mi\d+[a-z]?|radeon|instinct|gaudi\d?|hpu|tpu.*|trainium\d?|inferentia\d?"
)


def requested_gpu(text: str, supported: Sequence[str], state: str = "") -> Gpu:
    """The GPU that `--gpu` names. UsageError for one that is not ``supported``.

    ``state``: what such a GPU is; empty: it is not supported, or unknown.
    """
    gpu = find_gpu(text)
    if gpu is not None and gpu.name in supported:
        return gpu
    fix, meant = f"Use one of {', '.join(supported)}.", meant_gpu(text, supported)
    if meant:
        fix = f"Did you mean `{meant}`? {fix}"
    message = f"{text} {state or ('is unknown' if meant else 'is not supported')}"
    raise UsageError(message, place="--gpu", fix=fix)


def meant_gpu(text: str, supported: Sequence[str]) -> str:
    """The supported GPU that a text names with other words or a typing error, else empty.

    A100 is no H100: for the name of another GPU nothing is suggested.
    """
    gpu = find_gpu(text)
    if gpu is not None and gpu.name in supported:
        return gpu.name
    words = re.split(r"[^a-z0-9]+", text.lower())
    if any(_OTHERS.fullmatch(word) for word in words):
        return ""
    first = text.strip("\"'“”‘’ ")[:1].lower()
    return nearest(text, [name for name in supported if name.startswith(first)]) if first else ""
