"""The files that git tracks, and repositories that tests make."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(pattern: str = "*") -> list[str]:
    """Paths from the top level."""
    command = ["git", "ls-files", pattern]
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()


class Workplace:
    """A folder with the settings of another git user: none of this machine's."""

    def __init__(self, folder: Path, user: str, *dropped: str, **variables: str) -> None:
        self.folder = folder
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", *dropped))},
            **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull),
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), user),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "user@localhost"),
            **variables,
        }

    def run(self, *command: str | Path, code: int = 0) -> str:
        """What the command prints; fails with all of it."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr
