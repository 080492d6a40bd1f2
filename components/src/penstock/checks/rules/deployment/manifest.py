"""Rules about the DynamoGraphDeployment object: names, types, annotations, unknown fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Role
from penstock.manifests.pods import TYPES, V1BETA1
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
GROVE_LIMIT = 45  # characters of deployment, component and role together
OWNED = ("nvidia.com/current-worker-hash", "nvidia.com/current-worker-hash-v2")
ENUMS = {
    "nvidia.com/grove-update-strategy": ("Coherent", "RollingRecreate", "OnDelete"),
    "nvidia.com/deployment-strategy": ("RollingUpdate", "Recreate"),
    "nvidia.com/dynamo-kube-discovery-mode": ("pod", "container"),
}


def bad_name(deployment: ServingDeployment) -> Iterable[RuleResult]:
    name = deployment.name
    if not NAME.fullmatch(name) or len(name) > 63:
        # The operator replaces dots with dashes in names of Services.
        has_dots = bool(NAME.fullmatch(name.replace(".", "-"))) and len(name) <= 63
        yield RuleResult(
            location=Location("", "manifest", ("metadata", "name")),
            message=f"{name!r} has dots, which are not valid in names of Services"
            if has_dots
            else f"{name!r} ({len(name)} characters) is not a valid name",
            fix=Fix(
                text="Use at most 63 lower-case letters, digits and dashes, starting with a letter."
            ),
            level=Level.NOTE if has_dots else None,
            why="The operator replaces the dots with dashes; releases before may reject the name."
            if has_dots
            else "",
        )
    for component in deployment.components:
        service = f"{name}-{component.name.lower()}"
        if len(service) > 63 >= len(name):
            yield RuleResult(
                location=Location(component.name, "field", ("name",)),
                message=f"the name of Service {service} has {len(service)} characters; the limit "
                "is 63",
                fix=Fix(text="Shorten the name of the deployment or of the component."),
            )


def long_for_grove(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        length = len(deployment.name) + len(component.name)
        if component.nodes > 1:
            length += len(component.name) + len("-ldr")
        if component.nodes < 2 or length <= GROVE_LIMIT:
            continue
        # Operators before 1.1 do not shorten names. The file does not state whether Grove is
        # installed, so the finding is a warning.
        for level, versions in ((Level.WARNING, ">=0.7,<1.1"), (Level.NOTE, ">=1.1")):
            has_no_grove = deployment.annotations().get("nvidia.com/enable-grove") == "false"
            yield RuleResult(
                location=Location(component.name, "field", ("name",)),
                message=f"{component.name} ({component.nodes} nodes) would need Grove names of "
                f"{length} "
                f"characters; the limit is {GROVE_LIMIT}",
                fix=Fix(text="Shorten the name of the deployment or of the component."),
                level=Level.NOTE if has_no_grove else level,
                versions=Versions(operator=versions),
            )


def restart_at_create(deployment: ServingDeployment) -> Iterable[RuleResult]:
    restart = deployment.spec.get("restart")
    if isinstance(restart, Mapping):
        yield RuleResult(
            location=Location("", "manifest", ("spec", "restart")),
            message="spec.restart is set",
            fix=Fix(text="Remove it from the file; set it only to restart a running graph."),
        )
        strategy = restart.get("strategy")
        order = strategy.get("order") if isinstance(strategy, Mapping) else None
        if order and isinstance(strategy, Mapping) and strategy.get("type") == "Parallel":
            yield RuleResult(
                location=Location("", "manifest", ("spec", "restart", "strategy")),
                message="spec.restart.strategy has an order with type Parallel",
                fix=Fix(text="Use type Sequential."),
                level=Level.ERROR,
            )


def owned_annotation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name in OWNED:
        if name in deployment.annotations():
            yield RuleResult(
                location=Location("", "manifest", ("metadata", "annotations", name)),
                message=f"the operator owns the annotation {name}",
                fix=Fix(text=f"Remove {name}."),
            )


def bad_annotation(deployment: ServingDeployment) -> Iterable[RuleResult]:
    places = [("", deployment.annotations())]
    places += [(c.name, deployment.annotations(c.name)) for c in deployment.components]
    for component, declared in places:
        for name, choices in ENUMS.items():
            if name in declared and declared[name] not in choices:
                location = (
                    Location(component, "field", ("metadata", "annotations", name))
                    if component
                    else Location("", "manifest", ("metadata", "annotations", name))
                )
                yield RuleResult(
                    location=location,
                    message=f"{name} has the unknown value {declared[name]}",
                    fix=_use_valid_choice(name, str(declared[name]), choices, component),
                )


def _use_valid_choice(annotation: str, value: str, choices: tuple[str, ...], component: str) -> Fix:
    """A fix with the choice whose spelling is closest to ``value``, or with all choices."""
    close = nearest(value, choices)
    if not close:
        return Fix(text=f"Use one of {', '.join(choices)}.")
    fields = {f"metadata/annotations/{annotation.replace('/', '~1')}": close}
    text = f"Use {close}."
    return Fix(text=text, fields=fields) if component else Fix(text=text, deployment=fields)


def no_frontend(deployment: ServingDeployment) -> Iterable[RuleResult]:
    roles = {c.role for c in deployment.components}
    serves = Role.FRONTEND in roles or Role.EPP in roles
    has_workers = any(role in roles for role in WORKERS)
    if has_workers and not serves and not deployment.frontends:
        yield RuleResult(
            location=Location("", "manifest", ("spec",)),
            message="the deployment has workers but no frontend",
            fix=Fix(
                text="Add a component of type frontend, or check it together with the deployment "
                "that "
                "has one."
            ),
        )


def missing_type(deployment: ServingDeployment) -> Iterable[RuleResult]:
    key = "type" if deployment.api_version == V1BETA1 else "componentType"
    for component in deployment.components:
        is_known = component.role in (*WORKERS, Role.FRONTEND)
        if is_known and deployment.pods[component.name].cursor[key].is_absent:
            yield RuleResult(
                location=Location(component.name, "field", (key,)),
                message=f"the component has no {key}, but runs a {component.role}",
                fix=Fix(text=f"Set its {key}.", fields=_type_of(component.role, key)),
            )


def _type_of(role: Role, key: str) -> dict[str, str]:
    """The fields that state a role. In v1alpha1, prefill and decode are subtypes of worker."""
    if key == "componentType" and role in (Role.PREFILL, Role.DECODE):
        return {key: "worker", "subComponentType": role.value}
    return {key: role.value if role.value in TYPES else "worker"}


def several_frontends(deployment: ServingDeployment) -> Iterable[RuleResult]:
    running = {component.name for component, _, _ in deployment.frontends}
    names = [c.name for c in deployment.with_role(Role.FRONTEND) if c.name in running]
    if names[1:]:
        yield RuleResult(
            location=Location(names[1], "field", ("type",)),
            message=f"the deployment has {len(names)} frontends: {', '.join(names)}",
            fix=Fix(text=f"Remove {names[1]} and raise the replicas of {names[0]}."),
        )
