"""What tests need beyond Python and `uv sync`: `@pytest.mark.needs("envoy", "servers")`.

tests/conftest.py skips a test on a machine that lacks one of them, and prints how to add it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from penstock.environments import environments_root, is_installed
from penstock.environments.install import list_environments
from penstock.environments.post_install import NEEDS as REQUIRED
from penstock.environments.post_install import NODE_FOLDER
from tests.support import outside_files

Function = TypeVar("Function", bound=Callable[..., object])

ENVIRONMENTS = environments_root()  # while a test runs, the variable may name another folder
SHARED = "set PENSTOCK_SHARED (see CONTRIBUTING.md)"
CHECKOUT = "set PENSTOCK_DYNAMO_CHECKOUT (see CONTRIBUTING.md)"
# Other allowed reasons of skips, which depend on the user's rights or settings.
UNDECLARABLE: Mapping[str, str] = {
    "this user may not mount a file system": "a container may forbid it",
    "this machine permits no namespaces": "a container may forbid them",
    "this user is root, who reads every file": "the test is about the permissions of a file",
    "this system has no OpenMP library": "penstock's workers use that of their environment",
    "etcd lies in sbin, which is searched whatever PATH says": "the test needs a missing program",
    "uv is not installed": "`python -m pytest` runs in an environment that uv made elsewhere",
    "agentperf gets penstock's own Python": "the test is for other versions of Python",
    "KUBECONFIG is not set": "only the user can name a cluster",
    "the cluster has no PodMonitors": "it is the user's cluster",
    "PENSTOCK_LLMD_CHECKOUT does not name a checkout of llm-d/llm-d-benchmark": (
        "one test reads it, and it is not part of CI"
    ),
}
MOST_OTHERS = 10  # reasons in the summary


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something that a machine may lack, and the command or variable that adds it."""

    is_met: Callable[[], bool]
    remedy: str


def _environment(name: str) -> Need:
    folders = [ENVIRONMENTS / part for part in (name, REQUIRED.get(name)) if part]
    remedy = f"uv run penstock tools env install {name}"
    return Need(is_met=lambda: all(map(is_installed, folders)), remedy=remedy)


def _debian(packages: str, *programs: str) -> Need:
    remedy = f"apt-get install {packages}"
    return Need(is_met=lambda: all(map(_path_of, programs)), remedy=remedy)


def _file(path: Callable[[], Path], remedy: str) -> Need:
    return Need(is_met=lambda: path().exists(), remedy=remedy)


def _has_node_client() -> bool:
    return _path_of("node") is not None and (ENVIRONMENTS / "clients" / NODE_FOLDER).exists()


NEEDS: Mapping[str, Need] = {
    **{environment.name: _environment(environment.name) for environment in list_environments()},
    "chromium": _debian("chromium", "chromium"),
    "fish": _debian("fish", "fish"),
    "gcc": _debian("gcc", "cc"),
    "graphviz": _debian("graphviz", "dot"),
    "kubectl": _debian("kubernetes-client", "kubectl"),
    "nftables": _debian("nftables", "nft"),
    "poppler": _debian("poppler-utils", "pdftoppm"),
    "prometheus": _debian("prometheus", "prometheus", "promtool"),
    "servers": _debian("etcd-server nats-server", "etcd", "nats-server"),
    "zsh": _debian("zsh", "zsh"),
    "docs": Need(is_met=lambda: find_spec("mkdocs") is not None, remedy="uv sync --group docs"),
    "openai-node": Need(
        is_met=_has_node_client,
        remedy="apt-get install nodejs npm && uv run penstock tools env remove clients && "
        "uv run penstock tools env install clients",
    ),
    "crds": _file(outside_files.graph_crd, CHECKOUT),
    "recipes": _file(outside_files.recipes, CHECKOUT),
    "recordings": _file(outside_files.recordings, SHARED),
    "trace": _file(outside_files.trace, SHARED),
}


@cache
def _is_met(name: str) -> bool:
    return NEEDS[name].is_met()


def _path_of(program: str) -> str | None:
    # Debian installs servers in sbin, which is not on an ordinary user's PATH.
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def program(name: str) -> str:
    """The path of a program that the test declares."""
    found = _path_of(name)
    assert found is not None, f"{name} is not installed: mark the test with what it needs"
    return found


def needed_by_its_tests(*names: str) -> Callable[[Function], Function]:
    """Below `@pytest.fixture`: a test with the fixture and without the marker fails."""

    def declare(function: Function) -> Function:
        function.needs = names  # type: ignore[attr-defined]
        return function

    return declare


def problem(declared: Iterable[str], fixtures: Iterable[object]) -> str:
    """What is wrong with the marker of a test with these fixtures, or nothing."""
    unknown = sorted(set(declared) - NEEDS.keys())
    needed = {name for fixture in fixtures for name in getattr(fixture, "needs", ())}
    missing = ", ".join(f'"{name}"' for name in sorted(needed - set(declared)))
    if unknown:
        return f"unknown needs: {', '.join(unknown)}. Use one of {', '.join(NEEDS)}."
    return f"mark the test with needs({missing}): its fixtures need that" if missing else ""


def reason(declared: Iterable[str]) -> str:
    """Why a test is skipped on this machine: the first of its needs that is not met; or nothing."""
    return next((_reason(name) for name in declared if not _is_met(name)), "")


def _reason(name: str) -> str:
    return f"needs {name}. To run: {NEEDS[name].remedy}"


def is_declared(skip: str) -> bool:
    """Whether a test may be skipped for this reason."""
    return skip in UNDECLARABLE or skip in map(_reason, NEEDS)


def summary(skips: Mapping[str, int]) -> list[str]:
    """Lines for the end of a run; ``skips``: how many tests by reason."""
    declared = set(map(_reason, NEEDS))
    ordered = sorted(skips, key=lambda reason: (reason not in declared, -skips[reason], reason))
    most = len(declared & set(skips)) + MOST_OTHERS
    lines = [f"{skips[reason]} skipped: {reason}" for reason in ordered[:most]]
    rest = sum(skips[reason] for reason in ordered[most:])
    return [*lines, f"{rest} skipped for other reasons"] if rest else lines
