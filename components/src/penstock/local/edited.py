"""What an edit of the graph changes while it runs."""

from __future__ import annotations

from penstock.local.deployment import LocalDeployment


def fixed_setting(old: LocalDeployment, new: LocalDeployment) -> str:
    """The changed setting that is fixed while the graph runs; empty when there is none."""
    if old.name != new.name:
        return "the graph's name"
    if old.port != new.port:
        return "frontend.port"
    if old.infrastructure != new.infrastructure:
        return "infrastructure"
    return ""


def replaced_programs(old: LocalDeployment, new: LocalDeployment) -> list[str]:
    """The programs whose configuration differs."""
    both = ((old.program(program.name), program) for program in new.programs)
    return [after.name for before, after in both if before and before.key != after.key]


def change_lines(old: LocalDeployment, new: LocalDeployment) -> list[str]:
    """What changes, for the reader of the terminal."""
    lines = []
    for program in new.programs:
        before = old.program(program.name)
        if before is None:
            lines.append(f"{program.name}: added, {program.replicas} replicas")
            continue
        if before.key != program.key:
            lines.append(f"{program.name}: configuration changed, replacing all replicas")
        if before.replicas != program.replicas:
            lines.append(f"{program.name}: {before.replicas} → {program.replicas} replicas")
    removed = {p.name for p in old.programs} - {p.name for p in new.programs}
    return lines + [f"{name}: removed" for name in sorted(removed)]
