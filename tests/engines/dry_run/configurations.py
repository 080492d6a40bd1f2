"""Configurations for the tests of the engines' own code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from penstock.engines.dry_run.model_folders import folder_for
from penstock.engines.dry_run.protocol import Configuration, Hardware
from penstock.hardware import GPUS
from penstock.manifests.deployment import Engine, Launch

MODEL = "openai/gpt-oss-120b"


def configuration(
    flags: str,
    folder: Path,
    *,
    engine: Engine = Engine.VLLM,
    gpu: str = "h200",
    model: str = MODEL,
    env: Mapping[str, str] | None = None,
) -> Configuration:
    """A worker with ``flags`` in a pod with 8 GPUs; the model's folder is written below
    ``folder``."""
    model_folder = folder_for(model, folder)
    assert isinstance(model_folder, Path), model_folder
    named = GPUS[gpu]
    argv = ("python3", "-m", engine.module, "--model", model, *shlex.split(flags))
    return Configuration(
        launch=Launch(argv=argv, env=env or {}),
        hardware=Hardware(name=gpu, sm=named.sm, memory_gib=named.memory_gib, count=8),
        models={model: str(model_folder)},
    )
