"""What other processes are, although they may end at any time."""

from __future__ import annotations

import psutil


def command_of(process: psutil.Process) -> list[str]:
    """The words of its command line; none if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
