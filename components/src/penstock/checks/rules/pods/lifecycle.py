"""Rules of start and stop: probes, grace, drain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.pods.pod_template import GIB, one_each
from penstock.engines.settings import Location
from penstock.manifests.deployment import Component, Role
from penstock.manifests.pods import Pod
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

PREFILL_DRAIN_S = 30  # TensorRT-LLM's prefill, fixed in the worker
OPERATOR_LIVENESS_S = 15  # 5 s × 3, for runtimes since 1.5 (dynamo#13512)
DRAIN_DEFAULTS = {
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": 5,
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": 900,
}
LOADING_GIB_PER_S = 0.5  # slow but usual: a cold read over the network


@rule(
    id="PS705",
    title="killed before it has drained",
    level=Level.WARNING,
    cause="A stopping worker waits up to DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS (5) and "
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS (900); the operator's grace period is 60.",
    effect="SIGKILL in the middle of streams; without a drain also use-after-free in transfers.",
    remedy="terminationGracePeriodSeconds above the sum; graphs have one drain_timeout_s.",
    source="graceful-shutdown.md@02c00da1; dynamo#13559, dynamo#11120, dynamo#7319",
)
def grace(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        drain = sum(
            positive_int(worker.env(name)) or 0 if worker.env(name) is not None else default
            for name, default in DRAIN_DEFAULTS.items()
        )
        if worker.is_trtllm and worker.role is Role.PREFILL:
            drain += PREFILL_DRAIN_S
        have = worker.component.grace_s
        finish = DRAIN_DEFAULTS["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"]
        said = positive_int(worker.env("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"))
        if have >= drain and (said or finish) <= finish:
            yield RuleResult(
                location=worker.location("env", "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"),
                message=f"a stopping worker aborts what it has after {said or finish} s",
                fix=Fix(
                    text="let it finish",
                    fields={"pod/terminationGracePeriodSeconds": _capped(worker)},
                    env={
                        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "25",
                        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "180",
                    },
                    graph={"drain_timeout_s": 180},
                ),
            )
        if have < drain:
            asked = _capped(worker)
            yield RuleResult(
                location=worker.location("field", "pod", "terminationGracePeriodSeconds"),
                message=f"the pod is killed after {have} s, and draining may take {drain} s",
                fix=Fix(
                    text="grant what the drain takes, and bound it",
                    fields={"pod/terminationGracePeriodSeconds": asked},
                    env={}
                    if deployment.is_graph
                    else {
                        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": "25",
                        "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "180",
                    },
                    graph={"drain_timeout_s": max(180, drain - 60)} if deployment.is_graph else {},
                ),
            )


def _capped(worker: Worker) -> int:
    return max(worker.component.grace_s, 240)


@rule(
    id="PS706",
    title="a frontend that cuts its streams",
    level=Level.WARNING,
    cause="A stopping frontend waits DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS, 5 by default.",
    effect="Every stream longer than that ends broken at each update or scale-in.",
    remedy="Set it to the longest answer, and the grace period above it.",
    source="graceful-shutdown.md@02c00da1; dynamo#13559",
)
def frontend_grace(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if deployment.workers and all(worker.embeds for worker in deployment.workers):
        return
    for component, launch, _ in deployment.frontends:
        name = "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"
        drain = positive_int(launch.env.get(name)) or 5
        if drain <= 5:
            yield RuleResult(
                location=Location(component.name, "env", (name,)),
                message=f"a stopping frontend cuts its streams after {drain} s",
                fix=Fix(
                    text="let them finish, within the grace period",
                    env={name: "45"},
                    graph={"drain_timeout_s": 180},
                ),
            )
        elif drain > component.grace_s:
            yield RuleResult(
                location=Location(
                    component.name, "field", ("pod", "terminationGracePeriodSeconds")
                ),
                message=f"{name} is {drain}, and the pod is killed after {component.grace_s} s",
                fix=Fix(
                    text="grant more", fields={"pod/terminationGracePeriodSeconds": drain + 15}
                ),
            )


def _probe(component: Component, pod: Pod, name: str) -> Mapping[str, Any]:
    cursor = pod.containers[0].cursor[name]
    if cursor.is_absent:
        cursor = pod.cursor[name]
    return cursor.value if isinstance(cursor.value, Mapping) else {}


def _seconds(probe: Mapping[str, Any]) -> int:
    period, failures = (
        positive_int(probe.get("periodSeconds")) or 10,
        positive_int(probe.get("failureThreshold")),
    )
    return (positive_int(probe.get("initialDelaySeconds")) or 0) + period * (failures or 3)


@rule(
    id="PS707",
    title="a startup probe shorter than the load",
    level=Level.WARNING,
    cause="The pod's own startup probe ends before the weights are read.",
    effect="The worker is killed while loading, for ever.",
    remedy="Leave it to the operator: 2 hours.",
    source="component_worker.go (10 s × 720); dynamo#14735",
)
def short_startup(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        probe = _probe(worker.component, worker.pod, "startupProbe")
        if not probe:
            continue
        size = deployment.model.parts.total / GIB if deployment.model else 20
        about = "" if deployment.model else "perhaps "
        period = positive_int(probe.get("periodSeconds")) or 10
        needed = int(size / LOADING_GIB_PER_S) + 120
        if _seconds(probe) < needed:
            yield RuleResult(
                location=worker.location("field", "main", "startupProbe"),
                message=f"the startup probe gives {_seconds(probe)} s; {about}{size:.0f} GiB of "
                f"weights and warm-up may take {needed} s",
                fix=Fix(
                    text="leave it to the operator (2 h), or allow more",
                    fields={"main/startupProbe/failureThreshold": -(-needed // period)},
                ),
            )


@rule(
    id="PS708",
    title="a liveness probe in a hurry",
    level=Level.WARNING,
    cause="The pod's own liveness probe allows less than the operator's 15 seconds.",
    effect="Workers restart under load, when the answer is late.",
    remedy="Leave it to the operator.",
    source="dynamo#13512, dynamo#14735; health-checks.mdx@0202fb49",
)
def hasty_liveness(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        probe = _probe(worker.component, worker.pod, "livenessProbe")
        if not probe:
            continue
        # Until the startup probe has passed, and the operator adds one, it does not run.
        allows = _seconds({**probe, "initialDelaySeconds": 0})
        if allows < OPERATOR_LIVENESS_S:
            yield RuleResult(
                location=worker.location("field", "main", "livenessProbe"),
                message=f"a liveness probe of its own kills the worker after {allows} s",
                fix=Fix(text=f"remove it: the operator's allows {OPERATOR_LIVENESS_S} s"),
            )


@rule(
    id="PS716",
    title="probes that ask another port",
    level=Level.ERROR,
    cause="DYN_SYSTEM_PORT was changed and the operator's probes were not.",
    effect="The pod never becomes ready.",
    remedy="Leave it at 9090.",
    source="dynamo#14460; component_worker.go",
)
def probed_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in one_each(deployment):
        port = worker.env("DYN_SYSTEM_PORT")
        probes = [
            _probe(worker.component, worker.pod, f"{n}Probe") for n in ("startup", "liveness")
        ]
        is_asked = all(probes) or _system_port(worker.pod) == port
        if port is not None and port != "9090" and not is_asked:
            yield RuleResult(
                location=worker.location("env", "DYN_SYSTEM_PORT"),
                message=f"DYN_SYSTEM_PORT={port}, and the operator's probes ask port 9090",
                fix=Fix(text="leave it at 9090", env={"DYN_SYSTEM_PORT": "9090"}),
            )


def _system_port(pod: Pod) -> str | None:
    """The port called `system`, which the operator's probes ask, where the pod has its own."""
    ports = pod.containers[0].cursor["ports"].value
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("name") == "system":
            return str(port.get("containerPort"))
    return None
