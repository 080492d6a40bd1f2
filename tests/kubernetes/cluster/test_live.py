"""`penstock top` and `page` of a release, on an emulated cluster with the metrics of mockers.

The metrics in tests/live/mocker_metrics are those of Dynamo 1.6.1's frontend and of three mockers
of dynamo_graphs/quickstart-simulated.yaml, before and after 12 requests, without the lines that no
live view reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import ClusterError, UsageError
from penstock.helm import ReleaseTarget
from penstock.live.cluster.source import ClusterGraph
from penstock.live.model import LiveSnapshot
from tests.support.emulated_cluster.kubelet import warning
from tests.support.emulated_cluster.released import Cluster
from tests.support.emulated_cluster.roles import as_role, role_file, without
from tests.support.emulated_cluster.store import ApiError
from tests.support.waiting import first

TEXTS = Path(__file__).parents[2] / "live" / "mocker_metrics"
PORTS = {"frontend": 8000, "prefill": 9090, "decode": 9090}


def pods(installed: Cluster) -> dict[str, list[str]]:
    """The names of the pods by component."""
    names: dict[str, list[str]] = {}
    for key, pod in sorted(installed.api.store.objects.items()):
        if key[1] == "pods":
            names.setdefault(pod["metadata"]["labels"]["penstock/component"], []).append(key[3])
    return names


def serve_metrics(installed: Cluster, moment: str) -> None:
    for component, names in pods(installed).items():
        for number, name in enumerate(names):
            text = (TEXTS / f"{component}-{number}-{moment}.txt").read_text()
            installed.api.served[f"{name}:{PORTS[component]}/metrics"] = text


@contextmanager
def live(installed: Cluster) -> Iterator[ClusterGraph]:
    target = ReleaseTarget(name="quick", namespace="default", kubeconfig=installed.kubeconfig)
    graph = ClusterGraph(target)
    graph._state_s = 0.05
    installed.operator.step_in_background()
    yield graph


async def until(graph: ClusterGraph, is_met: Callable[[LiveSnapshot], bool]) -> LiveSnapshot:
    return await first(graph.snapshot, is_met, "a snapshot that meets the condition")


def following(graph: ClusterGraph, run: Callable[[], Awaitable[None]]) -> None:
    async def closed() -> None:
        try:
            await run()
        finally:
            await graph.close()

    asyncio.run(closed())


def test_a_snapshot_has_the_figures_of_every_pod(installed: Cluster) -> None:
    serve_metrics(installed, "after")
    output = installed.expect(0, "top", "--cluster", "--json")
    snapshot = json.loads(output)
    assert (snapshot["graph"], snapshot["phase"]) == ("quick (namespace default)", "ready")
    assert snapshot["models"] == ["openai/gpt-oss-20b"]
    assert snapshot["endpoint"] is None
    counts = [(c["name"], c["ready"], c["desired"]) for c in snapshot["components"]]
    assert counts == [("frontend", 1, 1), ("prefill", 2, 2), ("decode", 1, 1)]
    listed = pods(installed)
    names = [*listed["frontend"], *listed["prefill"], *listed["decode"]]
    assert [w["name"] for w in snapshot["workers"]] == names
    assert [w["responds"] for w in snapshot["workers"]] == [True] * 4
    assert [w["pid"] for w in snapshot["workers"]] == [None] * 4
    frontend, first, _, decode = snapshot["workers"]
    assert first["worker_id"] == "f933cd893383b4cb"
    assert decode["worker_id"] == "7f029ce7f7fa578a"
    # As the frontend measured them, by worker ID.
    assert first["ttft_s"] > 0
    assert decode["itl_s"] > 0
    assert (frontend["running"], frontend["queued"]) == (0, 0)
    assert snapshot["alerts"] == []


def test_the_snapshot_as_text(installed: Cluster) -> None:
    serve_metrics(installed, "after")
    output = installed.expect(0, "top", "--cluster", "--once")
    assert "quick (namespace default): ready" in output
    assert pods(installed)["decode"][0] in output


def test_rates_are_those_between_two_scrapes(installed: Cluster) -> None:
    serve_metrics(installed, "before")
    with live(installed) as graph:

        async def run() -> None:
            await until(graph, lambda s: s.totals.request_rate == 0)
            serve_metrics(installed, "after")
            snapshot = await until(graph, lambda s: bool(s.totals.request_rate))
            assert snapshot.window_s is not None
            # Kept is the first scrape: 12 requests since then.
            assert snapshot.totals.request_rate == pytest.approx(12 / snapshot.window_s)
            assert snapshot.totals.prefix_hit_rate is not None

        following(graph, run)


def test_pods_come_and_go_with_their_events(installed: Cluster) -> None:
    with live(installed) as graph:

        async def run() -> None:
            await until(graph, lambda s: len(s.workers) == 4)
            installed.by_hand("decode", 2)
            snapshot = await until(graph, lambda s: [w.state for w in s.workers] == ["ready"] * 5)
            new = snapshot.workers[-1]
            events = [(e.kind, e.subject, e.text) for e in snapshot.events]
            assert ("scale", "decode", "1 → 2 replicas") in events
            names = [w.name for w in snapshot.workers if w.component == "decode"]
            assert any(("start", name, "created") in events for name in names)
            installed.by_hand("decode", 1)
            snapshot = await until(graph, lambda s: len(s.workers) == 4)
            stopped = {e.subject for e in snapshot.events if e.kind == "stop"}
            assert stopped & set(names)
            assert new.component == "decode"

        following(graph, run)


def test_a_pod_that_does_not_respond_has_no_metrics(installed: Cluster) -> None:
    serve_metrics(installed, "after")
    (name,) = pods(installed)["decode"]
    del installed.api.served[f"{name}:9090/metrics"]
    with live(installed) as graph:

        async def run() -> None:
            snapshot = await until(graph, lambda s: s.workers[-1].responds is False)
            assert [w.responds for w in snapshot.workers] == [True, True, True, False]
            assert snapshot.alerts == (f"{name} does not return its metrics",)

        following(graph, run)


def test_a_value_that_is_no_number_is_unknown(installed: Cluster) -> None:
    serve_metrics(installed, "after")
    (name,) = pods(installed)["frontend"]
    key = f"{name}:8000/metrics"
    lines = installed.api.served[key].splitlines()
    installed.api.served[key] = "\n".join(
        line if line.startswith("#") else f"{line.rpartition(' ')[0]} NaN" for line in lines
    )
    output = installed.expect(0, "top", "--cluster", "--json")
    snapshot = json.loads(output)
    assert snapshot["workers"][0]["responds"] is True
    assert snapshot["workers"][0]["running"] is None


def test_an_api_server_that_is_away_is_shown_with_the_last_state(installed: Cluster) -> None:
    serve_metrics(installed, "after")

    def away(path: str) -> None:
        raise ApiError(503, "ServiceUnavailable", "the server is down")

    with live(installed) as graph:

        async def run() -> None:
            before = await until(graph, lambda s: s.workers[-1].responds is True)
            installed.api.gate = away
            snapshot = await until(graph, lambda s: s.phase == "unreachable")
            assert [w.name for w in snapshot.workers] == [w.name for w in before.workers]
            assert all(w.responds for w in snapshot.workers)
            assert "the server is down; the view shows the state of" in snapshot.alerts[0]
            installed.api.gate = lambda _: None
            snapshot = await until(graph, lambda s: s.phase == "ready")
            assert snapshot.alerts == ()

        following(graph, run)


def test_a_release_that_is_uninstalled_is_stopped(installed: Cluster) -> None:
    with live(installed) as graph:
        assert installed.run("uninstall", "--yes")[0] == 0
        graph._reader._release = None

        async def run() -> None:
            snapshot = await until(graph, lambda s: s.phase == "stopped")
            assert snapshot.workers == ()

        following(graph, run)


def test_events_of_kubernetes_are_shown(installed: Cluster) -> None:
    (pod,) = pods(installed)["decode"]
    add_event(installed, "Pod", pod, "Unhealthy", "Readiness probe failed: HTTP 503", count=3)
    add_event(installed, "Pod", pod, "Killing", "Stopping container main", is_warning=False)
    scaled = "Scaled up replica set quick-prefill-76dc4867f7 from 0 to 2"
    (prefill,) = (
        deployment["metadata"]["name"]
        for deployment in installed.api.store.of_kind("Deployment")
        if deployment["metadata"]["labels"]["penstock/component"] == "prefill"
    )
    add_event(installed, "Deployment", prefill, "ScalingReplicaSet", scaled, is_warning=False)
    add_event(installed, "Pod", "quick-2-decode-0", "Unhealthy", "of another release")
    add_event(installed, "Pod", pod, "Pulled", "not shown", is_warning=False)
    with live(installed) as graph:

        async def run() -> None:
            events = [(e.kind, e.subject, e.text) for e in (await graph.snapshot()).events]
            probe = "Unhealthy: Readiness probe failed: HTTP 503 (3 times)"
            assert ("alert", pod, probe) in events
            assert ("drain", pod, "Stopping container main") in events
            assert ("scale", "prefill", "0 → 2 replicas") in events
            assert not [e for e in events if "another" in e[2] or "shown" in e[2]]

        following(graph, run)


def add_event(
    installed: Cluster,
    kind: str,
    name: str,
    reason: str,
    message: str,
    *,
    count: int = 1,
    is_warning: bool = True,
) -> None:
    store = installed.api.store
    about = next(
        (o for o in store.of_kind(kind) if o["metadata"]["name"] == name),
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": "of another",
                "resourceVersion": "1",
            },
        },
    )
    event = warning(about, reason, message) | {
        "type": "Warning" if is_warning else "Normal",
        "count": count,
        "lastTimestamp": "2026-11-22T20:44:05Z",
    }
    store.write(("v1", "events", "default", f"{name}.{len(store.objects)}"), event, trusted=True)


@pytest.mark.parametrize("verb", [("top",), ("top", "--web")])
def test_a_release_that_is_not_installed(
    fresh: Cluster, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.live.page.serve.require_environment", lambda: None)
    assert "release default/quick: is not installed" in fresh.expect(
        ClusterError, *verb, "--cluster"
    )


def test_options_that_do_not_fit_together(fresh: Cluster) -> None:
    wrong = {
        ("top", "--cluster", "--set", "a=1"): "--set applies to local deployments",
        ("top",): "--kubeconfig needs --cluster",
        ("top", "--web", "--url", "http://127.0.0.1:8000/v1"): "--url needs --cluster",
        ("top", "--web", "--cluster", "--allow-edit"): "the page cannot change a release",
    }
    for words, message in wrong.items():
        assert message in fresh.expect(UsageError, *words)


@pytest.mark.program  # openssl
def test_missing_rights_are_named_with_the_rule(secured: Cluster) -> None:
    all_rules = role_file("viewer")["rules"]
    assert as_role(secured, "default", "viewer", all_rules).run("top", "--cluster")[0] == 0
    rules = [without(rule, "pods/proxy", "events") for rule in all_rules]
    output = as_role(secured, "default", "few", rules).expect(0, "top", "--cluster", "--json")
    snapshot = json.loads(output)
    assert snapshot["alerts"] == [
        "no metrics: the user may not get pods/proxy. Fix: add the rule "
        '{apiGroups: [""], resources: ["pods/proxy"], verbs: ["get"]} to the Role of the '
        "kubeconfig's user",
        "no events: the user may not list events. Fix: add the rule "
        '{apiGroups: [""], resources: ["events"], verbs: ["list"]} to the Role of the '
        "kubeconfig's user",
    ]
    rules = [without(rule, "pods") for rule in all_rules]
    output = as_role(secured, "default", "none", rules).expect(ClusterError, "top", "--cluster")
    assert 'resources: ["pods"], verbs: ["list"]' in " ".join(output.split())
