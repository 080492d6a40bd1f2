"""The folder of the environments, and which of them are complete."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import MissingToolError

# Written last, with the exact packages: without it, an installation was interrupted.
STAMP = "installed.txt"


def environments_root() -> Path:
    """$PENSTOCK_ENVIRONMENTS, else a folder in the project that penstock runs from, else one in the
    XDG data folder."""
    root = os.environ.get("PENSTOCK_ENVIRONMENTS")
    if root:
        return Path(root).absolute()
    project = Path(__file__).resolve().parents[4]
    if (project / "pyproject.toml").exists():
        return project / ".penstock" / "environments"
    xdg = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(xdg) / "penstock" / "environments"


def is_installed(environment: Path) -> bool:
    """Whether the installation into this folder was finished."""
    return (environment / STAMP).exists()


def installed_python(name: str) -> Path | None:
    """The Python of an environment; None if it is not installed."""
    folder = environments_root() / name
    return folder / "bin" / "python" if is_installed(folder) else None


def require_python(name: str, missing: str, size: str) -> Path:
    """The Python of an environment; MissingToolError with ``missing`` if it is not installed.
    ``size``: of the installation."""
    python = installed_python(name)
    if python is None:
        fix = f"Run `penstock tools env install {name}` ({size}, once)."
        raise MissingToolError(missing, fix=fix)
    return python
