"""A small file system of its own, which a test can fill."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

BLOCK = 4096  # bytes


@contextlib.contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path | None]:
    """A new file system of this size in ``folder``; None if this user may not mount one."""
    folder.mkdir(parents=True)
    options = ("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs")
    try:
        mounted = subprocess.run(["mount", *options, str(folder)], capture_output=True, timeout=10)
    except FileNotFoundError:
        yield None
        return
    if mounted.returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)


def fill(folder: Path) -> None:
    """Use all free space of the file system."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(BLOCK))
