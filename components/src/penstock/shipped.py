"""Files of the repository that the wheel carries under another name, and how messages name those
that it does not carry."""

from __future__ import annotations

import contextlib
from importlib.resources import files
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def shipped(packaged: str, in_repository: str) -> Path:
    """The folder in the installed wheel, else in the checkout."""
    folder = files("penstock") / packaged
    return Path(str(folder)) if folder.is_dir() else CHECKOUT / in_repository


def only_penstock(folder: Path) -> Path:
    """The folder, made if it is missing, for PYTHONPATH of another environment's Python: it has
    penstock and no other package of this environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "penstock").symlink_to(Path(__file__).parent)
    return folder


def page(name: str) -> str:
    """The page of `docs/` with this name, for messages: the wheel has no `docs/`."""
    return f"the page {name} of the documentation"


def in_repository(path: str) -> str:
    """A file of the repository that is not in the wheel, for messages."""
    return f"{path} in penstock's repository"
