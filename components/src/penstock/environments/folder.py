"""Make and remove the folder of an environment. Interrupted commands can be repeated.

A record next to the folder contains its inode until the installation is complete, so that a
folder of the user is not mistaken for an unfinished one. Removal renames, then deletes.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from penstock.files import write_file


def begin(path: Path) -> None:
    """Make the empty folder, and record that its content is penstock's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir()
    write_file(_record(path), str(path.stat().st_ino))


def complete(path: Path) -> None:
    """Delete the record: from now on `pyvenv.cfg` identifies the environment."""
    _record(path).unlink(missing_ok=True)


def is_own(path: Path) -> bool:
    """Whether penstock made this folder: a complete environment, or an unfinished one."""
    if path.is_symlink() or not path.is_dir():
        return False
    return (path / "pyvenv.cfg").exists() or _is_recorded(path) or not any(path.iterdir())


def is_left_over(path: Path) -> bool:
    """Whether a removal of this environment was interrupted."""
    return _renamed(path).is_dir()


def delete(path: Path) -> None:
    """Delete the environment, and what an interrupted removal of it left. Raises OSError."""
    _delete_renamed(path)
    with contextlib.suppress(FileNotFoundError):
        path.rename(_renamed(path))  # at once: an interrupt from here on leaves no half of it
    _record(path).unlink(missing_ok=True)
    _delete_renamed(path)


def _delete_renamed(path: Path) -> None:
    if is_left_over(path):
        shutil.rmtree(_renamed(path))


def _is_recorded(path: Path) -> bool:
    try:
        return _record(path).read_text() == str(path.stat().st_ino)
    except OSError:
        return False


def _record(path: Path) -> Path:
    return path.with_name(f".{path.name}.penstock-unfinished")


def _renamed(path: Path) -> Path:
    return path.with_name(f".{path.name}.penstock-removed")
