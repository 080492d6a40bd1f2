"""Plays recorded scenarios of a real cluster on the emulated one, with a virtual clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from penstock import helm
from penstock.helm import HelmError, ReleaseTarget
from penstock.manifests.render import chart_path
from tests.support.charts import ROOT
from tests.support.emulated_cluster import graphs
from tests.support.emulated_cluster.api_server import ApiServer
from tests.support.emulated_cluster.kubelet import Machine, is_ending, is_ready
from tests.support.emulated_cluster.operator import COMPONENT, Operator
from tests.support.emulated_cluster.store import Object

STEPS_PER_S = 4
GRAPH_URL = "apis/nvidia.com/v1beta1/namespaces/default/dynamographdeployments/quick"
SETTLED = re.compile(r"settled: (\{.*\}), all ready, nothing terminating, for (\d+) s")


def recorded_machine() -> Machine:
    """Pods that need as long as those of the recordings."""
    return Machine(
        steps_to_ready=lambda args: STEPS_PER_S * (3 if "dynamo.frontend" in args else 15),
        steps_to_end=STEPS_PER_S * 3,
        is_there=lambda image: "registry.invalid" not in image,
        executes_probes=False,
    )


@dataclass
class Player:
    """Plays a recorded scenario on the emulated cluster."""

    kubeconfig: Path
    api: ApiServer
    operator: Operator
    seconds: float = 0.0
    rows: list[tuple[int, str, str]] = field(default_factory=list)  # second, component, state
    reports: list[tuple[str, ...]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target = ReleaseTarget(name="quick", namespace="default", kubeconfig=self.kubeconfig)

    def advance(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        states: dict[str, str] = {}
        seen = 0  # the store's version
        for step in range(round(seconds * STEPS_PER_S)):
            if until():
                return
            self.operator.step()
            self.seconds += 1 / STEPS_PER_S
            if seen != self.api.store.version:
                seen, states = self.api.store.version, self.states()
                report = reported(self.api.store.of_kind("DynamoGraphDeployment"))
                if report and (not self.reports or self.reports[-1] != report):
                    self.reports.append(report)
            if step % STEPS_PER_S == 0:
                self.rows += [(int(self.seconds), n, s) for n, s in states.items()]

    def pods(self) -> list[Object]:
        return self.api.store.of_kind("Pod")

    def generations(self) -> dict[str, dict[str, list[Object]]]:
        """Pods that do not end, by component and generation."""
        pods: dict[str, dict[str, list[Object]]] = {}
        for pod in self.pods():
            labels = pod["metadata"]["labels"]
            generation = labels.get(graphs.GENERATION) or labels.get("pod-template-hash", "null")
            if not is_ending(pod):
                pools = pods.setdefault(labels[COMPONENT], {})
                pools.setdefault(generation, []).append(pod)
        return pods

    def states(self) -> dict[str, str]:
        seen = {component: "" for _, component, _ in self.rows}
        return seen | {
            component: ";".join(
                f"{name}={sum(map(is_ready, pods))}/{len(pods)}" for name, pods in by_name.items()
            )
            for component, by_name in self.generations().items()
        }

    def play(self, event: Mapping[str, Any]) -> None:
        action = event["action"]
        if action.startswith(("helm", "kubectl", "autoscaling", "PATCH", "a prefill pod")):
            self.write(action, event)
        if action == "the operator is stopped (its webhooks with it)":
            self.operator.is_away = True
        if action == "the operator is started":
            self.operator.is_away = False

    def write(self, action: str, event: Mapping[str, Any]) -> None:
        try:
            if action == "helm install begins":
                helm.install(self.target, chart_path(), _values(event["values"]))
            elif action == "helm upgrade begins":
                helm.upgrade(self.target, chart_path(), _values(event["values"]))
            elif action == "helm rollback begins":
                helm.rollback(self.target, event["version"])
            elif action == "helm uninstall begins":
                helm.uninstall(self.target)
        except HelmError as error:
            self.errors.append(str(error))
        if action.startswith("kubectl edit"):
            graph = httpx.get(f"{self.api.url}/{GRAPH_URL}", trust_env=False).json()
            for component in graph["spec"]["components"]:
                if component["name"] == "decode":
                    component["replicas"] = 1
            self._send("PUT", f"{GRAPH_URL}?fieldManager=kubectl-edit", graph)
        elif action.startswith("kubectl scale"):
            url = "apis/apps/v1/namespaces/default/deployments/quick-decode/scale"
            self._send("PATCH", f"{url}?fieldManager=kubectl", {"spec": {"replicas": 1}})
        elif action.startswith("autoscaling applies"):
            spec = {"components": [{"name": "prefill", "replicas": 3}]}
            body = {
                "apiVersion": "nvidia.com/v1beta1",
                "kind": "DynamoGraphDeployment",
                "metadata": {"name": "quick"},
                "spec": spec,
            }
            media = "application/apply-patch+yaml"
            self._send("PATCH", f"{GRAPH_URL}?fieldManager=autoscaling", body, media)
        elif action.startswith("PATCH the adapter's scale"):
            url = GRAPH_URL.replace("deployments/quick", "deploymentscalingadapters/quick-prefill")
            self._send("PATCH", f"{url}/scale?fieldManager=autoscaling", {"spec": {"replicas": 4}})
        elif action.startswith("a prefill pod is deleted"):
            pod = next(p for p in self.pods() if p["metadata"]["labels"][COMPONENT] == "prefill")
            self.operator.kubelet.delete(pod)

    def _send(
        self, method: str, path: str, body: Object, media: str = "application/merge-patch+json"
    ) -> None:
        url = f"{self.api.url}/{path}"
        headers = {"Content-Type": media if method == "PATCH" else "application/json"}
        httpx.request(method, url, json=body, headers=headers, trust_env=False)

    def wait(self, text: str, at_most_s: float) -> None:
        """Until the recorder's condition holds."""
        if match := SETTLED.search(text):
            counts = yaml.safe_load(match[1])
            quiet = int(match[2])
            since: list[float] = []

            def is_settled() -> bool:
                if self._is_settled(counts):
                    since.append(self.seconds)
                    return self.seconds - since[0] >= quiet
                since.clear()
                return False

            self.advance(at_most_s, is_settled)
        elif "a new decode pod is ready" in text:
            self.advance(at_most_s, lambda: self._ready_in_newest("decode") >= 1)
        elif "both new decode pods are ready" in text:
            self.advance(
                at_most_s,
                lambda: (
                    self._ready_in_newest("decode") == 2
                    and len(self.generations()["decode"]) == 1
                    and len(self.generations()["prefill"]) > 1
                ),
            )
        elif "no graph, Deployment or pod is left" in text:
            self.advance(at_most_s, lambda: not self.pods())

    def _is_settled(self, counts: Mapping[str, int]) -> bool:
        pods = [p for p in self.pods() if p["metadata"]["labels"][COMPONENT] in counts]
        generations = self.generations()
        return all(is_ready(p) and not is_ending(p) for p in pods) and all(
            [len(pods) for pods in generations.get(name, {}).values()] == [count]
            for name, count in counts.items()
        )

    def _ready_in_newest(self, component: str) -> int:
        """Ready pods of the newest generation, if it is not the only one there ever was."""
        order = list(
            dict.fromkeys(g for _, c, s in self.rows if c == component for g in generation_names(s))
        )
        newest = self.generations().get(component, {}).get(order[-1], []) if order[1:] else []
        return sum(map(is_ready, newest))


def generation_names(state: str) -> list[str]:
    return [entry.partition("=")[0] for entry in state.split(";") if entry]


def _values(changes: Mapping[str, Any]) -> dict[str, Any]:
    values = yaml.safe_load((ROOT / "dynamo_graphs" / "quickstart-simulated.yaml").read_text())
    for path, value in changes.items():
        *parents, last = path.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        if value is None:
            section.pop(last, None)
            section["autoscaling"] = {"owner": "external"}
        else:
            section[last] = value
    return dict(values)


def reported(live: list[Object]) -> tuple[str, ...]:
    """State, reason of the Ready condition and phase of the update, as the graph reports them."""
    status = (live[0].get("status") or {}) if live else {}
    if "state" not in status:
        return ()
    (ready,) = (c for c in status["conditions"] if c["type"] == "Ready")
    phase = (status.get("rollingUpdate") or {}).get("phase", "")
    return status["state"], ready["reason"], phase
