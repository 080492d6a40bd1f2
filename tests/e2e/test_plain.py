"""`platform: plain`: the rendered Deployments and etcd, run as by a kubelet."""

from __future__ import annotations

import copy
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import helm_python as helm
import httpx
import psutil
import pytest
import yaml

from penstock.local.ports import LOOPBACK
from penstock.manifests.render import chart_path, render
from penstock.strict_yaml.loader import SafeLoader
from penstock.tiny_model import write
from tests.e2e.pods import Pod, Pods
from tests.support.local_graphs import QUICKSTART
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.needs("servers"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = tmp_path_factory.mktemp("model") / "tiny"
    write(model)
    values: dict[str, Any] = yaml.safe_load(QUICKSTART.read_text())
    values["platform"] = "plain"
    values["model"]["path"] = str(model)
    values["drain_timeout_s"] = 5
    return values


@pytest.fixture(scope="module")
def pods(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    rendered = render(values, name="plain")
    with _broker() as broker:
        folder = tmp_path_factory.mktemp("pods")
        running = Pods(rendered.objects, folder, env={"DYN_ZMQ_BROKER_URL": broker})
        try:
            running.start("StatefulSet")
            running.wait("startupProbe")
            running.start("Deployment", components=["frontend"])
            running.wait("startupProbe")
            (frontend,) = running.of("frontend")
            assert "lists no model yet" in running.problem(frontend, "readinessProbe")
            running.start("Deployment", components=["prefill", "decode"])
            for probe in ("startupProbe", "readinessProbe"):
                running.wait(probe)
            yield running
        finally:
            running.stop()


@contextmanager
def _broker() -> Iterator[str]:
    """Without a broker the event plane listens on every address; a pod has only one."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(2)]
    xsub, xpub = (s.getsockname()[1] for s in sockets)
    for s in sockets:
        s.close()
    argv = [sys.executable, "-m", "penstock.local.broker", str(xsub), str(xpub)]
    process = subprocess.Popen(argv)
    try:
        yield f"xsub=tcp://{LOOPBACK}:{xsub} , xpub=tcp://{LOOPBACK}:{xpub}"
    finally:
        process.terminate()
        process.wait(10)


def test_the_charts_own_test_gets_a_completion(pods: Pods, values: dict[str, Any]) -> None:
    """The script that `helm test` runs in a pod, against the Service's pod."""
    with helm.Chart.load(chart_path()) as chart:
        texts = chart.render(values, name="plain", namespace="default")
    pod = yaml.load(texts["penstock/templates/tests/completion.yaml"], SafeLoader)
    (container,) = pod["spec"]["containers"]
    url = f"http://{pods.of('frontend')[0].address}:8000"
    argv = [
        part.replace("http://plain-frontend:8000", url) for part in pods.command(container, "t")
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert '"completion_tokens": 16' in done.stdout


def test_the_completion_went_through_prefill_and_decode(pods: Pods, values: dict[str, Any]) -> None:
    url = f"http://{pods.of('frontend')[0].address}:8000/v1/completions"
    body = {"model": values["model"]["id"], "prompt": "water " * 50, "max_tokens": 4}
    body["nvext"] = {"extra_fields": ["worker_id"]}
    answer = httpx.post(url, json=body, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    workers = answer.json()["nvext"]["worker_id"]
    assert workers["prefill_worker_id"] != workers["decode_worker_id"]


def with_probe(objects: tuple[Any, ...], probe: dict[str, Any] | None) -> tuple[Any, ...]:
    """The Deployments of workers with another readiness."""
    changed: tuple[Any, ...] = copy.deepcopy(objects)
    for manifest in changed if probe else ():
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            container["readinessProbe"] = probe
    return changed


@contextmanager
def asked(pods: Pods, values: dict[str, Any]) -> Iterator[Counter[int]]:
    """The number of responses by status; a request every 50 ms. As OpenAI's clients, it is sent
    again twice after a server error: a frontend can route to a worker that ends at this moment."""
    url = f"http://{pods.of('frontend')[0].address}:8000/v1/completions"
    body = {"model": values["model"]["id"], "prompt": "Hello", "max_tokens": 1}
    statuses, ended = Counter[int](), Event()

    def ask() -> None:
        with httpx.Client(trust_env=False, timeout=30) as client:
            while not ended.wait(0.05):
                for pause_s in (0.5, 1.0, None):
                    status = client.post(url, json=body).status_code
                    if status < 500 or pause_s is None or ended.wait(pause_s):
                        break
                statuses[status] += 1

    thread = Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("probe", [None, {"httpGet": {"path": "/health", "port": "system"}}])
def test_an_update_serves_all_the_time_although_one_pool_starts_later(
    pods: Pods, values: dict[str, Any], probe: dict[str, Any] | None
) -> None:
    """With Dynamo's own readiness, the decode workers of the generation that serves would stop
    before the new one has a prefill worker."""
    engine = values["engine"] | {"env": {"CHANGED": "health" if probe else "chart"}}
    objects = with_probe(render(values | {"engine": engine}, name="plain").objects, probe)
    with asked(pods, values) as statuses:
        pods.update(objects, {"decode": 0, "prefill": 8})
    assert statuses[200] > 10
    assert (statuses.total() == statuses[200]) is (probe is None), statuses


def test_a_worker_is_ready_when_its_whole_generation_is_routed_to(
    pods: Pods, values: dict[str, Any]
) -> None:
    """Otherwise an update of the faster pool would stop the last decode workers of the generation
    that serves, while the new one has no prefill workers yet."""
    engine = values["engine"] | {"env": {"NEW": "1"}}
    pods.objects = render(values | {"engine": engine}, name="plain").objects
    pods.start("Deployment", components=["decode"])
    pods.wait("startupProbe")
    url = f"http://{pods.of('frontend')[0].address}:8000/health"
    new = pods.of("decode")[-1]
    expected = f"does not route requests to {namespace_of(new)} yet"
    seen = f"{namespace_of(new)} is registered"
    wait_for(lambda: namespace_of(new) in httpx.get(url, trust_env=False).text, seen)
    assert expected in pods.problem(new, "readinessProbe")
    pods.start("Deployment", components=["prefill"])
    pods.wait("readinessProbe")
    # One that was ready stays ready.
    for pod in pods.of("prefill"):
        pod.process.terminate()
        pod.process.wait(30)
        pods.pods.remove(pod)
    wait_for(lambda: namespace_of(new) not in ready_namespaces(pods, values), "no prefill worker")
    assert pods.problem(new, "readinessProbe") == ""


def namespace_of(pod: Pod) -> str:
    return f"{pod.env['DYN_NAMESPACE']}-{pod.env['DYN_NAMESPACE_WORKER_SUFFIX']}"


def ready_namespaces(pods: Pods, values: dict[str, Any]) -> set[str]:
    model = quote(values["model"]["id"], safe="")
    url = f"http://{pods.of('frontend')[0].address}:8000/v1/models/{model}/ready"
    namespaces = httpx.get(url, trust_env=False).json().get("namespaces", {})
    return {name for name, state in namespaces.items() if state["ready"]}


def test_every_pod_listens_on_its_own_address(pods: Pods) -> None:
    for pod in pods.pods:
        tree = [psutil.Process(pod.process.pid)]
        tree += tree[0].children(recursive=True)
        listens = {
            connection.laddr.ip
            for process in tree
            for connection in process.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listens == {pod.address}, pod.name


def test_pods_exit_within_their_grace_period(pods: Pods) -> None:
    assert set(pods.stop().values()) <= {0, -15}  # etcd dies of the signal it was sent
