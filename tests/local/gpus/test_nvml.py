"""Reading GPUs through NVML, and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from penstock.local.gpus.gpu import Inventory, Link, models
from penstock.local.gpus.nvml import read_inventory
from tests.support.fake_nvml import FakeGpu, FakeNvml

FOUR = [FakeGpu(uuid=f"GPU-{letter}1-x") for letter in "abcd"]


def read(gpus: list[FakeGpu], visible: str | None = None) -> Inventory:
    nvml = FakeNvml(gpus)
    inventory = read_inventory(nvml, visible)
    assert nvml.sessions == 0  # closed again
    return inventory


def test_a_gpu_is_read_with_its_memory_and_processes() -> None:
    busy = FakeGpu(name="NVIDIA GeForce RTX 4090", memory_gib=24, used_gib=18, processes={42: 17.5})
    [gpu] = read([busy]).gpus
    assert (gpu.index, gpu.model) == (0, "NVIDIA GeForce RTX 4090 24 GiB")
    assert gpu.unusable == "18.0 GiB of 24.0 GiB are in use by pid 42 (17.5 GiB)"


def test_a_desktop_does_not_make_a_gpu_unusable() -> None:
    [gpu] = read([FakeGpu(memory_gib=16, used_gib=1.5, processes={7: 1.0})]).gpus
    assert gpu.unusable == ""


def test_a_gpu_that_shares_the_cpus_memory_is_usable() -> None:
    [gpu] = read([FakeGpu(name="NVIDIA GB10", memory_gib=None, mig=None)]).gpus
    assert (gpu.memory_bytes, gpu.unusable, gpu.model) == (None, "", "NVIDIA GB10")


def test_a_gpu_with_mig_is_unusable() -> None:
    [gpu] = read([FakeGpu(mig=True)]).gpus
    assert gpu.unusable == "MIG is enabled, which `up` does not support"


def test_links_are_nvlink_one_numa_node_or_neither() -> None:
    first = read([FakeGpu(nvlink=1, uuid="a"), FakeGpu(nvlink=1, uuid="b", numa=1),
                  FakeGpu(uuid="c"), FakeGpu(numa=1, uuid="d")]).gpus[0]  # fmt: skip
    assert first.links == {1: Link.NVLINK, 2: Link.SAME_NODE, 3: Link.FAR}


@pytest.mark.parametrize("code", [9, 12])
def test_without_a_driver_there_is_no_gpu_and_no_problem(code: int) -> None:
    assert read_inventory(FakeNvml(init_error=code), None) == Inventory()


def test_a_driver_that_does_not_work_is_a_problem() -> None:
    # NVML_ERROR_LIB_RM_VERSION_MISMATCH: the driver was updated, the machine was not restarted.
    assert read_inventory(FakeNvml(init_error=18), None).problem == "NVML: error 18"


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2", [2]),
        ("3, 1", [1, 3]),
        ("GPU-b1-x,0", [0, 1]),
        ("GPU-c", [2]),
        ("1,1", [1]),
    ],
)
def test_only_visible_gpus_are_used(text: str | None, indices: list[int]) -> None:
    inventory = read(FOUR, text)
    assert [gpu.index for gpu in inventory.gpus] == indices
    assert (inventory.hidden, inventory.problem) == (4 - len(indices), "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("-1", "CUDA_VISIBLE_DEVICES='-1' hides every GPU"),
        ("0,9", "CUDA_VISIBLE_DEVICES=0,9: this machine has no GPU 9"),
        ("GPU-", "CUDA_VISIBLE_DEVICES=GPU-: GPU- matches 4 GPUs"),
        ("b1", "CUDA_VISIBLE_DEVICES=b1: this machine has no GPU b1"),
        (
            "MIG-a1",
            "CUDA_VISIBLE_DEVICES=MIG-a1: MIG-a1 is a MIG device, which `up` does not support",
        ),
    ],
)
def test_what_cuda_would_ignore_is_a_problem(text: str, problem: str) -> None:
    inventory = read(FOUR, text)
    assert (inventory.gpus, inventory.problem) == ((), problem)


def test_models_are_counted() -> None:
    gpus = read([FakeGpu(uuid="a"), FakeGpu(uuid="b"), FakeGpu(name="NVIDIA L4", memory_gib=24)])
    assert models(gpus.gpus) == "2 × NVIDIA H200 141 GiB and 1 × NVIDIA L4 24 GiB"
