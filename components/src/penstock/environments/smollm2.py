"""Converts the GGUF file in the environment smollm2 to safetensors, which vLLM and transformers
read. `install` calls it after the packages; `packaged_models.py` finds the result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.environments.packaged_models import MODEL_FOLDER, SMOLLM2_GGUF
from penstock.errors import MissingToolError, Problem

NAME = "smollm2"
CONVERTER = Path(__file__).with_name("convert_child.py")


def convert(environment: Path) -> None:
    """Write the model's folder; MissingToolError with the converter's error if that fails."""
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
            Problem(
                place=NAME,
                message=f"the model cannot be converted to safetensors: {reason}",
                fix=f"Free 600 MB of disk space and run `penstock tools env install {NAME}` again.",
            )
        )
