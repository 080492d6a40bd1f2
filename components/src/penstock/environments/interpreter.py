"""What an environment needs of a machine: its platform, and a version of Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.errors import MissingToolError

# Environment of an engine for GPUs → the Python of its images. TensorRT-LLM names Python 3.10 and
# 3.12; one of its dependencies has no wheel for 3.13.
GPU_ENGINES = {"trtllm": "3.12", "vllm": "3.12", "sglang": "3.12"}
MACHINES = ("x86_64", "aarch64")
# Environment → its version of Python. agentperf-local needs at least 3.12.
PYTHON = {**GPU_ENGINES, "agentperf": "3.12"}
OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def require_platform(name: str, system: str, machine: str) -> None:
    """``system`` and ``machine`` as in module `platform`. MissingToolError where environment
    ``name`` has no packages."""
    if name not in GPU_ENGINES or (system == "Linux" and machine in MACHINES):
        return
    raise MissingToolError(
        f"its packages exist for Linux on {' and '.join(MACHINES)}, and this machine "
        f"is {system} on {machine}",
        place=name,
        fix="Run the graph here with `--engine mocker`.",
    )


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
