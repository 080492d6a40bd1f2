"""Render a diff, as text for `penstock diff` and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from penstock.cluster import generations
from penstock.cluster.compare import ABSENT, FieldChange
from penstock.cluster.diff import Action, ComponentDiff, Diff, Drift, ObjectDiff, is_worker
from penstock.cluster.generations import Course, Transition
from penstock.cluster.ownership import HELM
from penstock.cluster.release import CHART, NOT_READY, HistoryEntry
from penstock.cluster.workloads import FRONTEND
from penstock.manifests.render import chart_path

NO_CHANGES = "no changes"
# What an upgrade of the chart changes in the pods of an unchanged graph, with the reasons. The
# chart's NOTES.txt prints it after an upgrade.
CHART_CHANGES = Path("files") / "upgrades.yaml"
MAX_CHANGES = 8  # listed for one component


def as_lines(
    diff: Diff,
    *,
    drift: tuple[Drift, ...] = (),
    available_gpus: int | None = None,
    kv_tokens: Mapping[str, int] | None = None,
    transition: Transition | None = None,
    manager: str = HELM,
) -> list[str]:
    """The diff as text.

    ``available_gpus``: GPUs of the graph's nodes, None if not set; ``kv_tokens``: KV cache of one
    replica by pool, in tokens, for the pools where it is known; ``transition``: if a rolling update
    is in progress; ``manager``: the client that applied the graph last.
    """
    returns = transition is not None and transition.course is Course.RETURNS
    lines = [
        *_platform(diff),
        *(
            line
            for component in diff.components
            for line in _component(component, diff, keeps_pods=returns and is_worker(component))
        ),
        *(() if returns else _rollout(diff, available_gpus, kv_tokens or {})),
        *(generations.lines(transition, manager) if transition else ()),
        *_gpus(diff, available_gpus),
        *(f"also: {_object(o)}" for o in diff.objects),
        *(f"rejected: {rejected}. Fix: {rejected.fix}" for rejected in diff.rejected),
        *(f"drift: {entry}" for entry in drift),
    ]
    return lines or [NO_CHANGES]


def _platform(diff: Diff) -> Iterator[str]:
    if diff.changes_platform:
        before, after = diff.platforms
        yield f"platform: {before} → {after}: all objects are deleted and recreated; SERVING STOPS"


def _component(component: ComponentDiff, diff: Diff, *, keeps_pods: bool = False) -> Iterator[str]:
    """``keeps_pods``: whether the change ends an update before it replaced any of the pods."""
    name = component.name
    before, after = component.replicas
    count = f"{before} → {after}" if before != after else str(after)
    if component.action is not Action.CREATED and component.after:
        yield from _scaler(component)
    match component.action:
        case Action.CREATED:
            scaler = component.scalers[1]
            scaled = f", then scaled by {scaler}" if scaler else ""
            yield f"{name}: created with {_replicas(after)}{_gpus_of_each(component)}{scaled}"
        case Action.REMOVED:
            yield f"{name}: removed, {_replicas(before)}"
        case Action.SCALED if before != after:
            stops = ": SERVING STOPS" if after == 0 else ""
            yield f"{name}: scaled {count}, without restart{stops}"
        case Action.RESTARTED if keeps_pods and not component.changes:
            yield f"{name}: pods are kept (replicas {count})"
        case Action.RESTARTED if component.changes:
            kept = f"pods are kept (replicas {count}); they already have these values:"
            restarted = f"restarted (replicas {count}), because these fields change:"
            yield f"{name}: {kept if keeps_pods else restarted}"
            yield from (f"  {change}" for change in component.changes[:MAX_CHANGES])
            if len(component.changes) > MAX_CHANGES:
                yield f"  and {len(component.changes) - MAX_CHANGES} more"
        case Action.RESTARTED:
            causes = [c.name for c in diff.components if is_worker(c) and c.changes]
            cause = " and ".join(causes) or "the other workers"
            yield f"{name}: restarted (replicas {count}), because all workers restart with {cause}"


def _scaler(component: ComponentDiff) -> Iterator[str]:
    before, after = component.scalers
    if after is not None and (before is None or before.kind != after.kind):
        yield f"{component.name}: replicas will be set by {after}"
    elif component.ends_autoscaling:
        yield f"{component.name}: replicas will be set by the graph"


def _replicas(count: int) -> str:
    return f"{count} replica" + ("" if count == 1 else "s")


def _gpus_of_each(component: ComponentDiff) -> str:
    after = component.after
    if after is None or not after.gpus:
        return ""
    nodes = f" on {after.nodes} nodes" if after.nodes > 1 else ""
    return f" of {after.gpus} {_gpu(after.gpus)}{nodes}"


def _rollout(diff: Diff, available_gpus: int | None, kv_tokens: Mapping[str, int]) -> Iterator[str]:
    if not diff.restarted:
        return
    lost = [f"{c.replicas[0]} × {c.name}" for c in diff.restarted if c.replicas[0]]
    if not lost:
        return
    tokens = sum(kv_tokens.get(c.name, 0) * c.replicas[0] for c in diff.restarted)
    size = f", up to {tokens:,} tokens" if tokens else ""
    yield f"rollout: the KV cache of {' and '.join(lost)} is lost{size}"
    for pool in diff.reduced:
        count = pool.replicas[0]
        if count == 1:
            stops = "SERVING STOPS until it is replaced"
            yield f"rollout: {pool.name} has one replica and no surge: {stops}"
        else:
            yield f"rollout: {pool.name} serves with {count - 1} of {count}: Grove has no surge"
    if diff.has_surge:
        yield from _surge(diff, available_gpus)


def _surge(diff: Diff, available_gpus: int | None) -> Iterator[str]:
    required = diff.required_free_gpus
    if not required:
        yield "rollout: new workers start before old ones stop; no capacity is lost"
        return
    free = None if available_gpus is None else max(0, available_gpus - diff.gpus[0])
    have = "" if free is None else f"; the graph's nodes have {free}"
    yield (
        f"rollout: new workers start before old ones stop and need {required} free "
        f"{_gpu(required)}{have}"
    )
    if available_gpus is not None and available_gpus - diff.gpus[0] < required:
        yield (
            "rollout: not enough free GPUs: new workers will stay Pending while the old ones serve"
        )


def _gpu(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


def _gpus(diff: Diff, available_gpus: int | None) -> Iterator[str]:
    before, after = diff.gpus
    if before != after:
        yield f"GPUs: {before} → {after}"
    if available_gpus is not None and after > available_gpus:
        missing = after - available_gpus
        yield f"GPUs: {missing} too few: the graph's nodes have {available_gpus}"
    elif diff.max_gpus > after and not diff.is_empty:
        have = "" if available_gpus is None else f"; the graph's nodes have {available_gpus}"
        yield f"GPUs: up to {diff.max_gpus} when autoscalers reach their maximum{have}"


def _object(entry: ObjectDiff) -> str:
    name = f"{entry.kind} {entry.name}"
    if entry.action is not Action.CHANGED:
        return f"{name}: {entry.action}"
    return f"{name}: {', '.join(str(change) for change in entry.changes[:MAX_CHANGES])}"


def history_change(entry: HistoryEntry) -> str:
    """What the revision changed, and how its rollout ended, in one line; "" if Helm no longer
    stores the previous one."""
    notes = [f"reverts to revision {entry.reverts_to}"] if entry.reverts_to else []
    notes += ["was not ready"] if entry.revision.outcome == NOT_READY else []
    change = _changed(entry)
    return f"{change} ({', '.join(notes)})".lstrip() if notes else change


def _changed(entry: HistoryEntry) -> str:
    if entry.revision.chart != CHART:
        return f"of the chart {entry.revision.chart}"
    if entry.diff is None:
        return "installed" if entry.revision.number == 1 else ""
    changed = [c for c in entry.diff.components if c.action is not Action.UNCHANGED]
    if changed:
        return ", ".join(_short(c) for c in changed)
    count = len(entry.diff.objects)
    return f"{count} objects other than pools" if count else NO_CHANGES


def _short(component: ComponentDiff) -> str:
    if component.action is not Action.SCALED:
        return f"{component.name} {component.action}"
    before, after = component.scalers
    if before != after:
        return f"{component.name} scaled by {after or 'the graph'}"
    return f"{component.name} {component.replicas[0]} → {component.replicas[1]}"


def as_dict(
    diff: Diff, drift: tuple[Drift, ...], transition: Transition | None = None
) -> dict[str, Any]:
    """The diff as JSON."""
    return {
        "changed": not diff.is_empty,
        "components": [
            {
                "name": c.name,
                "action": c.action.value,
                "replicas": {"before": c.replicas[0], "after": c.replicas[1]},
                "autoscaled": {"before": bool(c.scalers[0]), "after": bool(c.scalers[1])},
                "changes": [_change(change) for change in c.changes],
            }
            for c in diff.components
        ],
        "objects": [
            {
                "kind": o.kind,
                "name": o.name,
                "action": o.action.value,
                "changes": [_change(change) for change in o.changes],
            }
            for o in diff.objects
        ],
        "gpus": {
            "before": diff.gpus[0],
            "after": diff.gpus[1],
            "max": diff.max_gpus,
            "required_free": diff.required_free_gpus if diff.restarted else 0,
        },
        "reduced": [c.name for c in diff.reduced],
        "rejected": [dataclasses.asdict(rejected) for rejected in diff.rejected],
        "rolling_update": transition
        and {
            "action": transition.course.value,
            "pools": None
            if transition.update.pools is None
            else [dataclasses.asdict(pool) for pool in transition.update.pools],
        },
        "drift": [
            {"component": d.component, **_change(d.change), "manager": d.manager} for d in drift
        ],
    }


def _change(change: FieldChange) -> dict[str, Any]:
    before, after = change.printable
    return {
        "path": change.path,
        "before": None if change.before is ABSENT else before,
        "after": None if change.after is ABSENT else after,
    }


@dataclass(frozen=True, kw_only=True)
class ChartChange:
    """A change of the chart that restarts pods once."""

    component: str  # "frontend", or "worker" for all pools
    paths: tuple[str, ...]  # fields, as `penstock diff` prints them
    reason: str

    def explains(self, component: ComponentDiff) -> tuple[str, ...]:
        """The changed fields of the component that this entry explains."""
        is_frontend = component.name == FRONTEND
        if is_frontend != (self.component == FRONTEND):
            return ()
        return tuple(c.path for c in component.changes if c.path in self.paths)


@cache
def chart_changes() -> tuple[ChartChange, ...]:
    """All entries of the chart."""
    entries = yaml.safe_load((chart_path() / CHART_CHANGES).read_text("utf-8"))
    return tuple(
        ChartChange(component=e["component"], paths=tuple(e["paths"]), reason=e["reason"])
        for e in entries
    )


def chart_reasons(diff: Diff) -> Iterator[str]:
    """One line for each changed field that is known to come from the chart."""
    for component in diff.components:
        for change in chart_changes():
            if paths := change.explains(component):
                fields = " and ".join(paths)
                yield f"{component.name}: {fields} changed in the chart: {change.reason}"
