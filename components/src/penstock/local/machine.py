"""Inspect this machine: GPUs, engine environments, model files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.environments import environments_root, is_installed
from penstock.environments.harmony import vocabulary
from penstock.environments.packaged_models import packaged_model
from penstock.local import cpu_engine, llamacpp_engine
from penstock.manifests.deployment import Engine


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What this machine can run."""

    gpus: int
    python: str = sys.executable
    interpreters: Mapping[str, str] = field(default_factory=dict)
    """Environment name → its Python, for each engine that this machine can run: `vllm-cpu`,
    `llamacpp`, and
    with a GPU the engine's own environment."""
    environments: Path = Path()
    """Folder of the environments."""
    harmony_vocabulary: Path | None = None
    """Folder with the vocabulary; None when it is not installed."""


def inspect_machine() -> Machine:
    root = environments_root()
    gpus = _gpus()
    without_gpu = [cpu_engine.ENVIRONMENT, llamacpp_engine.ENVIRONMENT]
    names = [*without_gpu]
    if gpus:
        names += [engine.value for engine in Engine if engine is not Engine.MOCKER]
    paths = {name: root / name / "bin" / "python" for name in names}
    usable = {name: str(path) for name, path in paths.items() if path.exists()}
    for name in without_gpu:
        if not is_installed(root / name):
            usable.pop(name, None)
    return Machine(
        gpus=gpus, interpreters=usable, environments=root, harmony_vocabulary=vocabulary()
    )


def _gpus() -> int:
    """Number of NVIDIA GPUs that the driver lists; 0 without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listed = subprocess.run(
            [program, "-L"], check=False, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def model_folder(model: str) -> Path | None:
    """The local folder with the tokenizer of ``model`` (a path or a hub id), if there is one.

    A hub id is looked up among the packaged models, whose files are the same on every machine, then
    in the Hugging Face cache; nothing is downloaded.
    """
    if _has_tokenizer(path := Path(model).expanduser()):
        return path.absolute()  # the child runs in another folder
    if packaged := packaged_model(model, "safetensors"):
        return packaged
    hub = os.environ.get("HF_HUB_CACHE") or str(
        Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"
    )
    snapshots = Path(hub) / f"models--{model.replace('/', '--')}" / "snapshots"
    return next((p for p in sorted(snapshots.glob("*")) if _has_tokenizer(p)), None)


def _has_tokenizer(folder: Path) -> bool:
    return (folder / "config.json").exists() and any(
        (folder / name).exists() for name in ("tokenizer.json", "tiktoken.model")
    )
