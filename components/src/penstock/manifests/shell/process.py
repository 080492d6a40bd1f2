"""The processes that a script starts, and which of them are the launch."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.manifests.deployment import Launch
from penstock.manifests.shell.scope import Scope
from penstock.manifests.shell.text import Text


class How(StrEnum):
    EXEC = "exec"
    BACKGROUND = "background"
    FOREGROUND = "foreground"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    argv: tuple[Text, ...]
    env: Mapping[str, Text]
    cwd: Text | None
    files: Mapping[str, Text]
    lost: Mapping[str, str]
    notes: tuple[str, ...]
    is_conditional: bool
    how: How

    @property
    def is_dynamo(self) -> bool:
        words = [str(text) for text in self.argv]
        return any(
            flag == "-m" and module.startswith("dynamo.")
            for flag, module in itertools.pairwise(words)
        )


def candidate(argv: list[Text], scope: Scope, how: How) -> Candidate:
    return Candidate(
        argv=tuple(argv),
        env=scope.environment(),
        cwd=scope.cwd,
        files=dict(scope.files),
        lost=dict(scope.lost),
        notes=scope.notes,
        is_conditional=scope.is_conditional,
        how=how,
    )


# Tools that prepare a launch and exit; at the end of a script they are not the launch.
_TOOLS_NAMES = """
apt apt-get aws awk cat chmod chown cp curl cut date df dig dnf du envsubst find free getent git
grep gsutil head hf hostname huggingface-cli ibstat ibv_devinfo id ip jq kubectl ldconfig ln ls
lscpu lspci mkdir mktemp modprobe mount mv nc nproc nslookup numastat nvidia-smi pgrep ping pip
pip3 pkill ps rm rmdir rsync sed sleep sort stat sync sysctl tail tar tee timeout touch tr uname
unzip uv wc wget whoami xargs yq yum
"""
_TOOLS = frozenset(_TOOLS_NAMES.split())


def chosen(candidates: list[Candidate]) -> list[Candidate]:
    """Dynamo's processes if there are any, else those of `exec`, `&` and the last line."""
    dynamo = [c for c in candidates if c.is_dynamo]
    if dynamo:
        return dynamo
    rest = [c for c in candidates if posixpath.basename(str(c.argv[0])) not in _TOOLS]
    kept = [c for c in rest if c.how is not How.FOREGROUND]
    if rest and rest[-1].how is How.FOREGROUND:
        kept.append(rest[-1])
    return kept


def finished(chosen: Candidate, *, through_shell: bool) -> Launch:
    argv = tuple(str(text) for text in chosen.argv)
    reasons: dict[str, None] = {}
    for text in (*chosen.argv, *chosen.env.values(), chosen.cwd or Text()):
        reasons.update(dict.fromkeys(text.reasons))
    unknown_files: dict[str, str] = {}
    for path, why in _unknown_contents(chosen):
        if any(path in argument for argument in argv):
            unknown_files.setdefault(path, why)
            reasons[f"{path}: {why}"] = None
    return Launch(
        argv=argv,
        env={name: str(text) for name, text in chosen.env.items()},
        cwd=str(chosen.cwd) if chosen.cwd is not None else None,
        files={path: str(text) for path, text in chosen.files.items()},
        unknown_files=unknown_files,
        unresolved=tuple(dict.fromkeys((*reasons, *chosen.notes))),
        is_conditional=chosen.is_conditional,
        shell=through_shell,
    )


def _unknown_contents(chosen: Candidate) -> Iterator[tuple[str, str]]:
    """(path, reason) of the files whose content, or part of it, only the cluster knows."""
    for path, content in chosen.files.items():
        yield from ((path, f"contains {why}") for why in content.reasons)
    yield from chosen.lost.items()
