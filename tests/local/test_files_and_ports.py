"""The parts of `up` that use files and sockets, each tested alone."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from pathlib import Path

import pytest

from penstock.errors import (
    AlreadyUpError,
    InputError,
    ManifestError,
    MissingToolError,
    PortInUseError,
)
from penstock.local import services
from penstock.local.deployment import Infrastructure, Program
from penstock.local.discovery import FileDiscovery
from penstock.local.envoy import Envoy
from penstock.local.file_watch import FileWatch
from penstock.local.gpus.gpu import Inventory
from penstock.local.gpus.pool import GpuPool
from penstock.local.launch import (
    FRONTEND_LOG,
    LEASE_S,
    RunContext,
    arguments,
    environment,
    relocate,
    write_files,
)
from penstock.local.ports import HIGHEST, LOWEST, Ports, require_free, reserved
from penstock.local.process import child_environment
from penstock.local.starter import Endpoint, Starter
from penstock.local.state import StateDir
from penstock.manifests.deployment import Role
from tests.local.builders import running


def program(**more: object) -> Program:
    fields: dict[str, object] = {
        "name": "decode",
        "component": "decode",
        "role": Role.DECODE,
        "replicas": 1,
        "argv": ("python", "-m", "dynamo.mocker", "--extra-engine-args", "/etc/x/engine.json"),
        "env": {"CONFIG": "file:/etc/x/engine.json"},
        "files": {"/etc/x/engine.json": "{}"},
        "grace_s": 60.0,
    }
    return Program(**(fields | more))  # type: ignore[arg-type]


def state(folder: Path) -> StateDir:
    folder_of_state = StateDir(folder / "graph.yaml", folder / "state")
    folder_of_state.prepare()
    return folder_of_state


def test_ports_are_handed_out_once_and_below_the_highest_that_dynamo_reads() -> None:
    ports = Ports()
    numbers = [ports.free() for _ in range(50)]
    assert len(set(numbers)) == 50
    assert all(LOWEST <= port <= HIGHEST for port in numbers)


def test_a_port_in_use_is_not_handed_out_and_an_error_names_it_with_a_fix() -> None:
    port = LOWEST + 500
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert Ports(first=port).free() != port
        with pytest.raises(PortInUseError, match=rf"127.0.0.1:{port}.*--port"):
            require_free("127.0.0.1", port)
        with pytest.raises(PortInUseError), reserved("127.0.0.1", port):
            pass
    with reserved("127.0.0.1", port):
        pass


def test_a_port_on_which_another_penstock_will_listen_is_in_use() -> None:
    port = Ports().free()
    with reserved("127.0.0.1", port):
        require_free("127.0.0.1", port)  # for the child that will listen
        with (
            pytest.raises(PortInUseError, match=rf"127.0.0.1:{port}: Address already in use"),
            reserved("127.0.0.1", port),
        ):
            pass
        with reserved("127.0.0.2", port):
            pass
    with reserved("127.0.0.1", port):
        pass


def test_a_second_up_of_a_graph_is_an_error(tmp_path: Path) -> None:
    first, second = (StateDir(tmp_path / "g.yaml", tmp_path / "s") for _ in range(2))
    first.acquire()
    assert first.path.stat().st_mode & 0o077 == 0, "only the user can read it"
    with pytest.raises(AlreadyUpError, match="is already up"):
        second.acquire()
    assert second.is_locked()
    first.release()
    assert not second.is_locked()
    # A graph with the same name has a folder of its own.
    assert StateDir(tmp_path / "b" / "g.yaml", tmp_path / "s").path != first.path


def test_clear_keeps_only_the_logs(tmp_path: Path) -> None:
    folder = state(tmp_path)
    folder.log("decode.0").write_text("last words")
    folder.write(running())
    folder.clear()
    assert [p.name for p in folder.path.iterdir()] == ["logs"]
    assert folder.read() is None


def run_context(folder: StateDir, infra: Infrastructure | None = None) -> RunContext:
    planned = services.Services(programs=(), infrastructure=infra or Infrastructure())
    return RunContext(state=folder, namespace="n", services=planned)


def test_container_files_are_written_and_every_path_is_rewritten(tmp_path: Path) -> None:
    folder = state(tmp_path)
    decode = program()
    files = write_files(folder, decode)
    here = files["/etc/x/engine.json"]
    assert here.read_text() == "{}"
    argv = arguments(decode, files, {}, host="127.0.0.1", port=None)
    assert argv[-1] == str(here)
    context = run_context(folder)
    assert environment(decode, files, {}, context, 20001)["CONFIG"] == f"file:{here}"


def test_the_longest_path_is_replaced_first_and_none_inside_another() -> None:
    files = {"/a/b": Path("/x"), "/a/b.yaml": Path("/y")}
    assert relocate("/a/b.yaml /a/b", files) == "/y /x"
    files = {"/engine/config.yaml": Path("/s/engine/config.yaml"), "/config.yaml": Path("/s/c")}
    assert relocate("/engine/config.yaml", files) == "/s/engine/config.yaml"
    assert relocate("--x=/config.yaml", files) == "--x=/s/c"


def test_the_address_of_a_frontend_comes_last_and_so_overrides() -> None:
    frontend = program(role=Role.FRONTEND, argv=("python", "--http-port", "80"), files={})
    argv = arguments(frontend, {}, {}, host="127.0.0.1", port=8001)
    assert argv[-4:] == ["--http-host", "127.0.0.1", "--http-port", "8001"]


def test_every_listening_address_is_loopback_and_downloads_are_off(tmp_path: Path) -> None:
    context = run_context(state(tmp_path))
    env = environment(program(), {}, {}, context, 20001)
    hosts = {k: v for k, v in env.items() if k.endswith("_HOST")}
    assert len(hosts) == 5
    assert set(hosts.values()) == {"127.0.0.1"}
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["DYN_SYSTEM_PORT"] == "20001"


ETCD = Infrastructure(discovery="etcd", etcd_endpoints=("http://127.0.0.1:2379",))


@pytest.mark.parametrize(
    ("role", "infra", "env", "expected"),
    [
        (
            Role.DECODE,
            ETCD,
            {},
            {"ETCD_LEASE_TTL": str(LEASE_S), "ETCD_ENDPOINTS": "http://127.0.0.1:2379"},
        ),
        (Role.DECODE, ETCD, {"ETCD_LEASE_TTL": "5"}, {"ETCD_LEASE_TTL": "5"}),
        (Role.FRONTEND, None, {}, {"DYN_LOG": FRONTEND_LOG}),  # without the probes of `up`
        (Role.FRONTEND, None, {"DYN_LOG": "debug"}, {"DYN_LOG": "debug"}),
        (Role.DECODE, None, {}, {"DYN_LOG": None}),
    ],
)
def test_a_default_of_the_environment_yields_to_the_graph(
    tmp_path: Path,
    role: Role,
    infra: Infrastructure | None,
    env: dict[str, str],
    expected: dict[str, str | None],
) -> None:
    context = run_context(state(tmp_path), infra)
    variables = environment(program(role=role, env=env, files={}), {}, {}, context, 20001)
    assert {name: variables.get(name) for name in expected} == expected


def test_dynamo_settings_of_the_users_shell_do_not_reach_a_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DYN_ROUTER_MODE", "random")
    monkeypatch.setenv("NATS_SERVER", "nats://elsewhere")
    env = child_environment({"DYN_LOG": "info"})
    assert "DYN_ROUTER_MODE" not in env
    assert "NATS_SERVER" not in env
    assert env["DYN_LOG"] == "info"


def test_removing_a_worker_deletes_exactly_its_records(tmp_path: Path) -> None:
    root = tmp_path / "v1"
    for kind in ("instances", "mdc", "event_sources"):
        (root / kind).mkdir(parents=True)
    endpoint = {
        "type": "Endpoint",
        "component": "backend",
        "endpoint": "generate",
        "namespace": "n",
        "transport": {"tcp": "127.0.0.1:1/ab/n/backend/generate"},
    }
    for worker in (0xAB, 0xCD):
        record = endpoint | {"instance_id": worker}
        name = f"n%2Fbackend%2Fgenerate%2F{worker:x}"
        (root / "instances" / name).write_text(json.dumps(record))
        (root / "mdc" / name).write_text("{}")
        source = f'{{"worker":{{"worker_id":{worker},"dp_rank":0}}}}'
        (root / "event_sources" / f"topic%2F{worker + 1:x}").write_text(source)
    discovery = FileDiscovery(tmp_path)
    asyncio.run(discovery.remove(0xAB))
    assert [i.worker_id for i in asyncio.run(discovery.instances())] == [0xCD]
    assert sorted(p.name for p in root.glob("*/*")) == [
        "n%2Fbackend%2Fgenerate%2Fcd",
        "n%2Fbackend%2Fgenerate%2Fcd",
        "topic%2Fce",
    ]


def test_a_half_written_record_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "instances"
    folder.mkdir(parents=True)
    (folder / "n%2Fab").write_text('{"type":"Endp')
    assert asyncio.run(FileDiscovery(tmp_path).instances()) == ()


def test_a_save_is_detected_once_the_content_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("a")
    watch = FileWatch(path)
    assert not watch.saved(0)
    path.write_text("ab")
    assert not watch.saved(1)  # just changed
    assert not watch.saved(1.1)  # not stable yet
    assert watch.saved(1.3)
    os.utime(path, (1, 1))  # the same content
    assert not watch.saved(2)
    assert not watch.saved(3)


def test_a_file_moved_into_place_is_an_edit_and_a_removed_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("a")
    watch = FileWatch(path)
    path.unlink()
    assert not watch.saved(1)
    assert not watch.saved(2)
    (tmp_path / "new").write_text("b")
    (tmp_path / "new").rename(path)
    watch.saved(3)
    assert watch.saved(4)


def test_servers_that_the_graph_names_are_not_started(tmp_path: Path) -> None:
    infrastructure = Infrastructure(
        discovery="etcd", events="nats", etcd_endpoints=("http://e",), nats_url="nats://n"
    )
    planned = services.plan_services(infrastructure, state(tmp_path), Ports())
    assert planned.programs == ()
    assert planned.infrastructure == infrastructure


def test_zmq_events_get_a_broker_so_that_publishers_do_not_bind(tmp_path: Path) -> None:
    planned = services.plan_services(Infrastructure(), state(tmp_path), Ports())
    assert [p.name for p in planned.programs] == ["event-broker"]
    assert planned.broker_url.startswith("xsub=tcp://127.0.0.1:")


def test_the_error_for_a_missing_server_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingToolError, match="apt install etcd-server"):
        services.plan_services(Infrastructure(discovery="etcd"), state(tmp_path), Ports())


def test_envoys_list_has_exactly_the_given_frontends(tmp_path: Path) -> None:
    envoy = Envoy(Path("/envoy"), tmp_path, "127.0.0.1", 8000)
    envoy.program()
    envoy.list_frontends([8001, 8002])
    listed = json.loads((tmp_path / "frontends.json").read_text())
    hosts = listed["resources"][0]["endpoints"][0]["lb_endpoints"]
    ports = [h["endpoint"]["address"]["socket_address"]["port_value"] for h in hosts]
    assert ports == [8001, 8002]


def test_a_file_of_a_foreign_manifest_stays_in_its_folder(tmp_path: Path) -> None:
    evil = program(files={"/etc/../../../../../../escape": "x"})
    with pytest.raises(ManifestError, match="leaves the run's folder"):
        write_files(state(tmp_path), evil)


@pytest.mark.parametrize("deleted", [".", "lock", "run", "run/files"])
def test_what_was_deleted_of_the_state_folder_is_made_again(deleted: str, tmp_path: Path) -> None:
    """`rm -r` may delete other files after the lock was made again."""
    folder = StateDir(tmp_path / "g.yaml", tmp_path / "s")
    folder.acquire()
    folder.prepare()
    assert not folder.restore()
    gone = folder.path / deleted
    gone.unlink() if gone.is_file() else shutil.rmtree(gone)
    assert folder.restore()
    assert folder.files.is_dir()
    assert StateDir(tmp_path / "g.yaml", tmp_path / "s").is_locked()
    assert not folder.restore()
    folder.release()


def test_a_state_folder_that_cannot_be_created_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="PENSTOCK_STATE_HOME"):
        StateDir(tmp_path / "g.yaml", tmp_path / "file" / "s").acquire()


@pytest.mark.program
def test_exactly_one_of_several_frontends_gets_the_endpoints_port(tmp_path: Path) -> None:
    endpoint = Endpoint(host="127.0.0.1", port=8000, frontend="a")
    context = run_context(state(tmp_path))
    gpus = GpuPool(Inventory, tmp_path / "gpus", "g.yaml")
    starter = Starter(context, endpoint, Ports(), gpus, clock=lambda: 0.0)
    argv = ("/bin/true",)
    ports = []
    for name, index in (("a", 0), ("a", 1), ("b", 0)):
        frontend = program(name=name, role=Role.FRONTEND, argv=argv, files={})
        replica = starter.start(frontend, index)
        assert replica is not None
        replica.child.kill()
        ports.append(replica.port)
    assert ports[0] == 8000
    assert 8000 not in ports[1:]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("10.0.0.7", "http://10.0.0.7:80"),
    ],
)
def test_the_url_of_an_endpoint_is_reachable_from_this_machine(host: str, url: str) -> None:
    assert Endpoint(host=host, port=80, frontend="frontend").url == url
