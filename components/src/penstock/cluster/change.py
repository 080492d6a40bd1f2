"""A change before it is written: the current state, the new manifests and their difference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from penstock import helm
from penstock.cluster import generations, report
from penstock.cluster.api import Api
from penstock.cluster.api_errors import grant
from penstock.cluster.current_state import (
    CurrentState,
    DryRuns,
    kv_tokens,
    read_cluster_state,
    read_file_state,
    read_update,
)
from penstock.cluster.diff import Action, Diff, Drift, diff, drift, is_worker
from penstock.cluster.generations import RollingUpdate, Transition
from penstock.cluster.release import (
    Release,
    Revision,
    call_helm,
    read_installed,
    read_release,
    release_error,
    require_release,
    revisions,
)
from penstock.cluster.workloads import DGD, PLURALS, WORKLOAD_KINDS, Object, workloads
from penstock.errors import ClusterError, Problem
from penstock.graph.load import LoadedGraph, parse_graph
from penstock.helm import ReleaseTarget
from penstock.manifests.render import render
from penstock.manifests.source import render_graph


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of one release."""

    target: ReleaseTarget
    # The chart's values, which render to ``after``.
    values: Mapping[str, Any]
    before: CurrentState
    after: tuple[Object, ...]
    diff: Diff
    # GPUs of the graph's nodes (`hardware.gpus_per_node` × `hardware.nodes`); None if not set.
    available_gpus: int | None
    # How the change meets a rolling update; None if none is in progress.
    transition: Transition | None = None

    def has_scaled(self, api: Api) -> bool:
        """Whether a pool has its new number on the cluster by now. Raises ClusterError."""
        new = {
            c.name: c.replicas[1] for c in self.diff.components if c.replicas[0] != c.replicas[1]
        }
        declared = (o for o in self.after if o["kind"] in WORKLOAD_KINDS)
        live = workloads(api.existing(declared))
        return any(name in live and live[name].replicas == count for name, count in new.items())

    @property
    def is_empty(self) -> bool:
        """Whether the cluster already matches the graph."""
        has_drift = any(entry.is_corrected_by_apply for entry in self.before.drift)
        refused = self.before.rejected or self.before.foreign
        return self.diff.is_empty and not has_drift and not refused

    @property
    def is_applied(self) -> bool:
        """Whether the cluster matches the graph and Helm completed the revision."""
        revision = self.before.revision
        return self.is_empty and revision is not None and revision.is_deployed

    @property
    def failed_write(self) -> Revision | None:
        """The last revision, if Helm recorded it as failed and the cluster matches the graph."""
        revision = self.before.revision
        return revision if self.is_empty and revision and revision.is_failed else None

    def require_possible(self, *, adopts: bool = False) -> None:
        """Raises ClusterError with every reason why the change would be rejected.

        ``adopts``: the user wants what another tool installed to become Helm's.
        """
        if self.before.installer and not adopts:
            raise _not_of_helm(self.target, self.before.installer)
        revision = self.before.revision
        if revision and (revision.is_pending or revision.is_uninstalled):
            raise _not_upgradable(self.target, revision)
        place = f"release {self.target}"
        if self.diff.rejected:
            raise ClusterError(
                *(
                    Problem(place=place, message=str(rejected), fix=rejected.fix)
                    for rejected in self.diff.rejected
                )
            )
        rejected = [Problem(place=place, message=reason) for reason in self.before.rejected]
        if problems := (*self.before.foreign, *rejected, *self.before.unchecked):
            raise ClusterError(*problems)

    def lines(self) -> list[str]:
        """The change as `penstock diff` prints it."""
        body = report.as_lines(
            self.diff,
            drift=self.before.drift,
            available_gpus=self.available_gpus,
            kv_tokens=kv_tokens(self.before.objects),
            transition=self.transition,
            manager=self.before.manager,
        )
        if failed := self.failed_write:
            text = f"revision {failed.number} failed: apply writes it again and restarts nothing"
            body = [*(line for line in body if line != report.NO_CHANGES), text]
        if self.before.revision:
            body += [f"chart: {reason}" for reason in report.chart_reasons(self.diff)]
        body += [f"not possible: {problem}" for problem in self.before.foreign]
        body += [f"rejected by the API server: {reason}" for reason in self.before.rejected]
        body += _in_one_line("dry run not possible", "patch", self.before.unchecked)
        body += _in_one_line("pods were not checked", "create", self.before.unchecked_pods)
        body += _in_one_line("drift not checked", "get", self.before.unread)
        title = f"{self.target}, compared with {self.before.description}:"
        return [title, *(f"  {line}" for line in body)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "release": self.target.name,
            **report.as_dict(self.diff, self.before.drift, self.transition),
            "chart_changes": [*report.chart_reasons(self.diff)] if self.before.revision else [],
            "not_possible": list(map(str, self.before.foreign)),
            "rejected_by_server": list(self.before.rejected),
            "not_checked_by_server": list(
                map(str, (*self.before.unchecked, *self.before.unchecked_pods))
            ),
            "repeats_failed_write": self.failed_write is not None,
            "drift_not_checked": list(map(str, self.before.unread)),
        }


def _in_one_line(what: str, verb: str, problems: Sequence[Problem]) -> list[str]:
    """Missing rights, which often are the same for all objects."""
    if len(problems) < 2:
        return [f"{what}: {problem}" for problem in problems]
    kinds = dict.fromkeys(problem.place.partition(" ")[0] for problem in problems)
    plurals = ", ".join(PLURALS[kind] for kind in kinds if kind in PLURALS)
    first = f"{what} for {len(problems)} objects: {problems[0].place}: {problems[0].message}"
    return [f"{first}. Fix: {grant(f'{verb} {plurals}')}"]


def _not_of_helm(target: ReleaseTarget, installer: str) -> ClusterError:
    return release_error(
        target,
        f"was {installer}, whose next sync would undo this change",
        "Change the graph where that tool reads it. To manage it with Helm instead, stop the "
        "tool from writing it, and add --adopt.",
    )


def _not_upgradable(target: ReleaseTarget, revision: Revision) -> ClusterError:
    state = f"revision {revision.number} is {revision.status}"
    if not revision.is_pending:
        message = f"{state}, but Helm still keeps its record"
        fix = "Run `penstock uninstall` to delete the record."
    elif revision.number == 1:
        message = f"{state}: the installation is running or was interrupted"
        fix = "Wait for it to finish. If it was interrupted, run `penstock uninstall`."
    else:
        message = f"{state}: another client is upgrading the release, or was interrupted"
        fix = "Wait for it to finish. If it was interrupted, run `penstock rollback`."
    return release_error(target, message, fix)


def against_cluster(
    loaded: LoadedGraph,
    target: ReleaseTarget,
    api: Api,
    require_rights: Callable[[tuple[Object, ...]], None] = lambda _: None,
) -> Change:
    """The change that applying the graph makes. Raises ClusterError, ChartError.

    ``require_rights``: called with the rendered objects before the cluster is read.
    """
    after = render_graph(loaded, target.namespace, name=target.name).objects
    require_rights(after)
    release = read_installed(target, api, after)
    current = release.objects if release else ()
    mark = generations.mark(current)
    generations.require_unmarked(loaded.values, mark)
    if mark:  # to leave it out would restart all workers
        loaded = replace(loaded, values=generations.marked_values(loaded.values, after, mark))
        after = render_graph(loaded, target.namespace, name=target.name).objects
    before = read_cluster_state(target, api, release, after)
    change = _change(loaded, target, before, after)
    if release is None or before.update is None:
        return change
    return _during(change, release, before.update, before.drift)


def _during(
    change: Change, release: Release, update: RollingUpdate, entries: Iterable[Drift]
) -> Change:
    """The change during a rolling update: as a new generation if it must not return at once.

    ``entries``: how the cluster differs from the release.
    """
    workers = {c.name for c in change.diff.components if is_worker(c)}
    transition = generations.transition(
        update,
        change.after,
        release.objects,
        earlier_objects(change.target, release.revision),
        has_drift=has_drift(entries, workers),
    )
    change = replace(change, transition=transition)
    if transition is None or not transition.needs_mark:
        return change
    return _as_new_generation(change, release.revision.number + 1)


def has_drift(entries: Iterable[Drift], workers: Container[str]) -> bool:
    """Whether the workers' pods differ from the release, apart from their number."""
    return any(d.component in workers and d.change.path != "replicas" for d in entries)


def _as_new_generation(change: Change, number: int) -> Change:
    values = generations.marked_values(change.values, change.after, str(number))
    after = render(values, name=change.target.name, namespace=change.target.namespace).objects
    return replace(
        change,
        values=values,
        after=after,
        diff=diff(change.before.objects, after, change.before.replicas),
    )


def earlier_objects(target: ReleaseTarget, newest: Revision) -> Iterator[tuple[Object, ...]]:
    """The objects of each stored revision of this chart before the newest."""
    for revision in revisions(target) if newest.is_recorded else ():
        with contextlib.suppress(ClusterError):  # of another chart
            is_earlier = revision.number < newest.number
            stored = read_release(target, revision.number) if is_earlier else None
            if stored is not None:
                yield stored.objects


def recheck(change: Change, api: Api, release: Release) -> Change:
    """The change as it must be written now: an update may have begun or progressed since it was
    computed. Raises ClusterError."""
    known = change.transition
    if known is not None and known.needs_mark:
        return change
    update, entries = read_graph(api, change.target, release)
    return change if update is None else _during(change, release, update, entries)


def read_graph(
    api: Api, target: ReleaseTarget, release: Release
) -> tuple[RollingUpdate | None, tuple[Drift, ...]]:
    """The rolling update of the release's graph, and how the graph differs from the release.

    Raises ClusterError.
    """
    graphs = [o for o in release.objects if o["kind"] == DGD]
    live = api.existing(graphs)
    api.follow(live)
    expected = DryRuns(api, live).expected(graphs)
    return read_update(api, target, live), drift(graphs, live, expected, api.manager)


def against_file(loaded: LoadedGraph, target: ReleaseTarget, path: Path) -> Change:
    """The change from a graph or manifests at ``path``. Raises as `open_source` does."""
    after = render_graph(loaded, target.namespace, name=target.name).objects
    before = read_file_state(path, target.name, target.namespace)
    return _change(loaded, target, before, after)


def of_replicas(target: ReleaseTarget, api: Api, replicas: Mapping[str, int]) -> Change:
    """The installed release with other numbers of replicas; the graph file is not read.

    Raises ClusterError, also if an autoscaler owns a pool or if anything else would change.
    """
    release = require_release(target)
    autoscaled = [n for n, w in workloads(release.objects).items() if w.scaler is not None]
    if conflicts := [name for name in replicas if name in autoscaled]:
        raise release_error(
            target,
            f"an autoscaler sets the replicas of {' and '.join(conflicts)}",
            "Change the bounds of its autoscaling in the graph, and run `penstock apply`.",
        )
    values = call_helm(target, "be read", lambda: helm.release_values(target))
    for name, count in replicas.items():
        values[name] = {**values.get(name, {}), "replicas": count}
    text = yaml.safe_dump(values, sort_keys=False)
    loaded = parse_graph(text, f"{target.name}.yaml")
    change = against_cluster(loaded, target, api)
    unexpected = [
        c.name for c in change.diff.components if c.action not in (Action.SCALED, Action.UNCHANGED)
    ]
    if unexpected:
        raise release_error(
            target,
            f"more than replicas would change ({', '.join(unexpected)}), because another version "
            "of the chart installed the release",
            "Review `penstock diff`, then run `penstock apply`.",
        )
    return change


def _change(
    loaded: LoadedGraph, target: ReleaseTarget, before: CurrentState, after: tuple[Object, ...]
) -> Change:
    return Change(
        target=target,
        values=loaded.values,
        before=before,
        after=after,
        diff=diff(before.objects, after, before.replicas),
        available_gpus=_available_gpus(loaded),
    )


def _available_gpus(loaded: LoadedGraph) -> int | None:
    hardware = loaded.graph.hardware
    if hardware.gpus_per_node is None or hardware.nodes is None:
        return None
    return hardware.gpus_per_node * hardware.nodes
