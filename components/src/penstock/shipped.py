"""Files of the repository that the wheel carries under another name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def shipped(packaged: str, in_repository: str) -> Path:
    """The folder in the installed wheel, else in the checkout."""
    folder = files("penstock") / packaged
    return Path(str(folder)) if folder.is_dir() else CHECKOUT / in_repository
