"""The file that a finding is about: where a setting is in it, and how to paste a fix into it.

`checks/run.py` need not know whether it is a graph or a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.checks.files.manifest_file import ManifestFile
from penstock.checks.files.place import Place
from penstock.checks.finding import Fix
from penstock.engines.settings import Location
from penstock.manifests.source import Source


class CheckedFile(Protocol):
    @property
    def suppressions(self) -> Mapping[str, str]:
        """Rule id → reason, from `checks.suppress`."""

    def locate(self, location: Location) -> Place:
        """The place of a setting; if it is unset, of the nearest section that exists."""

    def adapt(self, fix: Fix, location: Location) -> Fix:
        """The fix with the flags, keys and variables that have an effect in this file."""

    def paste(self, fix: Fix, location: Location) -> str:
        """An adapted fix as YAML to paste; empty if it is not a single change."""


def checked_file(source: Source) -> CheckedFile:
    if source.loaded is None:
        return ManifestFile(source.manifest, source.text)
    from penstock.checks.files.graph_file import GraphFile  # it imports the graph model

    return GraphFile(source.manifest, source.loaded)
