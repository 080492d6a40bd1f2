"""`penstock bench GRAPH --cluster` on the emulated cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import BenchError, ClusterError, UsageError
from tests.bench.bench_runs import write_workload
from tests.support.completions_server import CompletionsServer, Response
from tests.support.emulated_cluster.released import Cluster, certificate, cluster
from tests.support.emulated_cluster.roles import as_role, role_file

pytestmark = pytest.mark.needs("aiperf")

REQUESTS = 20


@pytest.fixture
def server() -> Iterator[CompletionsServer]:
    with CompletionsServer(script=lambda _: Response()).running() as running:
        yield running


@pytest.fixture
def released(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    server: CompletionsServer,
) -> Iterator[Cluster]:
    """A release whose frontends are ``server``."""
    with cluster(tmp_path, capsys, monkeypatch) as running:
        running.install()
        running.api.forwarded[8000] = int(server.url.rpartition(":")[2])
        yield running


@pytest.fixture
def workload(tmp_path: Path) -> tuple[str, ...]:
    return write_workload(tmp_path / "workload", REQUESTS, output_tokens=4, every_ms=50.0)


def test_a_release_that_is_not_ready_gets_no_requests(
    released: Cluster, server: CompletionsServer, workload: tuple[str, ...]
) -> None:
    released.edit(decode={"replicas": 3, "config": {"engine": {"block_size": 64}}})
    released.operator.machine.steps_to_ready = lambda args: 10**6
    assert released.apply("--no-wait")[0] == 0
    code, output = released.run("bench", "--cluster", *workload)
    assert code == BenchError.exit_code
    assert "is not ready: " in output
    assert server.bodies == []


def test_a_release_that_does_not_exist(released: Cluster, workload: tuple[str, ...]) -> None:
    code, output = released.run("bench", "--cluster", "--release", "other", *workload)
    assert code == ClusterError.exit_code, output
    assert "other" in output


@pytest.mark.program
def test_a_viewer_may_not_forward_ports(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    workload: tuple[str, ...],
) -> None:
    with cluster(tmp_path, capsys, monkeypatch, certificate(tmp_path)) as secured:
        secured.install()
        viewer = as_role(secured, "default", "viewer", role_file("viewer")["rules"])
        code, output = viewer.run("bench", "--cluster", *workload)
    assert code == ClusterError.exit_code
    assert "pods/portforward (create, get)" in output


@pytest.mark.program
@pytest.mark.nightly  # tests/drill sends requests through an emulated port-forward without AIPerf
def test_requests_reach_the_frontends_with_the_rights_of_an_operator(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    server: CompletionsServer,
    workload: tuple[str, ...],
) -> None:
    with cluster(tmp_path, capsys, monkeypatch, certificate(tmp_path)) as secured:
        secured.install()
        secured.api.forwarded[8000] = int(server.url.rpartition(":")[2])
        operator = as_role(secured, "default", "operator", role_file("operator")["rules"])
        code, output = operator.run("bench", "--cluster", *workload, "--json")
        assert code == 0, output
        requests = secured.api.requests
    document = json.loads(output[output.index("{\n") : output.rindex("}") + 1])
    assert document["failures"] == {"sent": REQUESTS, "reasons": {}}
    assert len(server.sent) == REQUESTS
    assert "requests go through the API server, which adds latency" in output
    assert any("/portforward?" in request for request in requests)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cluster", "--start"), "--start cannot be combined with --cluster"),
        (("--cluster", "http://127.0.0.1:1", "--release", "a"), "--release names one release"),
        (("--cluster", "--set", "decode.replicas=2"), "--set applies to local deployments"),
        ((), "--kubeconfig needs --cluster"),
    ],
)
def test_options_that_do_not_fit(
    released: Cluster, workload: tuple[str, ...], arguments: tuple[str, ...], message: str
) -> None:
    code, output = released.run("bench", *arguments, *workload)
    assert code == UsageError.exit_code
    assert message in output
