"""Runs a script under the real bash with a fake python3 that writes down how it was called."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.manifests import shell

# Each process writes a file of its own, so that background processes do not mix.
FAKE = """#!/bin/sh
out="$BASH_RUNNER_OUT/$$"
{ printf '%s\\0' "$PWD"; for a in python3 "$@"; do printf '%s\\0' "$a"; done; } > "$out.argv"
env -0 > "$out.env"
"""
IGNORED = frozenset({"BASH_RUNNER_OUT", "PATH", "PWD", "OLDPWD", "SHLVL", "_"})


@dataclass(frozen=True)
class Call:
    """One process: its argv, the variables of its environment, its directory."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str


def really(script: str, env: Mapping[str, str], directory: Path) -> list[Call]:
    """What bash starts, sorted."""
    tools, out, work = (directory / name for name in ("bin", "out", "work"))
    for path in (tools, out, work):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    fake = tools / "python3"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    subprocess.run(
        ["bash", "-c", script],
        env={**env, "PATH": f"{tools}:{os.environ['PATH']}", "BASH_RUNNER_OUT": str(out)},
        cwd=work,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    return sorted((_call(path) for path in out.glob("*.argv")), key=repr)


def _call(path: Path) -> Call:
    cwd, *argv = path.read_bytes().decode().split("\0")[:-1]
    entries = path.with_suffix(".env").read_bytes().decode().split("\0")[:-1]
    env = dict(entry.partition("=")[::2] for entry in entries)
    return Call(tuple(argv), _kept(env), cwd)


def resolved(script: str, env: Mapping[str, str], directory: Path) -> list[Call]:
    """What penstock finds in the same script, sorted; unresolved parts fail the comparison."""
    surroundings = shell.Context(env=env, cwd=str(directory / "work"))
    processes = shell.start(("bash", "-c", script), surroundings)
    for process in processes:
        assert process.unresolved == (), process.unresolved
    calls = (Call(p.argv, _kept(p.env), p.cwd or "") for p in processes)
    return sorted(calls, key=repr)


def _kept(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in env.items() if name not in IGNORED))
