"""Environments that `up`, `top --web` and `bench` install by themselves.

Packages come from the package index, pinned. A model never comes from a hub (decision 4).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.environments import dynamo
from penstock.environments.dynamo import NAME as DYNAMO
from penstock.environments.install import find_environment, install
from penstock.graph.load import parse_graph
from penstock.graph.text_file import read_text_file
from penstock.local.llamacpp_engine import ENVIRONMENT
from penstock.manifests.source import MOST_BYTES, is_manifest

# The megabytes that the packages of an environment have in the index.
MEGABYTES = {DYNAMO: 142, ENVIRONMENT: 129}

Say = Callable[[str], None]


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def install_missing(
    path: Path,
    sets: Sequence[str],
    say: Say = _to_stderr,
    *,
    with_engine: bool = True,
    quiet: bool = False,
) -> None:
    """Install the environments that the graph or manifest needs, are small and are not installed.

    ``with_engine``: also those of the graph's engine.

    Any PenstockError of reading the file, and MissingToolError when the installation fails.
    """
    text = read_text_file(path, MOST_BYTES)
    names = [] if dynamo.is_in_own_environment() else [DYNAMO]
    if not is_manifest(text):
        engine = parse_graph(text, str(path), sets).graph.engine.kind
        names += [ENVIRONMENT] if with_engine and engine == "llamacpp" else []
    for name in names:
        install_tool(name, f"{MEGABYTES[name]} MB", say, quiet=quiet)


def install_tool(name: str, size: str, say: Say = _to_stderr, *, quiet: bool = False) -> None:
    """Install one environment if it is not installed; first say its ``size``."""
    environment = find_environment(name)
    if environment.state != "installed":
        say(f"installing environment {name} ({size}; disable with --no-install)")
        say(install(environment, quiet=quiet))
