"""`penstock drill --cluster` on the emulated cluster."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import drill as cli
from penstock.cluster.rights import needs_to_drill
from penstock.drill import cluster as cluster_drill
from penstock.drill.run import Pace
from penstock.errors import ClusterError, DrillError, UsageError
from tests.support.emulated_cluster import endpoint as endpoints
from tests.support.emulated_cluster.endpoint import endpoint
from tests.support.emulated_cluster.pods import Nodes
from tests.support.emulated_cluster.released import NAME, Cluster, certificate, cluster
from tests.support.emulated_cluster.roles import as_role, role_file
from tests.support.emulated_cluster.store import ApiError
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.slow
QUICK = Pace(warm_up_s=0.1, steady_s=0.1, recovery_s=LIMIT_S, retry_s=0.05, poll_s=0.02)
LOAD = ("--yes", "--seed", "1", "--concurrency", "4")
START_S = 20 * QUICK.retry_s  # longer than the retries of a client


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cli, "pace_of", lambda args: QUICK)
    monkeypatch.setattr(endpoints, "TOKEN_S", 0.0005)
    monkeypatch.setattr(cluster_drill, "POLL_S", 0.05)
    monkeypatch.setattr(cluster_drill, "EVICTION_RETRY_S", 0.3)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def serving(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The quickstart with two workers of each kind, on two nodes, with a serving frontend."""
    with cluster(tmp_path, capsys, monkeypatch) as emulated:
        install(emulated)
        with endpoint(emulated.api.store, decode=1, prefill=1) as port:
            emulated.api.forwarded[8000] = port
            yield emulated


def install(emulated: Cluster) -> None:
    Nodes(emulated.api.store, ("node-a", "node-b"))
    emulated.install(decode={"replicas": 2})
    emulated.operator.step_in_background()


def drill(emulated: Cluster, *arguments: str) -> tuple[int, str]:
    return emulated.run("drill", "--cluster", *LOAD, *arguments)


def report(emulated: Cluster, *arguments: str) -> dict[str, object]:
    code, output = drill(emulated, "--json", *arguments)
    assert code == 0, output
    return dict(json.loads(output[output.index("{\n") : output.rindex("}") + 1]))


def changes(emulated: Cluster) -> list[str]:
    """The requests that could have changed something, but for questions."""
    writes = [
        r for r in emulated.api.requests if r.split()[0] in ("POST", "PUT", "PATCH", "DELETE")
    ]
    return [r for r in writes if not r.endswith("accessreviews")]


def test_faults_under_load_through_a_forwarded_port(serving: Cluster, tmp_path: Path) -> None:
    page = tmp_path / "drill.html"
    result = report(serving, "--count", "6", "--report", str(page))
    assert "<svg" in page.read_text()
    assert result["passed"] is True
    assert int(str(result["requests"])) > 50
    faults = result["faults"]
    assert isinstance(faults, list)
    assert {(f["kind"], f["target"].partition(".")[0]) for f in faults} == {
        (kind, pool) for kind in ("delete", "evict", "kill") for pool in ("prefill", "decode")
    }
    assert all(f["recovered_s"] is not None and f["has_survivor"] for f in faults)
    assert {f["outcome"] for f in faults} == {""}
    requests = serving.api.requests
    assert sum(r.startswith("DELETE") and "/pods/quick-" in r for r in requests) == 2
    assert sum(r.endswith("/eviction") for r in requests) == 2
    assert sum("/exec?" in r for r in requests) == 2
    assert "/portforward?" in " ".join(requests)
    assert f"drill {serving.graph} " in str(result["command"])
    assert "--cluster" in str(result["command"])


def test_requests_that_fail_while_a_pod_is_gone_are_reported(serving: Cluster) -> None:
    """The judge can fail: this endpoint needs both decode workers."""
    serving.api.containers.start_s = START_S
    with endpoint(serving.api.store, decode=2) as port:
        url = f"http://127.0.0.1:{port}/v1"
        arguments = ("--url", url, "--faults", "delete:decode", "--count", "1")
        code, output = drill(serving, *arguments)
        serving.edit(drill={"permitted_failures": {"delete": 10_000}})
        permitted, text = drill(serving, *arguments)
    assert code == DrillError.exit_code, output
    assert "lost after delete decode.quick-decode-" in output
    assert "another replica could have served it" in output
    assert permitted == 0, text
    assert "permitted for each fault by `drill.permitted_failures`: delete 10000" in text


def test_a_disruption_budget_may_refuse_an_eviction(serving: Cluster) -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"penstock/component": "decode"}}},
    }
    key = ("policy/v1", "poddisruptionbudgets", "default", "all")
    serving.api.store.write(key, budget)
    code, output = drill(serving, "--faults", "evict:decode", "--count", "1")
    assert code == 0, output
    text = "not possible: The disruption budget all needs 2 healthy pods and has 2 currently"
    assert text in output
    assert "passed: 1 faults" in output


def test_a_node_is_drained_and_uncordoned(serving: Cluster) -> None:
    store = serving.api.store
    nodes = Nodes(store, ())
    node = spread(serving)
    (model, *_) = store.of_kind("Pod")
    owner = {"ownerReferences": model["metadata"]["ownerReferences"], "labels": {}}
    agent = {**model, "metadata": owner, "spec": {**model["spec"], "nodeName": node}}
    store.write(("v1", "pods", "kube-system", "agent"), agent)
    code, output = drill(serving, "--faults", f"drain:{node}", "--count", "1")
    assert code == 0, output
    assert "leaving 1 other pods; to undo: kubectl uncordon" in output
    assert nodes.cordons()[-2:] == [(node, True), (node, False)]
    assert ("v1", "pods", "kube-system", "agent") in store.objects
    evicted = [r for r in serving.api.requests if r.endswith("/eviction")]
    assert all("/namespaces/default/pods/quick-" in request for request in evicted)
    assert evicted


def spread(emulated: Cluster) -> str:
    """Put the single frontend on node-a, and one pod of each pool on each node; the node without
    the frontend."""
    store = emulated.api.store
    counts: dict[str, int] = {}
    with store.lock:
        for key, pod in list(store.objects.items()):
            if key[1] == "pods":
                name = pod["metadata"]["labels"]["penstock/component"]
                counts[name] = counts.get(name, -1) + 1
                node = ("node-a", "node-b")[counts[name]]
                store.write(key, {**pod, "spec": {**pod["spec"], "nodeName": node}})
    return "node-b"


def test_a_node_that_was_cordoned_before_stays_cordoned(serving: Cluster) -> None:
    node = spread(serving)
    serving.api.store.objects["v1", "nodes", "", node]["spec"] = {"unschedulable": True}
    serving.api.requests.clear()
    code, output = drill(serving, "--faults", f"drain:{node}", "--count", "1")
    assert code == 0, output
    assert "not possible: the node is already cordoned" in output
    assert serving.api.store.objects["v1", "nodes", "", node]["spec"]["unschedulable"]
    assert changes(serving) == []


def test_uncordoning_is_tried_again(serving: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the API server is unavailable; at the end, the error says what to do."""
    monkeypatch.setattr(cluster_drill, "UNCORDON_WAIT_S", 0.01)
    node = spread(serving)
    requests = 0  # about the node: read, cordon, uncordon
    refused = range(3, 5)

    def gate(path: str) -> None:
        nonlocal requests
        if path.endswith(f"/nodes/{node}"):
            requests += 1
            if requests in refused:
                raise ApiError(503, "ServiceUnavailable", "shutting down")

    serving.api.gate = gate
    code, output = drill(serving, "--faults", f"drain:{node}", "--count", "1")
    assert code == 0, output
    assert f"uncordoned {node}" in output
    assert requests == 5
    node, refused, requests = spread(serving), range(3, 1000), 0
    code, output = drill(serving, "--faults", f"drain:{node}", "--count", "1")
    assert code == ClusterError.exit_code, output
    assert f"node {node}: is still cordoned. Fix: Run `kubectl uncordon {node}`." in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_drain_uncordons_its_node(number: int, serving: Cluster) -> None:
    node = spread(serving)
    nodes = Nodes(serving.api.store, ())
    serving.api.containers.start_s = 1000  # so that the drain lasts
    is_evicting = threading.Event()

    def gate(path: str) -> None:
        if path.endswith("/eviction"):
            is_evicting.set()

    def interrupt() -> None:
        if is_evicting.wait(LIMIT_S):
            os.kill(os.getpid(), number)

    serving.api.gate = gate
    thread = threading.Thread(target=interrupt)
    thread.start()
    code, output = drill(serving, "--faults", f"drain:{node}", "--count", "1")
    thread.join()
    assert code == 130, output
    assert f"uncordoned {node}" in output
    assert nodes.cordons()[-1] == (node, False)


BAD = [
    (["--faults", "evcit"], "there is no fault `evcit`. Fix: Did you mean `evict`?"),
    (["--faults", "delete:decod"], "no component `decod`. Did you mean `decode`?"),
    (["--faults", "drain:node-z"], "no node with ready pods of the release `node-z`"),
    (["--faults", "delete:frontend"], "frontend has 1 ready pod(s). Raise its replicas"),
    (["--faults", "drain"], "no fault is possible without removing the last ready pod"),
    (["--engine", "mocker"], "--engine: does not apply to a release on a cluster"),
    (["--release", "other"], "release default/other: is not installed"),
]


def test_bad_input_touches_nothing(serving: Cluster) -> None:
    store = serving.api.store
    with store.lock:  # all on one node
        for key, pod in list(store.objects.items()):
            if key[1] == "pods":
                store.write(key, {**pod, "spec": {**pod["spec"], "nodeName": "node-a"}})
    serving.api.requests.clear()
    for arguments, text in BAD:
        code, output = drill(serving, *arguments)
        expected = (UsageError.exit_code, ClusterError.exit_code, DrillError.exit_code)
        assert code in expected, output
        assert text in output
        assert changes(serving) == []
    code, output = serving.run("drill", "--cluster")
    assert code == UsageError.exit_code
    assert "--yes: required, because stdin is not a terminal" in output
    code, output = serving.run("drill", "--remove-last")
    assert code == UsageError.exit_code
    assert "--remove-last needs --cluster. Fix: Add --cluster." in output
    assert changes(serving) == []


def test_a_release_that_is_not_ready_is_left_alone(serving: Cluster) -> None:
    serving.edit(decode={"replicas": 3, "config": {"engine": {"block_size": 64}}})
    serving.operator.machine.steps_to_ready = lambda args: 10**6
    assert serving.apply("--no-wait")[0] == 0
    serving.api.requests.clear()
    code, output = drill(serving)
    assert code == DrillError.exit_code
    assert "is not ready: " in output
    assert "nothing was changed" in output
    assert changes(serving) == []


def test_the_last_pod_is_removed_only_on_request(serving: Cluster) -> None:
    arguments = ("--faults", "delete:frontend", "--remove-last", "--count", "1")
    code, output = drill(serving, *arguments)
    assert "delete frontend.quick-frontend-" in output
    assert code in (0, DrillError.exit_code), output
    assert any(r.startswith("DELETE") and "quick-frontend" in r for r in changes(serving))


def test_exec_that_is_not_possible_is_explained(serving: Cluster) -> None:
    serving.api.containers.execute = lambda command: (127, "sh: not found")
    code, output = drill(serving, "--faults", "kill:decode", "--count", "1")
    assert code == ClusterError.exit_code, output
    assert "`/bin/sh -c kill 1` exited with 127: sh: not found" in output
    assert "Choose the fault delete" in output

    def refuse(path: str) -> None:
        if path.endswith("/exec"):
            raise ApiError(403, "Forbidden", "exec is turned off")

    serving.api.gate = refuse
    code, output = drill(serving, "--faults", "kill:decode", "--count", "1")
    assert code == ClusterError.exit_code, output
    assert "the API server refuses exec" in output
    assert "Grant the kubeconfig's user permission to get and create pods/exec" in output


@pytest.mark.program
def test_rights_are_checked_before_anything_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(tmp_path, capsys, monkeypatch, certificate(tmp_path)) as emulated:
        install(emulated)
        with endpoint(emulated.api.store, decode=1) as port:
            emulated.api.forwarded[8000] = port
            ci = as_role(emulated, "default", "ci", role_file("ci")["rules"])
            emulated.api.requests.clear()
            code, output = ci.run("drill", "--cluster", *LOAD)
            assert code == ClusterError.exit_code
            rights = "pods (delete), pods/eviction (create), pods/exec (create, get)"
            assert f"{rights}. Nothing was changed" in output
            assert changes(emulated) == []
            operator = as_role(emulated, "default", "operator", role_file("operator")["rules"])
            code, output = operator.run("drill", "--cluster", *LOAD, "--faults", "drain")
            assert code == ClusterError.exit_code
            assert "in the whole cluster: nodes (get, patch)" in output
            assert "k8s/rbac/drain.yaml" in output
            code, output = operator.run(
                "drill",
                "--cluster",
                *LOAD,
                "--faults",
                "delete:decode,evict:decode,kill:decode",
                "--count",
                "3",
            )
            assert code == 0, output
            assert emulated.api.access.denied == []


def test_the_needs_are_those_of_the_chosen_faults() -> None:
    needed = {str(need.right) for need in needs_to_drill((), ["evict"], forwards=False)}
    assert "create pods/eviction" in needed
    assert not {"delete pods", "get pods/exec", "get pods/portforward"} & needed
    assert NAME not in needed
