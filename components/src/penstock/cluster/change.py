"""A change that was not made yet: what is there, what would be, and the difference in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock import helm
from penstock.cluster import report
from penstock.cluster.api import Api
from penstock.cluster.current_state import CurrentState, kv_tokens, of_cluster, of_file
from penstock.cluster.diff import Action, Diff, diff
from penstock.cluster.release import Revision, require, told
from penstock.cluster.workloads import Object, workloads
from penstock.errors import ClusterError, Problem
from penstock.graph.load import LoadedGraph, parse_graph
from penstock.helm import ReleaseTarget
from penstock.manifests.source import render_graph


@dataclass(frozen=True, kw_only=True)
class Change:
    """``values`` of the chart give ``after``; ``gpus_there``: what the graph may use."""

    target: ReleaseTarget
    values: Mapping[str, Any]
    before: CurrentState
    after: tuple[Object, ...]
    diff: Diff
    gpus_there: int | None

    @property
    def is_empty(self) -> bool:
        """Nothing to write: the cluster holds just this."""
        drifts = any(entry.is_mended for entry in self.before.drift)
        return self.diff.is_empty and not drifts and not self.before.refused

    @property
    def is_written(self) -> bool:
        """As `is_empty`, and Helm applied it as a whole."""
        revision = self.before.revision
        return self.is_empty and revision is not None and revision.status == "deployed"

    def require_possible(self) -> None:
        """Raises ClusterError with all that would be refused."""
        revision = self.before.revision
        if revision and (revision.is_pending or revision.status.startswith("uninstall")):
            raise ClusterError(_not_writable(self.target, revision))
        refused = [(str(refusal), refusal.fix) for refusal in self.diff.refused]
        refused += [(text, "") for text in self.before.refused if not refused]
        place = f"release {self.target}"
        if refused:
            raise ClusterError(
                *(Problem(place=place, message=text, fix=fix) for text, fix in refused)
            )

    def lines(self) -> list[str]:
        told = report.as_lines(
            self.diff,
            drift=self.before.drift,
            gpus_there=self.gpus_there,
            kv_tokens=kv_tokens(self.before.objects),
        )
        refused = [f"refused: {text} (the API server)" for text in self.before.refused]
        return [f"{self.target} against {self.before.what}:", *(f"  {t}" for t in told + refused)]

    def as_dict(self) -> dict[str, Any]:
        described = report.as_dict(self.diff, self.before.drift)
        refused = list(self.before.refused)
        return {"release": self.target.name, **described, "refused_by_server": refused}


def _not_writable(target: ReleaseTarget, revision: Revision) -> Problem:
    state = f"revision {revision.number} is {revision.status}"
    if not revision.is_pending:
        message, fix = f"{state}, and its record is kept", "end it with `penstock uninstall`"
    elif revision.number == 1:
        message = f"{state}: it is being installed, or the installation was killed"
        fix = "wait for it; if it was killed, `penstock uninstall` clears it away"
    else:
        message = f"{state}: another writer is at work, or was killed"
        fix = "wait for it; if it was killed, `penstock rollback` ends it"
    return Problem(place=f"release {target}", message=message, fix=fix)


def against_cluster(loaded: LoadedGraph, target: ReleaseTarget, api: Api) -> Change:
    """Raises ClusterError, ChartError."""
    after = render_graph(loaded, target.namespace, name=target.name).objects
    return _planned(loaded, target, of_cluster(target, api, after), after)


def against_file(loaded: LoadedGraph, target: ReleaseTarget, path: Path) -> Change:
    """``path`` is a graph or manifests. Raises as `open_source`."""
    after = render_graph(loaded, target.namespace, name=target.name).objects
    return _planned(loaded, target, of_file(path, target.name, target.namespace), after)


def scaled(target: ReleaseTarget, api: Api, replicas: Mapping[str, int]) -> Change:
    """The release with other replicas and nothing else, whatever its file says by now.

    Raises ClusterError, also where other things would change with it.
    """
    release = require(target)
    owned = [name for name, w in workloads(release.objects).items() if w.scaler is not None]
    if taken := [name for name in replicas if name in owned]:
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message=f"the replicas of {' and '.join(taken)} are an autoscaler's",
                fix="change the bounds of its autoscaling, and `penstock apply`",
            )
        )
    values = told(target, "be read", lambda: helm.values_of_release(target))
    for name, count in replicas.items():
        values[name] = {**values.get(name, {}), "replicas": count}
    text = yaml.safe_dump(values, sort_keys=False)
    loaded = parse_graph(text, f"{target.name}.yaml")
    planned = against_cluster(loaded, target, api)
    more = [
        c.name for c in planned.diff.components if c.fate not in (Action.SCALED, Action.UNCHANGED)
    ]
    if more:
        raise ClusterError(
            Problem(
                place=f"release {target}",
                message=f"more than replicas would change: {', '.join(more)}: another version of "
                "the chart wrote it",
                fix="see `penstock diff`, then `penstock apply`",
            )
        )
    return planned


def _planned(
    loaded: LoadedGraph, target: ReleaseTarget, before: CurrentState, after: tuple[Object, ...]
) -> Change:
    return Change(
        target=target,
        values=loaded.values,
        before=before,
        after=after,
        diff=diff(before.objects, after, before.replicas),
        gpus_there=_gpus_there(loaded),
    )


def _gpus_there(loaded: LoadedGraph) -> int | None:
    hardware = loaded.graph.hardware
    if hardware.gpus_per_node is None or hardware.nodes is None:
        return None
    return hardware.gpus_per_node * hardware.nodes
