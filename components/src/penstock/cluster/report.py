"""A diff in words, as `penstock diff` prints it, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.cluster.compare import ABSENT, FieldChange
from penstock.cluster.diff import Action, ComponentDiff, Diff, ObjectDiff, is_worker
from penstock.cluster.drift import Drift
from penstock.cluster.release import HistoryEntry

MOST = 8  # differences of one component that are listed


def as_lines(
    diff: Diff,
    *,
    drift: tuple[Drift, ...] = (),
    gpus_there: int | None = None,
    kv_tokens: Mapping[str, int] | None = None,
) -> list[str]:
    """``gpus_there``: GPUs that the graph may use, None where it does not say; ``kv_tokens``: the
    KV cache of one replica of each pool, in tokens, as far as it is known."""
    lines = [
        *_platform(diff),
        *(line for component in diff.components for line in _component(component, diff)),
        *_rollout(diff, gpus_there, kv_tokens or {}),
        *_gpus(diff, gpus_there),
        *(f"also: {_object(o)}" for o in diff.objects),
        *(f"refused: {refusal}. Fix: {refusal.fix}" for refusal in diff.refused),
        *(f"drift: {entry}" for entry in drift),
    ]
    return lines or ["no change"]


def _platform(diff: Diff) -> Iterator[str]:
    if diff.is_another_platform:
        before, after = diff.platforms
        yield f"platform: {before} → {after}: everything goes and is made anew; NOTHING SERVES then"


def _component(component: ComponentDiff, diff: Diff) -> Iterator[str]:
    before, after = component.replicas
    count = f"{before} → {after}" if before != after else str(after)
    if component.fate is not Action.CREATED and component.after:
        yield from _owner(component)
    match component.fate:
        case Action.CREATED:
            scaler = component.scalers[1]
            owner = f", then what {scaler} makes it" if scaler else ""
            yield f"{component.name}: new, {_replicas(after)}{_each(component)}{owner}"
        case Action.REMOVED:
            yield f"{component.name}: goes, {_replicas(before)}"
        case Action.SCALED if before != after:
            gone = ": NOTHING SERVES then" if after == 0 else ""
            yield f"{component.name}: scales {count}, nothing restarts{gone}"
        case Action.RESTARTED if component.changes:
            yield f"{component.name}: restarts (replicas {count}), because of"
            yield from (f"  {change}" for change in component.changes[:MOST])
            if len(component.changes) > MOST:
                yield f"  and {len(component.changes) - MOST} more"
        case Action.RESTARTED:
            causes = [c.name for c in diff.components if is_worker(c) and c.changes]
            with_whom = " and ".join(causes) or "the other workers"
            yield f"{component.name}: restarts (replicas {count}) with {with_whom}: one generation"


def _owner(component: ComponentDiff) -> Iterator[str]:
    before, after = component.scalers
    if after is not None and (before is None or before.kind != after.kind):
        yield f"{component.name}: the number of replicas becomes that of {after}"
    elif component.is_handed_back:
        yield f"{component.name}: the number of replicas is the graph's again"


def _replicas(count: int) -> str:
    return f"{count} replica" + ("" if count == 1 else "s")


def _each(component: ComponentDiff) -> str:
    after = component.after
    if after is None or not after.gpus:
        return ""
    nodes = f" on {after.nodes} nodes" if after.nodes > 1 else ""
    return f" of {after.gpus} {_gpu(after.gpus)}{nodes}"


def _rollout(diff: Diff, there: int | None, kv_tokens: Mapping[str, int]) -> Iterator[str]:
    if not diff.restarted:
        return
    lost = [f"{c.replicas[0]} × {c.name}" for c in diff.restarted if c.replicas[0]]
    if not lost:
        return
    tokens = sum(kv_tokens.get(c.name, 0) * c.replicas[0] for c in diff.restarted)
    known = f", {tokens:,} tokens when full" if tokens else ""
    yield f"roll-out: the KV cache of {' and '.join(lost)} is lost{known}"
    for pool in diff.dips:
        count = pool.replicas[0]
        if count == 1:
            yield f"roll-out: {pool.name} is one replica, without a surge: NOTHING SERVES meanwhile"
        else:
            yield f"roll-out: {pool.name} serves with {count - 1} of {count}: Grove has no surge"
    if diff.has_surge:
        yield from _surge(diff, there)


def _surge(diff: Diff, there: int | None) -> Iterator[str]:
    spare = diff.spare_gpus
    if not spare:
        yield "roll-out: new workers come first; no capacity is lost"
        return
    have = "" if there is None else f"; the graph's nodes have {max(0, there - diff.gpus[0])}"
    yield f"roll-out: new workers come first, which takes {spare} spare {_gpu(spare)}{have}"
    if there is not None and there - diff.gpus[0] < spare:
        yield "roll-out: too few: new workers stay Pending, and the old ones serve on"


def _gpu(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


def _gpus(diff: Diff, there: int | None) -> Iterator[str]:
    before, after = diff.gpus
    if before != after:
        yield f"GPUs: {before} → {after}"
    if there is not None and after > there:
        yield f"GPUs: the graph's nodes have {there}: {after - there} too few"
    elif diff.most_gpus > after and not diff.is_empty:
        have = "" if there is None else f"; the graph's nodes have {there}"
        yield f"GPUs: up to {diff.most_gpus} as the autoscalers go{have}"


def _object(found: ObjectDiff) -> str:
    what = f"{found.kind} {found.name}"
    if found.fate is not Action.CHANGED:
        return f"{what}: {'new' if found.fate is Action.CREATED else 'goes'}"
    return f"{what}: {', '.join(str(change) for change in found.changes[:MOST])}"


def in_short(diff: Diff) -> str:
    """One line for a list of revisions."""
    changed = [c for c in diff.components if c.fate is not Action.UNCHANGED]
    if changed:
        return ", ".join(_short(c) for c in changed)
    return f"{len(diff.objects)} objects beside the pools" if diff.objects else "no change"


def history_change(entry: HistoryEntry) -> str:
    """What the revision changed, in one line; empty where Helm does not keep the one before."""
    if entry.diff is None:
        return "installed" if entry.revision.number == 1 else ""
    return in_short(entry.diff)


def _short(component: ComponentDiff) -> str:
    if component.fate is not Action.SCALED:
        return f"{component.name} {component.fate}"
    before, after = component.scalers
    if before != after:
        return f"{component.name} scaled by {after or 'the graph'}"
    return f"{component.name} {component.replicas[0]} → {component.replicas[1]}"


def as_dict(diff: Diff, drift: tuple[Drift, ...]) -> dict[str, Any]:
    return {
        "changed": not diff.is_empty,
        "components": [
            {
                "name": c.name,
                "fate": c.fate.value,
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
                "fate": o.fate.value,
                "changes": [_change(change) for change in o.changes],
            }
            for o in diff.objects
        ],
        "gpus": {
            "before": diff.gpus[0],
            "after": diff.gpus[1],
            "most": diff.most_gpus,
            "spare": diff.spare_gpus if diff.restarted else 0,
        },
        "dips": [c.name for c in diff.dips],
        "refused": [
            {"what": refusal.what, "why": refusal.why, "fix": refusal.fix}
            for refusal in diff.refused
        ],
        "drift": [{"component": d.component, **_change(d.change), "by": d.by} for d in drift],
    }


def _change(change: FieldChange) -> dict[str, Any]:
    before, after = change.told
    return {
        "path": change.path,
        "before": None if change.before is ABSENT else before,
        "after": None if change.after is ABSENT else after,
    }
