"""A GPU as the driver describes it, and whether `up` may assign it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby

VARIABLE = "CUDA_VISIBLE_DEVICES"
GIB = 2**30
# A desktop uses 0.3 to 1.5 GiB; the engines ask for 85 to 92 % of a GPU's memory by default.
IN_USE = 0.1


class Link(IntEnum):
    """How two GPUs are connected; more is better."""

    FAR = 0
    SAME_NODE = 1
    """The same NUMA node: PCIe without the link between CPUs."""
    NVLINK = 2


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU. What the driver does not report is None."""

    index: int
    """As in `nvidia-smi`, and in CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: str
    name: str
    memory_bytes: int | None
    used_bytes: int | None
    processes: tuple[GpuProcess, ...] = ()
    has_mig: bool = False
    """It is divided into MIG devices."""
    links: Mapping[int, Link] = field(default_factory=dict)
    """Index of another GPU → how it is connected."""

    def link(self, other: Gpu) -> Link:
        return self.links.get(other.index, Link.FAR)

    @property
    def model(self) -> str:
        """`NVIDIA GeForce RTX 4090 24 GiB`."""
        size = f" {self.memory_bytes / GIB:.0f} GiB" if self.memory_bytes else ""
        return f"{self.name}{size}"

    @property
    def unusable(self) -> str:
        """Why no worker may run on it; empty when one may."""
        if self.has_mig:
            return "MIG is enabled, which `up` does not support"
        if self.memory_bytes is None or self.used_bytes is None:
            return ""
        if self.used_bytes <= IN_USE * self.memory_bytes:
            return ""
        used = f"{gib(self.used_bytes)} of {gib(self.memory_bytes)} are in use"
        return f"{used}{self._by()}"

    def _by(self) -> str:
        named = [
            f"{p.pid} ({gib(p.used_bytes)})" if p.used_bytes else f"{p.pid}" for p in self.processes
        ]
        return f" by pid {', '.join(named)}" if named else ""


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The GPUs that this process may use."""

    gpus: tuple[Gpu, ...] = ()
    hidden: int = 0
    """GPUs that CUDA_VISIBLE_DEVICES leaves out."""
    problem: str = ""
    """Why there are none, as a clause; empty on a machine without an NVIDIA driver."""


def gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def models(gpus: Iterable[Gpu]) -> str:
    """`2 × NVIDIA H200 141 GiB`, and each further model."""
    names = sorted(gpu.model for gpu in gpus)
    return " and ".join(f"{len(list(group))} × {name}" for name, group in groupby(names))


def visible(gpus: tuple[Gpu, ...], text: str | None) -> Inventory:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves.

    CUDA ends the list at the first invalid entry without a message; here that is a problem.
    ``text``: indices, UUIDs or their beginnings, separated by commas; None: all GPUs.

    Indices are those of `nvidia-smi`.
    """
    if text is None:
        return Inventory(gpus=gpus)
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if entries in ([], ["-1"]):
        return Inventory(
            hidden=len(gpus), problem=f"{VARIABLE}={text!r} hides every GPU" if gpus else ""
        )
    chosen = []
    for entry in entries:
        match = _gpu_of(gpus, entry)
        if isinstance(match, str):
            return Inventory(hidden=len(gpus), problem=f"{VARIABLE}={text}: {match}")
        if match not in chosen:
            chosen.append(match)
    chosen.sort(key=lambda gpu: gpu.index)
    return Inventory(gpus=tuple(chosen), hidden=len(gpus) - len(chosen))


def _gpu_of(gpus: tuple[Gpu, ...], entry: str) -> Gpu | str:
    """The GPU that ``entry`` names, else what is wrong with it."""
    if entry.startswith("MIG-"):
        return f"{entry} is a MIG device, which `up` does not support"
    if entry.isdigit():
        matching = [gpu for gpu in gpus if gpu.index == int(entry)]
    else:
        matching = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    if len(matching) > 1:
        return f"{entry} matches {len(matching)} GPUs"
    return matching[0] if matching else f"this machine has no GPU {entry}"
