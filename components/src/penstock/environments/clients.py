"""The environment `clients`: npm installs openai-node next to the Python clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from penstock.errors import MissingToolError, Problem

NAME = "clients"
# Version 7 needs Node 22; Debian 12's and 13's is 18 or 20.
NODE_PACKAGE = "openai@6.49.0"
NODE_FOLDER = "node"


def install_node_client(environment: Path) -> None:
    """Install openai-node into the environment's folder; without Node.js, print that it is left
    out. MissingToolError when npm fails."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print(
            "clients: node and npm are not installed, so openai-node is left out. To add it, "
            "install them, then run `penstock tools env remove clients` and "
            "`penstock tools env install "
            "clients`.",
            file=sys.stderr,
        )
        return
    folder = environment / NODE_FOLDER
    folder.mkdir(exist_ok=True)
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
    command += ["--ignore-scripts", "--loglevel", "error", NODE_PACKAGE]
    done = subprocess.run(command, stdout=sys.stderr, cwd=folder, check=False)
    if done.returncode != 0:
        raise MissingToolError(
            Problem(
                place=NAME,
                message=f"npm install {NODE_PACKAGE} failed with exit code {done.returncode}",
                fix="Read its output above. The npm registry must be reachable.",
            )
        )
