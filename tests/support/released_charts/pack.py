"""Stores the chart and the graphs of a commit, so that tests can install releases of that version.

    python -m tests.support.released_charts.pack 75877ce

Writes `COMMIT.tar.xz`. Equal commits give equal bytes.
"""

from __future__ import annotations

import io
import lzma
import subprocess
import sys
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
STORED = ("helm/penstock", "dynamo_graphs")


def pack(commit: str) -> Path:
    """The archive of the commit's chart and graphs."""
    archive = FOLDER / f"{commit}.tar.xz"
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, *STORED],
        cwd=FOLDER.parents[2],
        capture_output=True,
        check=True,
    )
    archive.write_bytes(lzma.compress(done.stdout, preset=9))
    return archive


def unpack(commit: str, folder: Path) -> Path:
    """Extract the archive of the commit into ``folder``."""
    content = lzma.decompress((FOLDER / f"{commit}.tar.xz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
    return folder


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(pack(name))
