"""Rules about the engines and roles of components: do they fit together, and the manifest?"""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.releases import RELEASES
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.roles import configured_role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.possible_releases import possible_releases
from penstock.serving.versions import dynamo_version
from penstock.serving.worker import WORKERS, Worker

OLD_PREFILL = "--is-prefill-worker"


def wrong_framework(deployment: ServingDeployment) -> Iterable[RuleResult]:
    framework = deployment.spec.get("backendFramework")
    runs = {str(w.engine) for w in deployment.workers if w.engine != "mocker"}
    if isinstance(framework, str) and framework and runs and framework not in runs:
        yield RuleResult(
            location=Location("", "manifest", ("spec", "backendFramework")),
            message=f"backendFramework is {framework}, but the workers run "
            f"{', '.join(sorted(runs))}",
            fix=Fix(text="Remove backendFramework; the operator infers it."),
        )


def several_engines(deployment: ServingDeployment) -> Iterable[RuleResult]:
    engines = sorted({str(w.engine) for w in deployment.workers})
    if len(engines) > 1:
        yield RuleResult(
            location=Location("", "manifest", ("spec",)),
            message=f"the workers run several engines: {', '.join(engines)}",
            fix=Fix(text="Use one deployment per engine."),
            # Only pools that transfer KV need the same engine.
            level=None if deployment.is_disaggregated and not deployment.pairs else Level.WARNING,
        )


def half_disaggregated(deployment: ServingDeployment) -> Iterable[RuleResult]:
    others = sum(root["kind"].value == "DynamoGraphDeployment" for root in deployment.documents)
    if others > 1:
        return  # another deployment of the file may hold the other half
    for role, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if deployment.pool(role) and not deployment.pool(other):
            first = deployment.pool(role)[0]
            name = first.name
            # Without a frontend here, another deployment may have the other half.
            serves = bool(deployment.frontends) and first.engine is not Engine.MOCKER
            # Before 1.4 a worker without a mode was a decode worker.
            may_decode = role is Role.PREFILL and bool(deployment.pool(Role.WORKER))
            if may_decode and OLD_PREFILL in first.launch.argv:
                continue  # only releases before 1.4 have the flag
            yield RuleResult(
                location=Location(name, "field", ("type",)),
                message=f"{name} is a {role} worker, but there is no {other} worker",
                fix=Fix(text=f"Add a {other} pool, or make {name} an aggregated worker."),
                level=None if serves and not may_decode else Level.WARNING,
                versions=_without_other_half(first, may_decode=may_decode),
            )


def _without_other_half(worker: Worker, *, may_decode: bool) -> Versions | None:
    """The versions in which a pool does not serve alone, if they differ from the rule's."""
    if may_decode:
        return Versions(dynamo=">=1.4")
    computes_prompts = worker.role is Role.DECODE and worker.engine is Engine.VLLM
    return Versions(dynamo=">=1.3") if computes_prompts else None


def role_and_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        kind = worker.pod.kind
        component = worker.component
        role = configured_role(worker.launch, component.engine, component.engine_config)
        is_pool = worker.role in (Role.PREFILL, Role.DECODE)
        if role is None and is_pool and worker.settings.is_complete:
            args = _mode_of(deployment, worker)
            # PS143 reports a mode that does not exist.
            if worker.engine is not Engine.MOCKER and not worker.flag(args[0]):
                yield RuleResult(
                    location=worker.location("args", args[0]),
                    message=f"{worker.name} has type {worker.role} but no {args[0]}, so it serves "
                    "as an aggregated worker",
                    fix=Fix(text=f"Add {' '.join(args)}.", args=args),
                    why=_aggregated(deployment, worker),
                    level=Level.ERROR if _has_no_partner(deployment, worker) else None,
                    versions=_without_mode(worker),
                )
        if kind in ("prefill", "decode") and worker.role in WORKERS and kind != worker.role:
            if worker.role is Role.WORKER and not deployment.pool(Role.PREFILL):
                continue
            yield RuleResult(
                location=worker.location("field", "type"),
                message=f"the component has type {kind}, but its command starts a {worker.role} "
                "worker",
                fix=Fix(
                    text="Use the same role in both.",
                    fields={} if deployment.is_graph else {"type": str(worker.role)},
                ),
            )


def _has_no_partner(deployment: ServingDeployment, worker: Worker) -> bool:
    """Whether prefill workers wait for this decode worker, which registers as aggregated."""
    return worker.role is Role.DECODE and any(
        configured_role(w.launch, w.component.engine, w.component.engine_config) is Role.PREFILL
        for w in deployment.pool(Role.PREFILL)
    )


def _mode_of(deployment: ServingDeployment, worker: Worker) -> tuple[str, ...]:
    """The arguments that set the role. vLLM's worker has --disaggregation-mode since 1.0."""
    if worker.engine is Engine.VLLM and worker.role is Role.PREFILL:
        stated = dynamo_version(worker.pod)
        newest = RELEASES[possible_releases(deployment)[-1]].dynamo
        if (stated or Version(newest).release[:2]) < (1, 0):
            return (OLD_PREFILL,)
    return ("--disaggregation-mode", str(worker.role))


def _aggregated(deployment: ServingDeployment, worker: Worker) -> str:
    """What happens to a pool whose command starts an aggregated worker."""
    if _has_no_partner(deployment, worker):
        return (
            "The worker registers as aggregated, so that the prefill worker finds no decode worker "
            "and /v1/models stays empty."
        )
    return "The worker serves whole requests as an aggregated worker, and no KV is transferred."


def _without_mode(worker: Worker) -> Versions | None:
    """The versions in which the command without the flag serves as an aggregated worker, if not
    all: decode was the default of vLLM's worker before 1.4."""
    is_vllm_decode = worker.engine is Engine.VLLM and worker.role is Role.DECODE
    return Versions(dynamo=">=1.4") if is_vllm_decode else None
