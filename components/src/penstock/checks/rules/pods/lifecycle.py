"""Rules about start and stop: probes, grace periods and draining."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.pods.pod_template import GIB
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Role
from penstock.manifests.pods import Pod
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

PREFILL_DRAIN_S = 30  # of a TensorRT-LLM prefill worker, not configurable
# How long the operator's probe waits for a worker that does not respond: 3 times 4 s, every 5 s,
# for runtimes since 1.5 (dynamo#13512). For older ones it is more strict than most: once 4 s.
OPERATOR_LIVENESS_S = 14
DRAIN_DEFAULTS = {
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": 5,
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": 900,
}
LOADING_GIB_PER_S = 0.5  # a common, slow case: a cold read over the network


def short_grace_period(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        drain = sum(
            positive_int(worker.env(name)) or 0 if worker.env(name) is not None else default
            for name, default in DRAIN_DEFAULTS.items()
        )
        if worker.is_trtllm and worker.role is Role.PREFILL:
            drain += PREFILL_DRAIN_S
        grace_s = worker.component.grace_s
        default_finish = DRAIN_DEFAULTS["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"]
        finish = (
            positive_int(worker.env("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS")) or default_finish
        )
        if grace_s >= drain and finish <= default_finish:
            yield RuleResult(
                location=worker.location("env", "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"),
                message=f"a stopping worker aborts its requests after {finish} s",
                fix=Fix(
                    text="Give workers time to finish their requests.",
                    fields={"pod/terminationGracePeriodSeconds": _grace_period(worker)},
                    env={
                        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "25",
                        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "180",
                    },
                    graph={"drain_timeout_s": 180},
                ),
            )
        if grace_s < drain:
            needed = _grace_period(worker)
            yield RuleResult(
                location=worker.location("field", "pod", "terminationGracePeriodSeconds"),
                message=f"the pod is killed after {grace_s} s, but draining may take {drain} s",
                fix=Fix(
                    text="Raise the grace period and limit the drain.",
                    fields={"pod/terminationGracePeriodSeconds": needed},
                    env={}
                    if deployment.is_graph
                    else {
                        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "25",
                        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "180",
                    },
                    graph={"drain_timeout_s": max(180, drain - 60)} if deployment.is_graph else {},
                ),
            )


def _grace_period(worker: Worker) -> int:
    return max(worker.component.grace_s, 240)


def frontend_grace(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.workers and all(worker.embeds for worker in deployment.workers):
        return
    for component, launch, _ in deployment.frontends:
        name = "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
        drain = positive_int(launch.env.get(name)) or 5
        if drain <= 5:
            yield RuleResult(
                location=Location(component.name, "env", (name,)),
                message=f"a stopping frontend aborts its streams after {drain} s",
                fix=Fix(
                    text="Give streams time to finish within the grace period.",
                    env={name: "45"},
                    graph={"drain_timeout_s": 180},
                ),
            )
        elif drain > component.grace_s:
            yield RuleResult(
                location=Location(
                    component.name, "field", ("pod", "terminationGracePeriodSeconds")
                ),
                message=f"{name} is {drain}, but the pod is killed after {component.grace_s} s",
                fix=Fix(
                    text=f"Raise terminationGracePeriodSeconds to {drain + 15}.",
                    fields={"pod/terminationGracePeriodSeconds": drain + 15},
                ),
            )


def _probe(component: Component, pod: Pod, name: str) -> Mapping[str, Any]:
    cursor = pod.containers[0].cursor[name]
    if cursor.is_absent:
        cursor = pod.cursor[name]
    return as_mapping(cursor.value)


def _seconds(probe: Mapping[str, Any]) -> int:
    period, failures = (
        positive_int(probe.get("periodSeconds")) or 10,
        positive_int(probe.get("failureThreshold")),
    )
    return (positive_int(probe.get("initialDelaySeconds")) or 0) + period * (failures or 3)


def short_startup(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        probe = _probe(worker.component, worker.pod, "startupProbe")
        if not probe:
            continue
        size = deployment.model.parts.total / GIB if deployment.model else 20
        estimate = "" if deployment.model else "about "
        period = positive_int(probe.get("periodSeconds")) or 10
        needed = int(size / LOADING_GIB_PER_S) + 120
        if _seconds(probe) < needed:
            yield RuleResult(
                location=worker.location("field", "main", "startupProbe"),
                message=f"the startup probe allows {_seconds(probe)} s, but loading {estimate}"
                f"{size:.0f} GiB of weights and warm-up may take {needed} s",
                fix=Fix(
                    text=f"Raise failureThreshold to {-(-needed // period)}.",
                    fields={"main/startupProbe/failureThreshold": -(-needed // period)},
                ),
                level=None if deployment.model else Level.NOTE,
            )


def strict_liveness(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        probe = _probe(worker.component, worker.pod, "livenessProbe")
        if not probe:
            continue
        allows = _patience(probe)
        if allows < OPERATOR_LIVENESS_S:
            yield RuleResult(
                location=worker.location("field", "main", "livenessProbe"),
                message=f"the liveness probe kills the worker after {allows} s without a response",
                fix=Fix(
                    text=f"Remove the probe; the operator's probe allows {OPERATOR_LIVENESS_S} s."
                ),
            )


def _patience(probe: Mapping[str, Any]) -> int:
    """Seconds until a probe has failed for a process that does not respond any more. Probes do not
    overlap, and a timeout that exceeds the period delays the next one."""
    period = positive_int(probe.get("periodSeconds")) or 10
    timeout = positive_int(probe.get("timeoutSeconds")) or 1
    failures = positive_int(probe.get("failureThreshold")) or 3
    return (failures - 1) * max(period, timeout) + timeout


def probed_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        port = worker.env("DYN_SYSTEM_PORT")
        probes = [
            _probe(worker.component, worker.pod, f"{n}Probe") for n in ("startup", "liveness")
        ]
        is_probed = all(probes) or _system_port(worker.pod) == port
        if port is not None and port != "9090" and not is_probed:
            yield RuleResult(
                location=worker.location("env", "DYN_SYSTEM_PORT"),
                message=f"DYN_SYSTEM_PORT is {port}, but the operator's probes use port 9090",
                fix=Fix(text="Set DYN_SYSTEM_PORT to 9090.", env={"DYN_SYSTEM_PORT": "9090"}),
            )


def _system_port(pod: Pod) -> str | None:
    """The pod's own port named `system`, which the operator's probes use."""
    ports = pod.containers[0].cursor["ports"].value
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("name") == "system":
            return str(port.get("containerPort"))
    return None
