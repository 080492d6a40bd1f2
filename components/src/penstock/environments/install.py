"""Make, list and remove environments; a half-made one is never found."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.environments.paths import environments_root
from penstock.errors import MissingToolError, Problem

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Environment:
    """``what`` is the first comment of its requirements file."""

    name: str
    what: str
    requirements: Path
    path: Path

    @property
    def state(self) -> str:
        return "installed" if (self.path / "installed.txt").exists() else "not installed"


def known() -> list[Environment]:
    root = environments_root()
    return [
        Environment(
            name=file.stem,
            what=file.read_text().splitlines()[0].lstrip("# "),
            requirements=file,
            path=root / file.stem,
        )
        for file in sorted(FOLDER.glob("*.txt"))
    ]


def require_name(name: str | None) -> Environment:
    names = [e.name for e in known()]
    found = next((e for e in known() if e.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name or "", names, n=1)
        raise MissingToolError(
            Problem(
                message=f"no environment is called {name!r}" if name else "which environment?",
                fix=f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}",
            )
        )
    return found


def install(environment: Environment) -> str:
    """Make it in a draft folder and move it into place when it is whole; idempotent."""
    wanted = environment.requirements.read_text()
    stamp = environment.path / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return f"{environment.name} is installed: {environment.path}"
    if environment.path.exists():
        shutil.rmtree(environment.path)
    environment.path.parent.mkdir(parents=True, exist_ok=True)
    _make(environment)
    stamp.write_text(wanted)
    return f"installed {environment.name}: {environment.path}"


def _make(environment: Environment) -> None:
    """With uv where it is, else with pip. The stamp comes last, so what fails here is not found."""
    uv = shutil.which("uv")
    python = environment.path / "bin" / "python"
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--python", sys.executable, str(environment.path)],
            [
                uv,
                "pip",
                "install",
                "--python",
                str(python),
                "-r",
                str(environment.requirements),
            ],
        ]
    else:
        commands = [
            [sys.executable, "-m", "venv", str(environment.path)],
            [str(python), "-m", "pip", "install", "-r", str(environment.requirements)],
        ]
    for command in commands:
        done = subprocess.run(command, env=_environ(), check=False)
        if done.returncode:
            shutil.rmtree(environment.path, ignore_errors=True)
            raise MissingToolError(
                Problem(
                    place=environment.name,
                    message=f"{Path(command[0]).name} {command[1]} ended with {done.returncode}",
                    fix="see its output above; the package index must be reachable",
                )
            )


def _environ() -> dict[str, str]:
    """Without the environment that penstock itself runs in, which uv would install into."""
    return {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}


def remove(environment: Environment) -> str:
    shutil.rmtree(environment.path, ignore_errors=True)
    return f"removed {environment.name}"
