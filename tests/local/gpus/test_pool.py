"""Reserving GPUs for a graph, and the refusal when there are too few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.errors import MissingToolError
from penstock.local.deployment import Program
from penstock.local.generations import with_generations
from penstock.local.gpus.gpu import Inventory
from penstock.local.gpus.needs import gpu_needs, gpu_notes
from penstock.local.gpus.nvml import read_inventory
from penstock.local.gpus.pool import GpuPool
from penstock.local.process import Child
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica
from penstock.manifests.deployment import Role
from tests.support.fake_nvml import FakeGpu, FakeNvml

RTX = FakeGpu(name="NVIDIA GeForce RTX 4090", memory_gib=24)


def program(name: str, replicas: int, gpus: int, *argv: str) -> Program:
    role = Role(name)
    program = Program(
        name=name, component=name, role=role, replicas=replicas, argv=argv, env={}, grace_s=1
    )
    return replace(program, gpus=gpus)


class Graph:
    """A graph whose replicas are only counted; as `Supervisor` and `Starter` use a pool."""

    def __init__(self, folder: Path, gpus: Sequence[FakeGpu], visible: str | None = None) -> None:
        self.gpus = gpus
        self.pool = GpuPool(lambda: self._read(visible), folder / "locks", "g.yaml")
        self.replicas: list[Replica] = []
        self.programs: tuple[Program, ...] = ()

    def _read(self, visible: str | None) -> Inventory:
        return read_inventory(FakeNvml(self.gpus), visible)

    def change(self, *programs: Program) -> None:
        generations = with_generations(programs)
        self.pool.reserve(gpu_needs(generations, self.replicas))
        self.programs = generations

    def start(self) -> list[str]:
        """Start what is missing; return the replicas that have to wait for GPUs."""
        waiting = []
        for each in self.programs:
            key = (each.name, each.key)
            running = [r for r in self.replicas if (r.program.name, r.program.key) == key]
            for index in range(len(running), each.replicas):
                gpus = self.pool.take(each.gpus)
                if gpus is None:
                    waiting.append(f"{each.name}.{index}")
                else:
                    self.replicas.append(self._replica(each, index, gpus))
        return waiting

    def _replica(self, program: Program, index: int, gpus: tuple[int, ...]) -> Replica:
        return Replica(
            program=program,
            index=index,
            child=cast(Child, None),
            port=None,
            system_port=None,
            started=0.0,
            gpus=gpus,
            state=ReplicaState.READY,
        )

    def end(self, *replicas: Replica) -> None:
        for replica in replicas:
            self.replicas.remove(replica)
            self.pool.give_back(replica.gpus)

    def held(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(replica.name, replica.gpus) for replica in self.replicas]

    def reserved(self) -> list[int]:
        return [gpu.index for gpu in self.pool.reserved]


def refusal(graph: Graph, *programs: Program) -> str:
    before = graph.reserved()
    with pytest.raises(MissingToolError) as caught:
        graph.change(*programs)
    assert graph.reserved() == before  # nothing changed
    return str(caught.value)


def test_each_replica_has_its_own_gpus_and_scaling_up_keeps_them(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 4)
    graph.change(program("prefill", 1, 1), program("decode", 1, 2))
    assert graph.start() == []
    assert graph.held() == [("prefill.0", (0,)), ("decode.0", (1, 2))]
    before = dict(graph.held())
    graph.change(program("prefill", 2, 1), program("decode", 1, 2))
    assert graph.start() == []
    assert {name: gpus for name, gpus in graph.held() if name in before} == before
    assert sorted(i for _, gpus in graph.held() for i in gpus) == [0, 1, 2, 3]


def test_a_crashed_replica_starts_again_on_its_own_gpus(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 2)
    graph.change(program("worker", 1, 1))
    graph.start()
    graph.gpus = [replace(RTX, used_gib=20, processes={99: 20})] * 2  # its own memory, still
    graph.replicas[0].state = ReplicaState.CRASHED
    assert graph.pool.take(1, graph.replicas[0].gpus) == (0,)
    graph.change(program("worker", 1, 1))  # an edit meanwhile needs nothing new
    assert graph.reserved() == [0]


def test_gpus_of_replicas_that_stop_are_released_and_can_be_reserved_again(tmp_path: Path) -> None:
    graph, other = Graph(tmp_path, [RTX] * 3), Graph(tmp_path, [RTX] * 3)
    graph.change(program("worker", 3, 1))
    graph.start()
    graph.change(program("worker", 1, 1))
    assert "GPU 0: reserved by g.yaml; GPU 1: reserved by g.yaml" in refusal(
        other, program("worker", 1, 1)
    )
    graph.end(*graph.replicas[1:])
    assert graph.reserved() == [0]
    other.change(program("worker", 2, 1))
    assert other.reserved() == [1, 2]
    graph.pool.close()
    other.change(program("worker", 3, 1))


def test_what_stops_in_the_same_edit_is_waited_for(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 2)
    graph.change(program("prefill", 1, 1), program("decode", 1, 1))
    graph.start()
    graph.change(program("prefill", 0, 1), program("decode", 2, 1))
    assert graph.start() == ["decode.1"]
    graph.end(next(r for r in graph.replicas if r.program.name == "prefill"))
    assert graph.start() == []
    assert sorted(dict(graph.held())) == ["decode.0", "decode.1"]


def test_a_new_generation_needs_gpus_beside_the_old_one(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 4)
    graph.change(program("worker", 2, 1, "old"))
    graph.start()
    old = list(graph.replicas)
    graph.change(program("worker", 2, 1, "new"))
    assert graph.start() == []
    assert graph.reserved() == [0, 1, 2, 3]
    graph.end(*old)
    assert graph.reserved() == [2, 3]
    assert refusal(graph, program("worker", 3, 1, "newer")) == (
        "g.yaml: not enough free GPUs: worker 3 × 1 = 3 GPUs, and the workers that serve until "
        "these are ready keep 2, this machine has 4 (4 × NVIDIA GeForce RTX 4090 24 GiB). "
        "Fix: Run `penstock down g.yaml`, then `penstock up g.yaml`."
    )


def test_the_refusal_has_the_arithmetic_and_a_fix(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 2)
    assert refusal(graph, program("prefill", 4, 1), program("decode", 1, 4)) == (
        "g.yaml: not enough free GPUs: prefill 4 × 1 + decode 1 × 4 = 8 GPUs, this machine has 2 "
        "(2 × NVIDIA GeForce RTX 4090 24 GiB). "
        "Fix: Run `penstock up g.yaml --engine mocker`, or set a smaller `gpus`."
    )
    assert refusal(graph, program("prefill", 4, 1), program("decode", 1, 1)).endswith(
        "Fix: Set `prefill.replicas=1` (in the file or with --set), or run "
        "`penstock up g.yaml --engine mocker`."
    )


def test_the_refusal_of_an_edit_names_the_replicas_that_fit(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX] * 3)
    graph.change(program("worker", 1, 1))
    graph.start()
    assert refusal(graph, program("worker", 5, 1)).endswith("Fix: Set `worker.replicas=3`.")


def test_gpus_in_use_with_mig_or_hidden_are_explained(tmp_path: Path) -> None:
    busy = replace(RTX, used_gib=20, processes={4242: 19.5})
    graph = Graph(tmp_path, [busy, replace(RTX, mig=True), RTX, RTX], visible="0,1,2")
    assert (
        "this machine has 3 (3 × NVIDIA GeForce RTX 4090 24 GiB); CUDA_VISIBLE_DEVICES hides "
        "1 GPU; GPU 0: 20.0 GiB of 24.0 GiB are in use by pid 4242 (19.5 GiB); GPU 1: MIG is "
        "enabled, which `up` does not support. Fix:"
    ) in refusal(graph, program("worker", 2, 1))
    graph.change(program("worker", 1, 1))
    assert graph.reserved() == [2]


def test_the_fix_frees_gpus_when_none_is_usable(tmp_path: Path) -> None:
    busy, mig = replace(RTX, used_gib=20, processes={4242: 19.5}), replace(RTX, mig=True)
    mocker = "run `penstock up g.yaml --engine mocker`."
    stop, disable = "top process 4242", "isable MIG (`nvidia-smi -i 0 -mig 0`)"
    for gpus, fix in (
        ([busy], f"S{stop}, or {mocker}"),
        ([mig], f"D{disable}, or {mocker}"),
        ([mig, busy], f"S{stop} or d{disable}, or {mocker}"),
        ([replace(RTX, used_gib=20)], f"Stop the processes that use the GPUs, or {mocker}"),
    ):
        assert refusal(Graph(tmp_path, gpus), program("worker", 1, 1)).endswith(f"Fix: {fix}")


def test_a_replica_does_not_get_gpus_of_two_models(tmp_path: Path) -> None:
    graph = Graph(tmp_path, [RTX, replace(RTX, name="NVIDIA L4")])
    assert "; the GPUs of one replica must be of one model. Fix:" in refusal(
        graph, program("worker", 1, 2)
    )


def test_a_graph_without_gpus_reads_no_driver(tmp_path: Path) -> None:
    def read() -> Inventory:
        raise AssertionError("read")

    pool = GpuPool(read, tmp_path / "locks", "g.yaml")
    pool.reserve(gpu_needs([program("worker", 2, 0)], ()))
    assert pool.take(0) == ()


def test_notes_name_other_hardware_and_weights_that_do_not_fit() -> None:
    gpus = read_inventory(FakeNvml([RTX]), None).gpus
    large = replace(program("decode", 1, 2), weights_bytes=61 * 2**30)
    assert gpu_notes([large], gpus, "h200") == (
        "the graph's settings and its memory check are for h200, and this machine has "
        "1 × NVIDIA GeForce RTX 4090 24 GiB",
        "decode: the weight files have 61.0 GiB, 30.5 GiB for each of 2 GPUs, and a GPU has "
        "24.0 GiB: the engine will probably run out of memory",
    )
    h200 = read_inventory(FakeNvml([FakeGpu()]), None).gpus
    assert gpu_notes([large], h200, "h200") == ()
    assert gpu_notes([replace(large, gpus=0)], gpus, "h200") == ()
