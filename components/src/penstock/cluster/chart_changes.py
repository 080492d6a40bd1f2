"""What an upgrade of the chart changes in the pods of an unchanged graph, with the reasons.

The entries are in the chart's `files/upgrades.yaml`, which its NOTES.txt prints after an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from penstock.cluster.diff import ComponentDiff, Diff
from penstock.cluster.workloads import FRONTEND
from penstock.manifests.render import chart_path

FILE = Path("files") / "upgrades.yaml"


@dataclass(frozen=True, kw_only=True)
class ChartChange:
    """A change of the chart that restarts pods once."""

    since: str  # the commit of the chart that is upgraded
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
    entries = yaml.safe_load((chart_path() / FILE).read_text("utf-8"))
    return tuple(
        ChartChange(
            since=str(entry["since"]),
            component=entry["component"],
            paths=tuple(entry["paths"]),
            reason=entry["reason"],
        )
        for entry in entries
    )


def reasons(diff: Diff) -> Iterator[str]:
    """One line for each changed field that is known to come from the chart."""
    for component in diff.components:
        for change in chart_changes():
            if paths := change.explains(component):
                fields = " and ".join(paths)
                yield f"{component.name}: {fields} changed in the chart: {change.reason}"
