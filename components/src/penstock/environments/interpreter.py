"""Which Python an environment gets: penstock's own, or another version that its packages need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.environments import gpu_engines
from penstock.errors import MissingToolError

# Environment → its version of Python. agentperf-local needs at least 3.12.
PYTHON = {**gpu_engines.PYTHON, "agentperf": "3.12"}
OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def base_python(name: str, current: str = OWN_PYTHON) -> str:
    """What `uv venv --python` gets for environment ``name``: an executable, or a version, which uv
    finds or downloads.

    pyenv's versions are looked up here: uv stops at pyenv's shim of a version that is installed but
    not active, because the shim fails. ``own``: penstock's version.
    """
    needed = PYTHON.get(name, current)
    if needed == current:
        return sys.executable
    executables = sorted(_pyenv().glob(f"versions/{needed}.*/bin/python{needed}"))
    return str(executables[-1]) if executables else needed


def require_python(name: str, version: str) -> None:
    """pip installs into penstock's own Python, ``version``. MissingToolError if environment
    ``name`` needs another."""
    needed = PYTHON.get(name, version)
    if needed == version:
        return
    raise MissingToolError(
        f"it needs Python {needed}, and penstock runs on {version}",
        place=name,
        fix=f"Install uv, which finds or downloads Python {needed}, and try again.",
    )


def missing_python_fix(name: str, current: str = OWN_PYTHON) -> str:
    """The fix of a message if uv makes no environment ``name``; empty if it needs no other
    Python."""
    needed = PYTHON.get(name, current)
    if needed == current:
        return ""
    return f"Install Python {needed}, for example with `uv python install {needed}`."


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
