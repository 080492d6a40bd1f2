"""The files that git tracks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tracked(pattern: str = "*") -> list[str]:
    """Paths from the top level. The calling test is skipped where there is no git checkout."""
    done = subprocess.run(
        ["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return done.stdout.splitlines()
