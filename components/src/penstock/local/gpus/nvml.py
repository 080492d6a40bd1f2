"""Read the GPUs from NVML, the management library of NVIDIA's driver.

``nvml`` is the module `pynvml` (package nvidia-ml-py). Its functions raise NVMLError, whose
``value`` is NVML's code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from penstock.local.gpus.gpu import VARIABLE, Gpu, GpuProcess, Inventory, Link, visible

T = TypeVar("T")

NVLINK_CAPABILITY = 2  # NVML_P2P_CAPS_INDEX_NVLINK
P2P_OK = 0  # NVML_P2P_STATUS_OK
SAME_NODE_AT_MOST = 40  # NVML_TOPOLOGY_NODE; 50 crosses the link between CPUs
# No driver at all: a machine without GPUs, and no problem. NVML_ERROR_DRIVER_NOT_LOADED and
# NVML_ERROR_LIBRARY_NOT_FOUND.
NO_DRIVER = (9, 12)


def read_this_machine() -> Inventory:
    """The GPUs that the user's CUDA_VISIBLE_DEVICES leaves."""
    import pynvml  # takes 20 ms; only `up` needs it

    return read_inventory(pynvml, os.environ.get(VARIABLE))


def read_inventory(nvml: Any, visible_devices: str | None) -> Inventory:
    """``visible_devices``: the value of CUDA_VISIBLE_DEVICES, None if it is not set."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        missing = getattr(error, "value", None) in NO_DRIVER
        return Inventory(problem="" if missing else f"NVML: {error}")
    try:
        gpus = _gpus(nvml)
    except nvml.NVMLError as error:
        return Inventory(problem=f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()
    return visible(gpus, visible_devices)


def _gpus(nvml: Any) -> tuple[Gpu, ...]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    gpus = [_gpu(nvml, index, handle) for index, handle in enumerate(handles)]
    return tuple(
        replace(
            gpu, links={j: _link(nvml, handles[i], handles[j]) for j in range(len(gpus)) if j != i}
        )
        for i, gpu in enumerate(gpus)
    )


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    # Unified memory (DGX Spark) and MIG modes are not supported by every GPU.
    memory = _optional(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    mig = _optional(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))
    running = _optional(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
    return Gpu(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=int(memory.total) if memory else None,
        used_bytes=int(memory.used) if memory else None,
        processes=tuple(GpuProcess(pid=int(p.pid), used_bytes=p.usedGpuMemory) for p in running),
        has_mig=bool(mig and mig[0]),
    )


def _link(nvml: Any, first: Any, other: Any) -> Link:
    nvlink = _optional(nvml, lambda: nvml.nvmlDeviceGetP2PStatus(first, other, NVLINK_CAPABILITY))
    if nvlink == P2P_OK:
        return Link.NVLINK
    level = _optional(nvml, lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(first, other))
    return Link.SAME_NODE if level is not None and level <= SAME_NODE_AT_MOST else Link.FAR


def _optional(nvml: Any, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except nvml.NVMLError:
        return None
