"""A release is ready when its frontends route to its workers, which is later than their readiness
(dynamo#13622, #13769)."""

from __future__ import annotations

import json

import pytest

from penstock.errors import RolloutError
from tests.support.emulated_cluster.kubelet import is_ready
from tests.support.emulated_cluster.released import Cluster
from tests.support.emulated_cluster.roles import as_role, role_file, without
from tests.support.emulated_cluster.store import Object

LATE_S = 20
POOLS = ("prefill", "decode")


@pytest.fixture(params=["dynamo", "plain"])
def released(fresh: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """Two frontends, of which one discovers new workers late."""
    fresh.install(platform=request.param, frontend={"replicas": 2}, decode={"replicas": 2})
    discover(fresh, LATE_S)
    return fresh


def frontends(cluster: Cluster) -> list[str]:
    pods = cluster.api.store.of_kind("Pod")
    names = [str(pod["metadata"]["name"]) for pod in pods]
    return [name for name in names if name.startswith("quick-frontend-")]


def discover(cluster: Cluster, seconds: int) -> str:
    """One frontend discovers new workers so late; its name."""
    late, known = frontends(cluster)[-1], workers(cluster)

    def delay(frontend: str, worker: str) -> int:
        return seconds if frontend == late and worker not in known else 0

    cluster.operator.kubelet.routing.delay = delay
    return late


def edit_workers(cluster: Cluster) -> None:
    cluster.edit(prefill={"config": {"engine": {"block_size": 64}}})


def workers(cluster: Cluster) -> set[str]:
    pods = cluster.api.store.of_kind("Pod")
    labels = {str(p["metadata"]["name"]): p["metadata"]["labels"] for p in pods}
    return {name for name, of in labels.items() if of["penstock/component"] in POOLS}


def known(cluster: Cluster, frontend: str) -> set[str]:
    pod = cluster.api.store.objects["v1", "pods", "default", frontend]
    return {str(p["metadata"]["name"]) for p in cluster.operator.kubelet.routing.known_to(pod)}


def outcome(cluster: Cluster) -> str | None:
    return str(json.loads(cluster.run("history", "--json")[1])[-1]["outcome"])


def test_an_update_is_ready_when_every_frontend_routes_to_every_worker(released: Cluster) -> None:
    edit_workers(released)
    output = released.expect(0, "apply", "--yes")
    assert f"frontend {frontends(released)[-1]} " in output
    assert "frontend 2/2 ready, prefill 2/2 ready, decode 2/2 ready" in output
    for frontend in frontends(released):
        assert known(released, frontend) == workers(released)
    assert outcome(released) == "ready"


def test_what_a_frontend_does_not_route_to_is_named_also_at_the_time_limit(
    released: Cluster,
) -> None:
    late = discover(released, 10**6)
    released.edit(prefill={"replicas": 3})
    output = released.expect(RolloutError, "apply", "--yes", "--timeout-s", "60")
    lines = [line for line in output.splitlines() if "is not ready after 60 s" in line]
    assert len(lines) == 1
    (generation,) = generations(released)
    text = f"frontend {late} routes to only 2 of 3 workers of generation {generation} of prefill"
    assert text in lines[0]
    assert outcome(released) == "not-ready"
    assert text in released.expect(RolloutError, "status", "--cluster").splitlines()[0]


def generations(cluster: Cluster) -> set[str]:
    variables = [
        {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"] if "value" in e}
        for pod in cluster.api.store.of_kind("Pod")
        if pod["metadata"]["labels"]["penstock/component"] in POOLS
    ]
    return {each["DYN_NAMESPACE_WORKER_SUFFIX"] for each in variables}


def test_status_shows_how_many_workers_are_admitted(released: Cluster) -> None:
    released.edit(decode={"replicas": 3})
    released.expect(0, "apply", "--yes", "--no-wait")
    released.wait_until(lambda: sum(map(is_ready, pods_of(released, "decode"))) == 3)
    released.clock.sleep(5)
    status = json.loads(released.run("status", "--cluster", "--json")[1])
    counts = {p["name"]: (p["ready"], p["admitted"]) for p in status["pools"]}
    assert (counts["decode"], counts["prefill"]) == ((3, 2), (2, 2))
    assert counts["frontend"] == (2, None)
    assert not status["ready"]
    assert "routes to only 2 of 3 workers of generation" in status["waiting_for"]
    released.clock.sleep(LATE_S)
    lines = released.expect(0, "status", "--cluster").splitlines()
    assert lines[1].split() == ["pool", "ready", "admitted", "updated", "restarts", "GPUs"]
    assert next(row for row in lines if row.split()[0] == "decode").split()[1:3] == ["3/3", "3"]


def pods_of(cluster: Cluster, component: str) -> list[Object]:
    listed = cluster.api.store.of_kind("Pod")
    return [p for p in listed if p["metadata"]["labels"]["penstock/component"] == component]


NOT_CHECKED = "whether the frontends route to the workers was not checked: "


def test_frontends_that_the_api_server_does_not_reach_do_not_fail_the_rollout(
    released: Cluster,
) -> None:
    """As on a cluster whose network keeps the API server from the pods."""
    released.api.answer = lambda pod, path: None
    edit_workers(released)
    before = released.clock.now()
    output = released.expect(0, "apply", "--yes")
    assert released.clock.now() - before >= 60
    assert output.count(NOT_CHECKED) == 1
    assert "503: error trying to reach service" in output
    assert outcome(released) == "ready"
    status = released.expect(0, "status", "--cluster")
    assert f"not shown: {NOT_CHECKED}frontend " in status


def test_a_frontend_that_does_not_respond_for_a_while_is_asked_again(released: Cluster) -> None:
    routing, began = released.operator.kubelet.routing, released.clock.now()
    discover(released, 0)

    def answer(pod: Object, path: str) -> tuple[int, str] | None:
        return routing.answer(pod, path) if released.clock.now() > began + 30 else None

    released.api.answer = answer
    edit_workers(released)
    released.expect(0, "apply", "--yes")
    assert 30 < released.clock.now() - began < 60


@pytest.mark.parametrize("released", ["dynamo"], indirect=True)
@pytest.mark.parametrize("body", ["", '{"error": {"message": "Model not found"}}'])
def test_before_1_3_frontends_report_only_models(released: Cluster, body: str) -> None:
    routing = released.operator.kubelet.routing
    discover(released, 0)

    def answer(pod: Object, path: str) -> tuple[int, str] | None:
        return (404, body) if path.endswith("/ready") else routing.answer(pod, path)

    released.api.answer = answer
    edit_workers(released)
    output = released.expect(0, "apply", "--yes")
    assert "route" not in output.partition("is written")[2]


@pytest.mark.parametrize("released", ["dynamo"], indirect=True)
def test_a_frontend_that_counts_no_workers_is_asked_for_their_generation(
    released: Cluster,
) -> None:
    routing = released.operator.kubelet.routing

    def answer(pod: Object, path: str) -> tuple[int, str] | None:
        found = routing.answer(pod, path)
        if found is None or not path.endswith("/ready"):
            return found
        content = json.loads(found[1])
        for state in content["namespaces"].values():
            del state["worker_types"]
        return found[0], json.dumps(content)

    released.api.answer = answer
    edit_workers(released)
    output = released.expect(0, "apply", "--yes")
    assert "does not route to generation" in output


@pytest.mark.parametrize("released", ["dynamo"], indirect=True)
def test_without_a_worker_of_one_pool_there_is_nothing_to_route_to(released: Cluster) -> None:
    released.edit(decode={"replicas": 0})
    output = released.expect(0, "apply", "--yes", "--skip-check")
    assert "route" not in output.partition("is written")[2]


@pytest.mark.parametrize("released", ["dynamo"], indirect=True)
@pytest.mark.parametrize("text", ["<html>", "[]", '{"data": [{}]}'])
def test_a_proxy_that_answers_for_a_frontend_is_none(released: Cluster, text: str) -> None:
    released.api.answer = lambda pod, path: (200, text)
    edit_workers(released)
    assert NOT_CHECKED in released.expect(0, "apply", "--yes")


@pytest.mark.program
@pytest.mark.slow
@pytest.mark.parametrize("resource", ["pods/proxy", "pods"])
def test_without_the_right_to_ask_nothing_fails(secured: Cluster, resource: str) -> None:
    rules = [without(rule, resource) for rule in role_file("ci")["rules"]]
    user = as_role(secured, "default", "limited", [rule for rule in rules if rule["resources"]])
    edit_workers(secured)
    output = user.expect(0, "apply", "--yes")
    assert output.count(NOT_CHECKED) == 1
    assert "revision 2 is ready" in output
    assert outcome(secured) == "ready"
