"""Which processes that run are replaced, and what is only registered again."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.local.deployment import Program
from penstock.local.discovery import FileDiscovery, Instance
from penstock.local.health import ALL_HUNG_S, NOT_FOUND_S, HealthCheck, ProcessState, Verdict
from penstock.local.process import Child
from penstock.local.reconcile import ReplicaState
from penstock.local.replica import Replica
from penstock.local.starter import Endpoint
from penstock.manifests.deployment import Role

NAMES = {
    Role.WORKER: "worker",
    Role.FRONTEND: "frontend",
    Role.PREFILL: "prefill",
    Role.DECODE: "decode",
    Role.OTHER: "etcd",
}
ROLES = (Role.FRONTEND, Role.DECODE, Role.DECODE, Role.OTHER)
WORKERS = (Role.PREFILL, Role.DECODE, Role.WORKER)


class Machine:
    """The processes and the discovery that a HealthCheck sees, on a clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.silent: set[int] = set()  # ports of processes that do not respond
        self.registered: set[int] | None = {1, 2}  # None: discovery does not respond
        self.lost: set[int] = set()  # registrations that can be restored
        self.left: set[int] = set()
        self.probe_s, self.slow_probes = 0.0, 0  # seconds of a probe, and number of such probes
        self.folders = {"instances": 7}
        self.models_of: dict[str, tuple[str, ...]] = {}
        self.lines: list[str] = []
        endpoint = Endpoint(host="127.0.0.1", port=8000, frontend="frontend")
        fake: Any = self
        self.cpu_share: dict[str, float] = {}
        self.stopped: set[str] = set()
        self.terminated: set[str] = set()
        self.check = HealthCheck(
            endpoint, fake, fake, lambda: self.now, self.lines.append, self.state_of
        )

    def state_of(self, replica: Replica) -> ProcessState:
        cpu_s = self.now * self.cpu_share.get(replica.name, 0.0)
        return ProcessState(
            cpu_s=cpu_s,
            is_stopped=replica.name in self.stopped,
            is_terminated=replica.name in self.terminated,
        )

    # As Prober

    async def responds(self, url: str, method: str = "GET") -> bool:
        self.now += self.probe_s if self.slow_probes > 0 else 0.0
        self.slow_probes -= 1
        return not any(f":{port}/" in url for port in self.silent)

    async def models(self, base: str) -> tuple[str, ...]:
        return self.models_of.get(base, ("m",))

    # As Discovery

    async def instances(self) -> tuple[Instance, ...] | None:
        if self.registered is None:
            return None
        return tuple(instance(worker) for worker in self.registered)

    def register_again(self, workers: Any) -> set[int]:
        return self.lost & set(workers)

    def has_left(self, worker_id: int) -> bool:
        return worker_id in self.left

    def watched_folders(self) -> dict[str, int]:
        return dict(self.folders)

    def is_watched(self, folders: dict[str, int]) -> bool:
        return folders == self.folders

    # For the tests

    def replica(self, role: Role, number: int) -> Replica:
        """Worker ``number``, or a frontend or a service; ready since now."""
        program = Program(
            name=NAMES[role],
            component=NAMES[role],
            role=role,
            replicas=1,
            argv=(),
            env={},
            grace_s=60,
            listens=100 + number if role is Role.OTHER else None,
            hung_s=5 if role is Role.OTHER else 10,
        )
        replica = Replica(
            program=program,
            index=number,
            child=cast(Child, None),
            port=None if role in WORKERS else 100 + number,
            system_port=100 + number if role in WORKERS else None,
            started=self.now,
            state=ReplicaState.READY,
            worker_id=number if role in WORKERS else None,
        )
        self.check.begin(replica)
        return replica

    def run(self, replicas: list[Replica], seconds: float) -> dict[str, Verdict]:
        """Check and judge once per second; the verdicts at the end."""
        verdicts: list[tuple[Replica, Verdict]] = []
        for _ in range(int(seconds)):
            self.now += 1
            asyncio.run(self.check.check(replicas))
            verdicts = self.check.verdicts(replicas)
        return {replica.name: verdict for replica, verdict in verdicts}


def instance(worker: int) -> Instance:
    return Instance(
        worker_id=worker, namespace="n", component="backend", endpoint="generate", address="a"
    )


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def graph(machine: Machine) -> list[Replica]:
    """A frontend, two workers and a service, all ready."""
    return [machine.replica(role, number) for number, role in enumerate(ROLES)]


def test_nothing_is_judged_before_the_first_check(machine: Machine, graph: list[Replica]) -> None:
    """A slow start: services are ready long before the graph."""
    machine.now += 4
    assert machine.check.verdicts(graph) == []
    machine.now += 600
    assert machine.check.verdicts(graph) == []
    assert set(machine.run(graph, 1).values()) == {Verdict.SERVES}


def test_a_check_that_takes_long_counts_against_no_process(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.run(graph, 1)
    for _ in range(5):
        machine.now += 4
        assert {v for _, v in machine.check.verdicts(graph)} == {Verdict.SERVES}
        asyncio.run(machine.check.check(graph))


def test_a_suspension_during_the_probes_does_not_count(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.run(graph, 1)
    machine.silent = {100, 101, 102}
    for machine.probe_s, times in ((60.0, 1), (0.0, 1), (60.0, 100), (0.0, 1)):
        machine.slow_probes = times
        asyncio.run(machine.check.check(graph))
    assert {verdict for _, verdict in machine.check.verdicts(graph)} == {Verdict.SERVES}


def test_a_process_that_was_sent_sigterm_is_drained(machine: Machine, graph: list[Replica]) -> None:
    machine.terminated = {"etcd"}
    machine.silent = {103}  # as long as it is not too late for a drain
    verdicts = machine.run(graph, 3)
    assert verdicts["etcd"] is Verdict.TERMINATED
    assert set(verdicts.values()) == {Verdict.TERMINATED, Verdict.SERVES}


NO_MODELS = {"models_of": {"http://127.0.0.1:100": ()}}
POOLS = (Role.FRONTEND, Role.PREFILL, Role.DECODE)
HUNG, UNREACHABLE = Verdict.HUNG, Verdict.UNREACHABLE


@pytest.mark.parametrize(
    ("seen", "roles", "name", "seconds", "verdict"),
    [
        ({"silent": {100}}, ROLES, "frontend.0", 10, HUNG),
        ({"silent": {101}}, ROLES, "decode.1", 10, HUNG),
        ({"silent": {103}}, ROLES, "etcd.3", 5, HUNG),
        ({"stopped": {"decode.1"}}, ROLES, "decode.1", 3, HUNG),  # first seen after 1 s
        ({"stopped": {"decode.1"}, "left": {1}, "registered": {2}}, ROLES, "decode.1", 61, HUNG),
        # A process that computes may respond soon, but not forever.
        ({"silent": {100}, "cpu_share": {"frontend.0": 0.3}}, ROLES, "frontend.0", 10, HUNG),
        ({"silent": {100}, "cpu_share": {"frontend.0": 0.9}}, ROLES, "frontend.0", 30, HUNG),
        # A worker that shuts down finishes its requests.
        ({"silent": {101}, "left": {1}, "registered": {2}}, ROLES, "decode.1", 60, HUNG),
        ({"registered": {2}}, ROLES, "decode.1", NOT_FOUND_S, UNREACHABLE),
        (NO_MODELS, POOLS, "frontend.0", NOT_FOUND_S, UNREACHABLE),
        (NO_MODELS, (Role.FRONTEND, Role.WORKER), "frontend.0", NOT_FOUND_S, UNREACHABLE),
        # The folder that it watches was replaced.
        ({"folders": {"instances": 8}}, ROLES, "frontend.0", 0, UNREACHABLE),
    ],
)
def test_a_process_that_does_not_serve_for_its_time_is_replaced(
    machine: Machine,
    seen: dict[str, Any],
    roles: tuple[Role, ...],
    name: str,
    seconds: int,
    verdict: Verdict,
) -> None:
    graph = [machine.replica(role, number) for number, role in enumerate(roles)]
    replica = next(r for r in graph if f"{r.program.name}.{r.index}" == name)
    vars(machine).update(seen)
    if seconds:
        assert machine.run(graph, seconds)[replica.name] is Verdict.SERVES
        assert replica.status_state() is ReplicaState.UNHEALTHY  # shown before it is replaced
    verdicts = machine.run(graph, 1)
    assert verdicts.pop(replica.name) is verdict
    assert set(verdicts.values()) <= {Verdict.SERVES}


@pytest.mark.parametrize(
    ("seen", "roles"),
    [
        ({"registered": None}, ROLES),  # discovery does not respond
        # A frontend lists a model only if all its pools are registered.
        (NO_MODELS, (Role.FRONTEND, Role.PREFILL)),
        (NO_MODELS, (Role.FRONTEND, Role.DECODE, Role.DECODE)),
        ({"registered": set(), **NO_MODELS}, (Role.FRONTEND,)),
    ],
)
def test_what_is_not_the_fault_of_a_process_does_not_count(
    machine: Machine, seen: dict[str, Any], roles: tuple[Role, ...]
) -> None:
    graph = [machine.replica(role, number) for number, role in enumerate(roles)]
    vars(machine).update(seen)
    assert set(machine.run(graph, 600).values()) == {Verdict.SERVES}


def test_when_nothing_responds_the_processes_get_more_time(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.silent = {100, 101, 102, 103}
    machine.stopped = {replica.name for replica in graph}
    assert set(machine.run(graph, ALL_HUNG_S).values()) == {Verdict.SERVES}
    assert set(machine.run(graph, 2).values()) == {Verdict.HUNG}


def test_a_process_that_was_stopped_for_a_short_time_is_kept(
    machine: Machine, graph: list[Replica]
) -> None:
    for _ in range(5):
        machine.stopped = {"decode.1"}
        assert set(machine.run(graph, 2).values()) == {Verdict.SERVES}
        machine.stopped = set()
        assert set(machine.run(graph, 1).values()) == {Verdict.SERVES}


def test_a_check_that_fails_is_reported_once_and_repeated(machine: Machine) -> None:
    calls = []

    def replicas() -> list[Replica]:
        calls.append(1)
        if len(calls) == 3:
            raise asyncio.CancelledError
        raise ValueError("no")

    async def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            await machine.check.run(replicas)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.local.health.INTERVAL_S", 0)
        asyncio.run(run())
    assert machine.lines == ["cannot check the processes: ValueError('no')"]


def test_what_responds_and_is_registered_serves(machine: Machine, graph: list[Replica]) -> None:
    assert set(machine.run(graph, 60).values()) == {Verdict.SERVES}
    assert [replica.status_state() for replica in graph] == [ReplicaState.READY] * 4
    assert machine.lines == []


def test_a_process_that_responds_again_in_time_is_kept(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.silent = {101}
    machine.run(graph, 9)
    machine.silent = set()
    assert machine.run(graph, 30)["decode.1"] is Verdict.SERVES


def test_time_in_which_penstock_did_not_run_does_not_count(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.run(graph, 1)
    machine.now += 3600
    assert machine.check.verdicts(graph) == []  # before the next check, nothing is known
    machine.silent, machine.registered = {101}, {2}
    assert set(machine.run(graph, 3).values()) == {Verdict.SERVES}
    assert machine.lines == ["penstock was paused for 3601 s; restarting all health timeouts"]


def test_a_worker_that_can_be_registered_again_is_kept(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.registered, machine.lost = {2}, {1}
    assert machine.run(graph, 1)["decode.1"] is Verdict.SERVES
    assert machine.lines == ["decode.1 had lost its registration in discovery; registered it again"]
    machine.registered, machine.lost = {1, 2}, set()
    assert machine.run(graph, 30)["decode.1"] is Verdict.SERVES


def test_a_replica_that_drains_during_a_check_has_no_verdict(
    machine: Machine, graph: list[Replica]
) -> None:
    machine.run(graph, 1)
    graph[1].state, graph[1].health = ReplicaState.DRAINING, None
    assert "decode.1" not in machine.run(graph, 30)


# Registrations as files


def register(root: Path, worker: int, endpoint: str = "generate") -> Path:
    record = {
        "type": "Endpoint",
        "instance_id": worker,
        "namespace": "n",
        "component": "backend",
        "endpoint": endpoint,
        "transport": {"tcp": "127.0.0.1:1"},
    }
    for kind in ("instances", "mdc"):
        path = root / "v1" / kind / f"n%2Fbackend%2F{endpoint}%2F{worker:x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return root / "v1" / "instances" / path.name


def workers(discovery: FileDiscovery) -> set[int]:
    return {i.worker_id for i in asyncio.run(discovery.instances()) or ()}


@pytest.fixture
def files(tmp_path: Path) -> FileDiscovery:
    """Two registered workers, 0xab and 0xcd."""
    for worker in (0xAB, 0xCD):
        register(tmp_path, worker)
    discovery = FileDiscovery(tmp_path)
    assert workers(discovery) == {0xAB, 0xCD}
    return discovery


def test_expired_registrations_are_restored(files: FileDiscovery, tmp_path: Path) -> None:
    record = register(tmp_path, 0xAB)
    os.utime(record, (time.time() - 60, time.time() - 60))
    before = record.read_text()
    assert workers(files) == {0xAB, 0xCD}
    record.unlink()
    assert files.register_again({0xAB, 0xCD}) == {0xAB}
    assert workers(files) == {0xAB, 0xCD}
    assert record.read_text() == before
    assert files.register_again({0xAB, 0xCD}) == set()


def test_a_registration_that_its_worker_removed_stays_removed(
    files: FileDiscovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that shuts down: a restored registration would attract requests."""
    register(tmp_path, 0xAB).unlink()
    assert files.register_again({0xAB, 0xCD}) == set()
    assert workers(files) == {0xCD}
    assert files.register_again({0xAB, 0xCD}) == set()
    assert files.has_left(0xAB)
    assert not files.has_left(0xCD)
    later = time.time() + 60  # it still finishes requests when the record would have expired
    monkeypatch.setattr(time, "time", lambda: later)
    assert files.register_again({0xAB}) == set()


def test_the_only_worker_may_remove_all_its_registrations(tmp_path: Path) -> None:
    paths = [register(tmp_path, 0xAB, endpoint) for endpoint in ("generate", "flush")]
    discovery = FileDiscovery(tmp_path)
    assert workers(discovery) == {0xAB}
    for path in paths:
        path.unlink()
    assert discovery.register_again({0xAB}) == set()


def test_a_file_that_is_not_a_registration_is_ignored(files: FileDiscovery, tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "instances"
    for number, text in enumerate(
        ("[", "[]", '{"type": "Endpoint"}', '{"type": "Endpoint", "instance_id": "x"}')
    ):
        (folder / f"other{number}").write_text(text)
    (folder / "folder").mkdir()
    assert workers(files) == {0xAB, 0xCD}


def test_a_disk_that_is_full_restores_nothing(
    files: FileDiscovery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    shutil.rmtree(tmp_path / "v1" / "instances")
    monkeypatch.setattr(Path, "write_bytes", full)
    assert files.register_again({0xAB, 0xCD}) == set()


def test_a_drained_worker_is_not_registered_again(files: FileDiscovery, tmp_path: Path) -> None:
    asyncio.run(files.remove(0xAB))
    shutil.rmtree(tmp_path / "v1")
    assert files.register_again({0xAB, 0xCD}) == {0xCD}
    assert workers(files) == {0xCD}


@pytest.mark.parametrize("folder", [".", "v1", "v1/instances"])
def test_all_registrations_are_restored_when_a_folder_is_removed(
    files: FileDiscovery, tmp_path: Path, folder: str
) -> None:
    watched = files.watched_folders()
    shutil.rmtree(tmp_path / folder)
    assert not files.is_watched(watched)
    assert files.register_again({0xAB, 0xCD}) == {0xAB, 0xCD}
    assert workers(files) == {0xAB, 0xCD}
    assert not files.is_watched(watched)  # a watch ends with its folder


def test_all_registrations_are_restored_when_a_folder_is_emptied(
    files: FileDiscovery, tmp_path: Path
) -> None:
    watched = files.watched_folders()
    for path in (tmp_path / "v1").glob("*/*"):
        path.unlink()
    assert files.register_again({0xAB, 0xCD}) == {0xAB, 0xCD}
    assert workers(files) == {0xAB, 0xCD}
    assert files.is_watched(watched)
    assert not list((tmp_path / "v1").glob("*/.tmp_*"))
