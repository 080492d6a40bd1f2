"""Rules of the DynamoGraphDeployment object: names, types, what the operator refuses or owns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.versions.image_versions import dynamo_version
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.manifests.fields import unknown_fields
from penstock.manifests.roles import said_role
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
GROVE_LIMIT = 45  # of what Grove makes of deployment, component and role
MOST_COMPONENTS = 25
OWNED = ("nvidia.com/current-worker-hash", "nvidia.com/current-worker-hash-v2")
ENUMS = {
    "nvidia.com/grove-update-strategy": ("Coherent", "RollingRecreate", "OnDelete"),
    "nvidia.com/deployment-strategy": ("RollingUpdate", "Recreate"),
    "nvidia.com/dynamo-kube-discovery-mode": ("pod", "container"),
}


def deployment_spec(deployment: ServingDeployment) -> Mapping[str, Any]:
    value = deployment.root["spec"].value
    return value if isinstance(value, Mapping) else {}


def annotations_of(deployment: ServingDeployment, component: str = "") -> Mapping[str, Any]:
    """Of the deployment, or of one component's pods."""
    if not component:
        value = deployment.root.at("metadata", "annotations").value
    else:
        pod = deployment.pods[component].cursor
        value = pod.at("podTemplate", "metadata", "annotations").value
        if value is None:
            value = pod["annotations"].value or pod["extraPodMetadata"]["annotations"].value
    return value if isinstance(value, Mapping) else {}


@rule(
    id="PS751",
    title="a name that Kubernetes does not take",
    level=Level.ERROR,
    cause="Names of deployments and Services are DNS labels of at most 63 characters.",
    effect="Refused, by the API server or later by the operator.",
    remedy="Shorten it.",
    source="RFC 1123; AISimulate generator rules",
)
def bad_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    name = deployment.name
    if not NAME.fullmatch(name) or len(name) > 63:
        yield RuleResult(
            location=Location("", "manifest", ("metadata", "name")),
            message=f"{name!r} ({len(name)} characters)",
            fix=Fix(text="at most 63 lower-case letters, digits and dashes, a letter first"),
        )
    for component in deployment.components:
        service = f"{name}-{component.name.lower()}"
        if len(service) > 63 >= len(name):
            yield RuleResult(
                location=Location(component.name, "field", ("name",)),
                message=f"the Service {service} has {len(service)} characters, and 63 is the limit",
                fix=Fix(text="shorten the deployment's name or the component's"),
            )


@rule(
    id="PS752",
    title="names too long for Grove",
    level=Level.WARNING,
    cause="Grove puts deployment, component and role together into one name of at most 45.",
    effect="Refused at admission, unless the operator shortens the deployment's name.",
    remedy="Shorten them.",
    source="dynamo#4938; dgdComponentNameLengthError in the operator",
)
def long_for_grove(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        length = len(deployment.name) + len(component.name)
        if component.nodes > 1:
            length += len(component.name) + len("-ldr")
        if component.nodes > 1 and length > GROVE_LIMIT:
            yield RuleResult(
                location=Location(component.name, "field", ("name",)),
                message=f"{component.name} over {component.nodes} nodes: Grove's names would have "
                f"{length} characters, and {GROVE_LIMIT} is the limit",
                fix=Fix(text="shorten the deployment's name or the component's"),
            )


@rule(
    id="PS753",
    title="too many components",
    level=Level.ERROR,
    cause="The CRD allows 25.",
    effect="Refused by the API server.",
    remedy="Split the deployment.",
    source="dynamographdeployment CRD (maxItems 25)",
)
def too_many(deployment: ServingDeployment) -> Iterable[RuleResult]:
    count = len(deployment.components)
    if count > MOST_COMPONENTS:
        yield RuleResult(
            location=Location("", "manifest", ("spec",)),
            message=f"{count} components",
            fix=Fix(text=f"at most {MOST_COMPONENTS}"),
        )


@rule(
    id="PS754",
    title="a restart in the file",
    level=Level.WARNING,
    cause="spec.restart must be unset when the deployment is created.",
    effect="The first install is refused.",
    remedy="Leave it out.",
    source="dynamographdeployment_types.go@0fddc01b; operator webhook",
)
def restart_at_create(deployment: ServingDeployment) -> Iterable[RuleResult]:
    restart = deployment_spec(deployment).get("restart")
    if isinstance(restart, Mapping):
        yield RuleResult(
            location=Location("", "manifest", ("spec", "restart")),
            message="spec.restart is set",
            fix=Fix(text="leave it out of the file; set it to restart a running graph"),
        )
        strategy = restart.get("strategy")
        order = strategy.get("order") if isinstance(strategy, Mapping) else None
        if order and isinstance(strategy, Mapping) and strategy.get("type") == "Parallel":
            yield RuleResult(
                location=Location("", "manifest", ("spec", "restart", "strategy")),
                message="an order with type Parallel",
                fix=Fix(text="use Sequential"),
                level=Level.ERROR,
            )


@rule(
    id="PS755",
    title="an annotation of the operator's",
    level=Level.ERROR,
    cause="The operator keeps the hash of the running generation there.",
    effect="An orphan generation, or workers deleted while they serve.",
    remedy="Remove it, and never use --force or kubectl replace.",
    source="dynamo#13495; rolling-updates.mdx@11db1467",
)
def owned_annotation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name in OWNED:
        if name in annotations_of(deployment):
            yield RuleResult(
                location=Location("", "manifest", ("metadata", "annotations", name)),
                message=f"{name} is the operator's",
                fix=Fix(text="remove it"),
            )


@rule(
    id="PS756",
    title="an annotation with an unknown value",
    level=Level.ERROR,
    cause="The webhook knows these values only.",
    effect="Refused at admission.",
    remedy="Use one of them.",
    source="dynamographdeployment.go@003d1ee5",
)
def bad_annotation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    places = [("", annotations_of(deployment))]
    places += [(c.name, annotations_of(deployment, c.name)) for c in deployment.components]
    for component, found in places:
        for name, words in ENUMS.items():
            if name in found and found[name] not in words:
                location = (
                    Location(component, "field", ("metadata", "annotations", name))
                    if component
                    else Location("", "manifest", ("metadata", "annotations", name))
                )
                yield RuleResult(
                    location=location,
                    message=f"{name}: {found[name]}",
                    fix=_meant(name, str(found[name]), words, component),
                )


def _meant(annotation: str, said: str, words: tuple[str, ...], component: str) -> Fix:
    near = nearest(said, words)
    if not near:
        return Fix(text=f"one of {', '.join(words)}")
    value = {f"metadata/annotations/{annotation.replace('/', '~1')}": near}
    text = f"perhaps you meant {near}"
    return Fix(text=text, fields=value) if component else Fix(text=text, deployment=value)


@rule(
    id="PS757",
    title="a backend framework that the workers do not run",
    level=Level.ERROR,
    cause="backendFramework must agree with the workers' command.",
    effect="Refused at admission.",
    remedy="Leave it out.",
    source="dynamo-graph-deployment.mdx@07c98544",
)
def framework(deployment: ServingDeployment) -> Iterable[RuleResult]:
    said = deployment_spec(deployment).get("backendFramework")
    runs = {str(w.engine) for w in deployment.workers if w.engine != "mocker"}
    if said and runs and said not in runs:
        yield RuleResult(
            location=Location("", "manifest", ("spec", "backendFramework")),
            message=f"backendFramework {said}, and the workers run {', '.join(sorted(runs))}",
            fix=Fix(text="leave it out: the operator infers it"),
        )


@rule(
    id="PS758",
    title="several engines in one deployment",
    level=Level.ERROR,
    cause="KV layouts and hand-off differ between engines.",
    effect="The operator cannot infer the framework; hand-offs fail.",
    remedy="One deployment an engine.",
    source="dynamo-graph-deployment.mdx@07c98544",
)
def several_engines(deployment: ServingDeployment) -> Iterable[RuleResult]:
    engines = sorted({str(w.engine) for w in deployment.workers})
    if len(engines) > 1:
        yield RuleResult(
            location=Location("", "manifest", ("spec",)),
            message=f"workers of {', '.join(engines)} in one deployment",
            fix=Fix(text="one engine a deployment"),
        )


@rule(
    id="PS765",
    title="workers without a frontend",
    level=Level.NOTE,
    cause="The deployment has no frontend and no endpoint picker.",
    effect="Nothing answers HTTP, unless a frontend of another deployment finds the workers.",
    remedy="Add one.",
    source="dynamo-graph-deployment.mdx@07c98544",
)
def no_frontend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    roles = {c.role for c in deployment.components}
    serves = Role.FRONTEND in roles or Role.EPP in roles
    has_workers = any(role in roles for role in WORKERS)
    if has_workers and not serves and not deployment.frontends:
        yield RuleResult(
            location=Location("", "manifest", ("spec",)),
            message="workers without a frontend",
            fix=Fix(text="add a component of type frontend, or say where it is"),
        )


@rule(
    id="PS766",
    title="one half of disaggregation",
    level=Level.ERROR,
    cause="A prefill or a decode worker alone cannot answer.",
    effect="Decode refuses requests: “Disaggregated params are required for decode mode”.",
    remedy="Add the other pool.",
    source="dynamo/trtllm of 1.6.1; dynamo#11467, dynamo#6678",
)
def half_disaggregated(deployment: ServingDeployment) -> Iterable[RuleResult]:
    others = sum(root["kind"].value == "DynamoGraphDeployment" for root in deployment.documents)
    if others > 1:
        return  # another deployment of the file may hold the other half
    for role, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if deployment.pool(role) and not deployment.pool(other):
            name = deployment.pool(role)[0].name
            yield RuleResult(
                location=Location(name, "field", ("type",)),
                message=f"{name} is a {role} worker, and there is no {other} worker",
                fix=Fix(text=f"add {other}, or let {name} do both"),
            )


@rule(
    id="PS767",
    title="a type that the launch contradicts",
    level=Level.WARNING,
    cause="The component's type says one role and --disaggregation-mode another.",
    effect="Ports, probes and labels are those of the type; requests go by the launch. A "
    "decode worker that does not know it registers as aggregated, and /v1/models stays empty.",
    remedy="Make them agree.",
    source="dynamocomponentdeployment_types.go@006b6e10; dynamo#13037, dynamo#11467",
)
def role_and_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        kind = worker.pod.kind
        component = worker.component
        said = said_role(worker.launch, component.engine, component.engine_config)
        if (
            said is None
            and worker.role in (Role.PREFILL, Role.DECODE)
            and worker.settings.is_complete
        ):
            if worker.engine is not Engine.MOCKER:
                version = dynamo_version(worker.pod)  # before 1.4 decode was the default
                yield RuleResult(
                    location=worker.location("args", "--disaggregation-mode"),
                    message=f"{worker.name} is of type {worker.role}, and its launch names no "
                    "--disaggregation-mode: it serves as an aggregated worker",
                    fix=Fix(
                        text="say it in the launch too",
                        args=("--disaggregation-mode", str(worker.role)),
                    ),
                    level=Level.WARNING if (version or (1, 6)) < (1, 4) else Level.ERROR,
                )
        if kind in ("prefill", "decode") and worker.role in WORKERS and kind != worker.role:
            if worker.role is Role.WORKER and not deployment.pool(Role.PREFILL):
                continue
            yield RuleResult(
                location=worker.location("field", "type"),
                message=f"type {kind}, and the launch says {worker.role}",
                fix=Fix(
                    text="make them agree",
                    fields={} if deployment.is_graph else {"type": str(worker.role)},
                ),
            )


@rule(
    id="PS768",
    title="a field that does not exist",
    level=Level.ERROR,
    cause="The CRD has no field of that name there.",
    effect="The API server drops it, or refuses the object when asked to be strict; what was "
    "meant does not happen.",
    remedy="Use the nearest name.",
    source="dynamographdeployments CRD of main, 2026-08-21, as a tree of names",
)
def unknown_field(deployment: ServingDeployment) -> Iterable[RuleResult]:
    value = deployment.root.value
    if deployment.is_graph or not isinstance(value, Mapping):
        return
    for field in unknown_fields(value):
        yield RuleResult(
            location=Location("", "manifest", field.path),
            message=f"{field.path[-1]!r} is no field of {'.'.join(map(str, field.path[:-1]))}",
            fix=Fix(text=f"perhaps you meant {field.near}" if field.near else "remove it"),
        )
