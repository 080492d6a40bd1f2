"""A machine's GPUs for tests: NVML as `pynvml` offers it, and the same as a library in C.

`FakeNvml` is given to `read_inventory`. `build_driver` compiles `fake_nvml.c`, which the real
`pynvml` loads as libnvidia-ml.so.1 from LD_LIBRARY_PATH.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from tests.support.needs import program

GIB = 2**30
SYSTEM, NODE = 50, 40  # NVML_TOPOLOGY_SYSTEM, NVML_TOPOLOGY_NODE
NOT_SUPPORTED = 3


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """``memory_gib``: None for a GPU that shares the CPU's memory."""

    name: str = "NVIDIA H200"
    uuid: str = ""
    memory_gib: float | None = 141
    used_gib: float = 0.5
    processes: Mapping[int, float] = field(default_factory=dict)
    mig: bool | None = False
    """None: the GPU has no MIG modes."""
    numa: int = 0
    nvlink: int | None = None
    """GPUs with the same number are connected."""


class FakeNvml:
    NVMLError = FakeNvmlError

    def __init__(self, gpus: Sequence[FakeGpu] = (), init_error: int = 0) -> None:
        self.gpus, self.init_error, self.sessions = gpus, init_error, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error:
            raise FakeNvmlError(self.init_error)
        self.sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        assert self.sessions
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self.gpus[handle].uuid or f"GPU-{handle:08d}-aaaa"

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self.gpus[handle].name

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        gpu = self.gpus[handle]
        if gpu.memory_gib is None:
            raise FakeNvmlError(NOT_SUPPORTED)
        return SimpleNamespace(total=gpu.memory_gib * GIB, used=gpu.used_gib * GIB)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:  # noqa: N802
        if self.gpus[handle].mig is None:
            raise FakeNvmlError(NOT_SUPPORTED)
        return [int(self.gpus[handle].mig), 0]

    def nvmlDeviceGetComputeRunningProcesses(  # noqa: N802
        self, handle: int
    ) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=int(used * GIB))
            for pid, used in self.gpus[handle].processes.items()
        ]

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, index: int) -> int:  # noqa: N802
        assert index == 2
        switch = self.gpus[one].nvlink
        return 0 if switch is not None and switch == self.gpus[other].nvlink else 5

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        return NODE if self.gpus[one].numa == self.gpus[other].numa else SYSTEM


def build_driver(folder: Path) -> dict[str, str]:
    """Variables of a process that has the GPUs of `write_driver`."""
    source = Path(__file__).with_name("fake_nvml.c")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([program("cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(folder / "gpus.txt")}


def write_driver(folder: Path, gpus: Sequence[FakeGpu]) -> None:
    """The GPUs that the built driver reports from now on, one a line."""
    lines = [
        f"GPU-{index:08d}-aaaa {gpu.memory_gib or 0:.0f} {gpu.used_gib:.0f} "
        f"{int(gpu.mig or False)} {gpu.numa} {-1 if gpu.nvlink is None else gpu.nvlink} "
        f"{next(iter(gpu.processes), 0)} {gpu.name}"
        for index, gpu in enumerate(gpus)
    ]
    draft = folder / "gpus.draft"
    draft.write_text("\n".join([*lines, ""]))
    draft.replace(folder / "gpus.txt")
