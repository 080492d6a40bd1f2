"""Refuses a graph of which no request could be served on this machine. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import ManifestError, Problem
from penstock.local.deployment import Program
from penstock.manifests.deployment import Deployment, Role
from penstock.manifests.roles import configured_role, engine_of

# A worker of one kind registers that it needs the other: until then, no model is listed.
COUNTERPART = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


def require_frontend_and_worker(
    deployment: Deployment, programs: Sequence[Program], not_started: Sequence[str]
) -> None:
    """ManifestError if one of them is missing; `adapt` calls it.

    ``not_started``: the components that do not run on this machine, each with what it runs.
    """
    roles = {program.role for program in programs}
    missing = [] if Role.FRONTEND in roles else ["frontend"]
    missing += [] if roles - {Role.FRONTEND} else ["worker"]
    skipped = f" (not started: {'; '.join(not_started)})" if not_started else ""
    components = ", ".join(f"{c.name} ({c.role})" for c in deployment.components)
    problems = [
        Problem(
            file=deployment.source,
            place=deployment.name,
            message=f"has no {kind} that can run on this machine{skipped}",
            fix=f"Add one. Its components are {components}.",
        )
        for kind in missing
    ]
    if problems:
        raise ManifestError(*problems)


def require_pairs(deployment: Deployment, programs: Sequence[Program]) -> None:
    """ManifestError if prefill or decode workers run without the other; `prepare` calls it."""
    roles = [_runs_as(deployment, program) for program in programs]
    problems = [
        _without_counterpart(deployment, program, role)
        for program, role in zip(programs, roles, strict=True)
        if role in COUNTERPART and COUNTERPART[role] not in roles
    ]
    if problems:
        raise ManifestError(*problems)


def _runs_as(deployment: Deployment, program: Program) -> Role:
    """What the command line makes of a worker, whatever the component's type says."""
    if program.role not in COUNTERPART or program.is_substitute:
        return program.role
    component = deployment.component(program.component)
    _, launch = engine_of(component.launches)
    if launch is None:
        return program.role
    return configured_role(launch, component.engine, component.engine_config) or Role.WORKER


def _without_counterpart(deployment: Deployment, program: Program, role: Role) -> Problem:
    """The component that is meant is of the missing type, and its command sets no mode."""
    needed = COUNTERPART[role]
    meant = [c.name for c in deployment.components if c.role is needed]
    fix = f"Add `--disaggregation-mode {needed}` to the command of {', '.join(meant)}."
    if not meant:
        fix = f"Add a {needed} component, or run {program.component} without disaggregation."
    return Problem(
        file=deployment.source,
        place=deployment.component(program.component).place or program.component,
        message=f"runs as a {role} worker, but no worker of this graph runs as a {needed} "
        "worker, so the frontend would list no model",
        fix=fix,
    )
