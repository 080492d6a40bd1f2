"""Inspect this machine: GPUs, engine environments, model files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.environments import environments_root, is_installed
from penstock.environments.dynamo import dynamo_python
from penstock.environments.harmony import vocabulary
from penstock.environments.packaged_models import packaged_model
from penstock.local import cpu_engine, llamacpp_engine
from penstock.local.gpus.gpu import Inventory
from penstock.local.gpus.nvml import read_this_machine
from penstock.manifests.deployment import Engine


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What this machine can run."""

    gpus: int
    """GPUs that this process may use."""
    no_gpu: str = "no GPU on this machine"
    """Why there are none, if there are none."""
    read_gpus: Callable[[], Inventory] = Inventory
    """Reads the GPUs again: their memory is used and freed while penstock runs."""
    python: str = sys.executable
    """With Dynamo, its router and its mocker."""
    interpreters: Mapping[str, str] = field(default_factory=dict)
    """Environment name → its Python, for each engine that this machine can run: `vllm-cpu`,
    `llamacpp`, and with a GPU the engine's own environment."""
    environments: Path = Path()
    """Folder of the environments."""
    harmony_vocabulary: Path | None = None
    """Folder with the vocabulary; None when it is not installed."""


def inspect_machine() -> Machine:
    """MissingToolError if Dynamo is not installed."""
    root = environments_root()
    inventory = read_this_machine()
    names = [cpu_engine.ENVIRONMENT, llamacpp_engine.ENVIRONMENT]
    if inventory.gpus:
        names += [e.value for e in Engine if e not in (Engine.MOCKER, Engine.LLAMACPP)]
    usable = [name for name in names if is_installed(root / name)]
    return Machine(
        gpus=len(inventory.gpus),
        no_gpu=inventory.problem or Machine.no_gpu,
        read_gpus=read_this_machine,
        python=dynamo_python(),
        interpreters={name: str(root / name / "bin" / "python") for name in usable},
        environments=root,
        harmony_vocabulary=vocabulary(),
    )


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
