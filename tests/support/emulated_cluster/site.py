"""A cluster behind a kubeconfig: emulated or real, with the same interface for tests."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import kubernetes
from penstock.cli import arguments
from penstock.cluster.rollout import Timeouts
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.kubelet import is_ending, is_ready
from tests.support.emulated_cluster.operator import Operator
from tests.support.emulated_cluster.released import ROOT, Penstock

# The options of a graph that add objects, or other owners of fields, to its release.
OPTIONS: dict[str, Any] = {
    "cluster": {
        "monitoring": {"pod_monitors": True},
        "network_policy": {
            "enabled": True,
            "clients": [{"namespaceSelector": {"matchLabels": {"name": "gateway"}}}],
            "scrapers": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
    },
    "model": {"cache": {"pvc": "models", "create": {"size": "1Gi"}}},
    "frontend": {"autoscaling": {"owner": "external"}},
}
GROUP, VERSION, PLURAL = "nvidia.com", "v1beta1", "dynamographdeployments"
ADAPTERS = "dynamographdeploymentscalingadapters"


@dataclass(kw_only=True)
class Site(Penstock):
    """One namespace with one graph, the quickstart."""

    every_s: float = 1.0  # interval between two observations of the pods
    serving: list[dict[str, int]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        client = api_client(self.kubeconfig)
        self.core = kubernetes.client.CoreV1Api(client)
        self.apps = kubernetes.client.AppsV1Api(client)
        self.custom = kubernetes.client.CustomObjectsApi(client)

    def slow_down(self) -> None:
        """Let new workers load long enough for a test to act meanwhile; real ones do anyway."""

    @property
    def is_plain(self) -> bool:
        return yaml.safe_load(self.graph.read_text()).get("platform") == "plain"

    def replicas(self) -> dict[str, int]:
        """The desired replicas by component."""
        if self.is_plain:
            deployments = self.apps.list_namespaced_deployment(self.namespace).items
            labels = "app.kubernetes.io/component"
            return {d.metadata.labels[labels]: d.spec.replicas for d in deployments}
        return {c["name"]: c.get("replicas", 1) for c in self._graph()["spec"]["components"]}

    def by_hand(self, component: str, replicas: int) -> None:
        """Set replicas as `kubectl scale` or `kubectl edit` does."""
        if self.is_plain:
            name = f"{self.graph.stem}-{component}"
            patch = {"spec": {"replicas": replicas}}
            self.apps.patch_namespaced_deployment_scale(name, self.namespace, patch)
            return
        where = (GROUP, VERSION, self.namespace, PLURAL, self.graph.stem)
        for _ in range(20):  # the operator writes the graph too
            graph = self._graph()
            for pool in graph["spec"]["components"]:
                if pool["name"] == component:
                    pool["replicas"] = replicas
            with contextlib.suppress(kubernetes.client.ApiException):
                self.custom.replace_namespaced_custom_object(
                    *where, graph, field_manager="kubectl-edit"
                )
                return
        raise AssertionError("the graph could not be edited")

    def autoscale(self, component: str, replicas: int) -> None:
        """Set replicas as an autoscaler does, through its target."""
        if self.is_plain:
            self.by_hand(component, replicas)
            return
        where = (GROUP, VERSION, self.namespace, ADAPTERS, f"{self.graph.stem}-{component}")
        patch = {"spec": {"replicas": replicas}}
        self.custom.patch_namespaced_custom_object(*where, patch, field_manager="autoscaler")

    def wait_replicas(self, component: str, replicas: int) -> None:
        """Wait until the component has the replicas and the release is ready."""
        deadline = self.clock.now() + 60
        while self.replicas()[component] != replicas or self.run("status", "--cluster")[0] != 0:
            assert self.clock.now() < deadline, self.replicas()
            self.clock.sleep(self.every_s)

    def read(self, path: str) -> dict[str, Any]:
        """The object at a path below the namespace, such as `api/v1/services/NAME`."""
        return self._send("GET", path)

    def patch(self, path: str, operations: list[dict[str, Any]], manager: str) -> None:
        """A JSON patch, as `kubectl edit` or a GitOps controller sends it."""
        self._send("PATCH", path, operations, manager)

    def create(self, path: str, manifest: dict[str, Any]) -> None:
        """Create the object in the collection at a path such as `api/v1/services`."""
        self._send("POST", f"{path}/", manifest)

    def _send(self, method: str, path: str, body: Any = None, manager: str = "") -> dict[str, Any]:
        group, plural, name = path.rsplit("/", 2)
        kind = "json-patch+json" if method == "PATCH" else "json"
        media = {"Content-Type": f"application/{kind}"} if body else {}
        answer: dict[str, Any] = self.core.api_client.call_api(
            f"/{group}/namespaces/{self.namespace}/{plural}/{name}".rstrip("/"),
            method,
            query_params=[("fieldManager", manager)] if manager else [],
            header_params={"Accept": "application/json", **media},
            body=body,
            auth_settings=["BearerToken"],
            response_type="object",
            _return_http_data_only=True,
        )
        return answer

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The component's pods that are not being deleted."""
        chosen = f"penstock/graph={self.graph.stem},penstock/component={component}"
        listed = self.core.list_namespaced_pod(
            self.namespace, label_selector=chosen, _preload_content=False
        )
        manifests = json.loads(listed.data)["items"]
        return [pod for pod in manifests if "deletionTimestamp" not in pod["metadata"]]

    def lowest(self, component: str, since: int) -> int:
        """The minimum of ready pods over all observations."""
        return min(ready.get(component, 0) for ready in self.serving[since:])

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe the pods in the background."""
        watcher = threading.Thread(target=self._watch_pods)
        watcher.start()
        try:
            yield
        finally:
            self._ended.set()
            watcher.join()

    def _watch_pods(self) -> None:
        while not self._ended.wait(self.every_s):
            ready: dict[str, int] = {}
            chosen = f"penstock/graph={self.graph.stem}"
            # As JSON: to build the client's objects of a pod takes 20 ms of CPU time.
            listed = self.core.list_namespaced_pod(
                self.namespace, label_selector=chosen, _preload_content=False
            )
            for pod in json.loads(listed.data)["items"]:
                name = pod["metadata"]["labels"]["penstock/component"]
                serves = is_ready(pod) and not is_ending(pod)
                ready[name] = ready.get(name, 0) + serves
            self.serving.append(ready)

    def _graph(self) -> dict[str, Any]:
        where = (GROUP, VERSION, self.namespace, PLURAL, self.graph.stem)
        return dict(self.custom.get_namespaced_custom_object(*where))


@dataclass(kw_only=True)
class EmulatedSite(Site):
    """``serving`` has every step of the controllers."""

    operator: Operator

    @contextmanager
    def watching(self) -> Iterator[None]:
        yield

    def slow_down(self) -> None:
        self.operator.machine.steps_to_ready = lambda _: 30


@contextmanager
def emulated(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    options: Mapping[str, Any],
    tls: tuple[Path, Path] | None = None,
) -> Iterator[Site]:
    with ApiServer(certificate=tls) as api, Operator(api) as operator:
        monkeypatch.setattr(arguments, "clock", lambda: operator.clock)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(api.kubeconfig)
        graph, namespace = _graph(folder, platform, options)
        site = EmulatedSite(
            kubeconfig=kubeconfig,
            namespace=namespace,
            graph=graph,
            capsys=capsys,
            serving=operator.serving,
            operator=operator,
        )
        with _in_namespace(site):
            yield site


def api_client(kubeconfig: Path) -> kubernetes.client.ApiClient:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return kubernetes.client.ApiClient(configuration)


def real_kubeconfig() -> Path:
    """The file of KUBECONFIG; without one the test is skipped."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG is not set")
    return Path(os.environ["KUBECONFIG"])


@contextmanager
def real(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: Mapping[str, Any],
) -> Iterator[Site]:
    """The cluster of KUBECONFIG; with Dynamo's operator if installed, otherwise Deployments."""
    kubeconfig = real_kubeconfig()
    timeouts = Timeouts(timeout_s=900)
    monkeypatch.setattr(arguments, "timeouts_of", lambda _: timeouts)
    kubernetes.config.load_kube_config(str(kubeconfig))
    groups = {group.name for group in kubernetes.client.ApisApi().get_api_versions().groups}
    needs_monitors = "monitoring" in options.get("cluster", {})
    if needs_monitors and "monitoring.coreos.com" not in groups:
        pytest.skip("the cluster has no PodMonitors")
    platform = "dynamo" if GROUP in groups else "plain"
    graph, namespace = _graph(folder, platform, options)
    site = Site(kubeconfig=kubeconfig, namespace=namespace, graph=graph, capsys=capsys)
    with _in_namespace(site):
        yield site


OnSite = Callable[..., AbstractContextManager[Site]]


def site_on(
    platform: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: Mapping[str, Any],
    tls: tuple[Path, Path] | None = None,
) -> AbstractContextManager[Site]:
    """``platform``: of the emulated cluster, or "real"."""
    if platform == "real":
        return real(folder, capsys, monkeypatch, options)
    return emulated(folder, capsys, monkeypatch, platform, options, tls)


def _graph(folder: Path, platform: str, options: Mapping[str, Any]) -> tuple[Path, str]:
    """The quickstart with options, and the name of a new namespace."""
    graph = folder / "contract.yaml"
    values = yaml.safe_load((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    for section, content in options.items():
        values[section] = {**values.get(section, {}), **content}
    graph.write_text(yaml.safe_dump({"platform": platform, **values}))
    return graph, f"penstock-contract-{uuid.uuid4().hex[:8]}"


@contextmanager
def _in_namespace(site: Site) -> Iterator[None]:
    """Creates the namespace, watches its pods, and deletes it at the end."""
    site.core.create_namespace({"metadata": {"name": site.namespace}})
    try:
        with site.watching():
            yield
    finally:
        site.core.delete_namespace(site.namespace)
