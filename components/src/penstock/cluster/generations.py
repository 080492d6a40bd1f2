"""How a change meets a rolling update of Dynamo's operator that is in progress.

If workers get the content of the generation that serves back, the operator ends the update without
surge: pods that were replaced already are missing. The same content with an annotation is another
generation, to which it rolls. Pure. See decision 19 in docs/decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.cluster.diagnose import is_ready
from penstock.cluster.ownership import HELM
from penstock.cluster.workloads import (
    DGD,
    NO_RESTART,
    Object,
    annotations_of,
    component_of,
    is_rolling,
    labels_of,
    status_of,
    workloads,
)
from penstock.errors import GraphError, Problem
from penstock.files import page

# The annotation of worker pods that makes a new generation of the same content.
ROLLOUT = "penstock/rollout"
# The operator's: the generation that serves, in annotations of the graph, and that of a pod.
ACTIVE = ("nvidia.com/current-worker-hash", "nvidia.com/current-worker-hash-v2")
GENERATION = "nvidia.com/dynamo-worker-hash"


@dataclass(frozen=True, kw_only=True)
class PoolUpdate:
    """Pods of one pool during an update, without those that are being deleted."""

    name: str
    # The graph's number of replicas.
    desired: int
    # Ready, of the generation to which the operator would return.
    active: int
    # Ready, of newer generations.
    newer: int
    # Not ready, but a container of theirs runs: they may be ready at any moment.
    starting: int

    @property
    def is_untouched(self) -> bool:
        """Whether no serving pod has been replaced yet, nor will be within moments."""
        return self.active >= self.desired and not (self.newer or self.starting)


@dataclass(frozen=True, kw_only=True)
class RollingUpdate:
    """An update in progress."""

    # None if the user may not list pods.
    pools: tuple[PoolUpdate, ...] | None
    # The number of generations of which pods run.
    generations: int = 0
    # Pod specs of the generation that serves, one of each pool.
    active_pods: Mapping[str, Object] = field(default_factory=dict)
    # Whether the operator has seen the newest change of the graph.
    is_observed: bool = True

    @property
    def is_untouched(self) -> bool:
        return self.pools is not None and all(pool.is_untouched for pool in self.pools)


class Course(StrEnum):
    """What a write does to an update in progress."""

    CONTINUES = "unchanged"  # the workers do not change
    RETURNS = "end-update"  # to the generation that serves, of which no pod is missing
    ROLLS_FORWARD = "revert-as-new-generation"  # to earlier content, as a new generation
    REPLACES = "new-generation"  # by a further generation with other content


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A change of a graph whose rolling update is in progress."""

    update: RollingUpdate
    course: Course

    @property
    def needs_mark(self) -> bool:
        """Whether the workers must become a generation that never was: their content could be that
        of the one that serves, which Helm's history need not contain."""
        return self.course in (Course.ROLLS_FORWARD, Course.REPLACES)


def rolling_update(graph: Object, pods: Iterable[Object] | None) -> RollingUpdate:
    """The update of a live graph that `is_updating`. ``pods``: the graph's; None if they cannot be
    read."""
    if pods is None:
        return RollingUpdate(pools=None)
    annotations = annotations_of(graph)
    active = {annotations[name] for name in ACTIVE if name in annotations}
    listed = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    pools = (
        _pool(name, pool.replicas, active, [p for p in listed if component_of(p) == name])
        for name, pool in workloads([graph]).items()
        if pool.is_worker
    )
    names = {name for pod in listed if (name := labels_of(pod).get(GENERATION, ""))}
    return RollingUpdate(
        pools=tuple(pools),
        generations=len(names),
        active_pods={
            component_of(p): p["spec"] for p in listed if labels_of(p).get(GENERATION, "") in active
        },
        is_observed=_is_observed(graph),
    )


def is_updating(graph: Object) -> bool:
    """Whether the operator reports an update in progress, or has not seen the newest change, with
    which one may begin."""
    return is_rolling(graph) or not _is_observed(graph)


def _is_observed(graph: Object) -> bool:
    observed = status_of(graph).get("observedGeneration")
    return observed is None or observed >= graph["metadata"].get("generation", 0)


def _pool(name: str, desired: int, active: set[str], pods: Sequence[Object]) -> PoolUpdate:
    old = [p for p in pods if labels_of(p).get(GENERATION, "") in active]
    new = [p for p in pods if labels_of(p).get(GENERATION, "") not in active]
    ready = sum(map(is_ready, new))
    return PoolUpdate(
        name=name,
        desired=desired,
        active=sum(map(is_ready, old)),
        newer=ready,
        starting=sum(map(_may_become_ready, new)) - ready,
    )


def _may_become_ready(pod: Object) -> bool:
    """Whether a container runs; also after restarts, which can have had a passing cause."""
    statuses = status_of(pod).get("containerStatuses") or ()
    return any("running" in (s.get("state") or {}) for s in statuses)


def transition(
    update: RollingUpdate,
    after: Iterable[Object],
    current: Iterable[Object],
    earlier: Iterable[Iterable[Object]],
    *,
    has_drift: bool = False,
) -> Transition:
    """How writing ``after`` meets the update.

    ``current``: the objects of the newest revision; ``earlier``: those of the revisions before;
    ``has_drift``: whether the workers on the cluster differ from ``current``.
    """
    content = _worker_content(after)
    if content == _worker_content(current) and not has_drift:
        return Transition(update=update, course=Course.CONTINUES)
    is_active = bool(update.active_pods) and all(
        _is_of(pod, content[name]["podTemplate"]["spec"])
        for name, pod in update.active_pods.items()
        if name in content
    )
    is_known = content in [_worker_content(objects) for objects in (current, *earlier)]
    if not (is_known or is_active):
        return Transition(update=update, course=Course.REPLACES)
    returns = is_known and is_active and update.is_untouched
    return Transition(update=update, course=Course.RETURNS if returns else Course.ROLLS_FORWARD)


def _is_of(pod: Object, template: Object) -> bool:
    """Whether a pod was made from the template, by what the operator does not change."""
    return _identity(template) <= _identity(pod)


def _identity(pod: Object) -> frozenset[tuple[str, ...]]:
    """Images, commands, variables and config files of the pod."""
    parts: set[tuple[str, ...]] = {
        ("volume", str(volume["configMap"]["name"]))
        for volume in pod.get("volumes") or ()
        if "configMap" in volume
    }
    for container in pod.get("containers") or ():
        name = str(container["name"])
        argv = (*(container.get("command") or ()), *(container.get("args") or ()))
        parts |= {(name, str(container.get("image"))), (name, "argv", *map(str, argv))}
        variables = (e for e in container.get("env") or () if "value" in e)
        parts |= {(name, "env", str(e["name"]), str(e["value"])) for e in variables}
    return frozenset(parts)


def _worker_content(objects: Iterable[Object]) -> Mapping[str, Any]:
    """What the operator hashes, as far as the chart sets it; empty on `platform: plain`."""
    content: dict[str, Any] = {}
    for manifest in objects:
        if manifest["kind"] != DGD:
            continue
        names = {name for name, pool in workloads([manifest]).items() if pool.is_worker}
        for component in manifest["spec"]["components"]:
            if component["name"] in names:
                rest = {k: v for k, v in component.items() if k not in NO_RESTART}
                content[component["name"]] = rest
    return content


def mark(objects: Iterable[Object]) -> str | None:
    """The value of the annotation in the objects; None without one."""
    for pool in _worker_content(objects).values():
        annotations = (pool.get("podTemplate", {}).get("metadata") or {}).get("annotations") or {}
        if ROLLOUT in annotations:
            return str(annotations[ROLLOUT])
    return None


def marked_values(
    values: Mapping[str, Any], objects: Iterable[Object], value: str
) -> dict[str, Any]:
    """The chart's values with the annotation in each pool of workers in ``objects``, their
    rendered manifests."""
    marked = dict(values)
    for name in _worker_content(objects):
        pool = dict(marked.get(name) or {})
        marked[name] = {**pool, "annotations": {**(pool.get("annotations") or {}), ROLLOUT: value}}
    return marked


def require_unmarked(values: Mapping[str, Any], current: str | None) -> None:
    """Raises GraphError if the graph sets the annotation itself; ``current``: that of the release,
    whose own values are read again to scale it."""
    for name, section in values.items():
        annotations = section.get("annotations") if isinstance(section, Mapping) else None
        if isinstance(annotations, Mapping) and annotations.get(ROLLOUT, current) != current:
            problem = Problem(
                place=f"{name}.annotations.{ROLLOUT}",
                message="is set by penstock, for a revert during a rolling update",
                fix="Remove it, or use another annotation.",
            )
            raise GraphError(problem)


def lines(change: Transition, manager: str = HELM) -> Iterator[str]:
    """The transition as `penstock diff` prints it. ``manager``: the client that writes the graph;
    one that renders it from Git cannot make a new generation of the same content."""
    pools = change.update.pools
    if not change.update.is_observed:
        yield "the operator has not seen the last change yet"
    if pools is None:
        yield "rolling update in progress; its pods cannot be listed"
    else:
        states = ", ".join(
            f"{p.name}: {p.active} of {p.desired} old and {p.newer} new pods ready" for p in pools
        )
        yield f"rolling update in progress ({states})"
    match change.course:
        case Course.RETURNS:
            kept = " and ".join(f"{p.active} × {p.name}" for p in pools or ())
            yield f"rollout: the operator ends the update; serving workers ({kept}) do not restart"
        case Course.ROLLS_FORWARD:
            left = " and ".join(
                f"{p.name} with {min(p.active, p.desired)} of {p.desired}"
                for p in pools or ()
                if p.active < p.desired
            )
            if left:
                yield (
                    f"rollout: a direct revert would leave {left} workers until new ones are ready"
                )
            if left and manager != HELM:
                yield (
                    f"rollout: {manager} would do so, unless the commit also sets an annotation of "
                    f"each worker pool to a new value: see {page('cluster')}"
                )
            yield (
                "rollout: the earlier configuration starts as a new generation instead "
                f"(annotation {ROLLOUT}); serving workers stop after their replacements are ready"
            )
        case Course.REPLACES:
            count = f"pods of {change.update.generations + 1} generations" if pools else "old pods"
            yield (
                f"rollout: starts another generation ({count} until it is ready); pods that are "
                "not ready are deleted first"
            )
