"""The files that git tracks."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(pattern: str = "*") -> list[str]:
    """Paths from the top level."""
    command = ["git", "ls-files", pattern]
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
