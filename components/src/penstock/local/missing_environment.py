"""Environments that `up` installs by itself: those that are small.

Packages come from the package index, pinned. A model never comes from a hub (decision 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.environments import find_environment, install
from penstock.graph.load import parse_graph
from penstock.graph.text_file import read_text_file
from penstock.local import llamacpp_engine
from penstock.manifests.source import MOST_BYTES, is_manifest

# Engine → its environment, and the megabytes that its packages have in the index.
SMALL: Mapping[str, tuple[str, int]] = {"llamacpp": (llamacpp_engine.ENVIRONMENT, 129)}

Say = Callable[[str], None]


def install_missing(path: Path, sets: Sequence[str], say: Say, *, quiet: bool = False) -> None:
    """Install the environment of the graph's engine if it is small and not installed.

    Any PenstockError of reading the graph, and MissingToolError when the installation fails.
    """
    text = read_text_file(path, MOST_BYTES)
    if is_manifest(text):
        return
    name, megabytes = SMALL.get(parse_graph(text, str(path), sets).graph.engine.kind, ("", 0))
    environment = find_environment(name) if name else None
    if environment is None or environment.state == "installed":
        return
    say(f"installing environment {name} ({megabytes} MB; disable with --no-install)")
    say(install(environment, quiet=quiet))
