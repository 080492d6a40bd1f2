"""The configuration and the model of penstock's own llama.cpp worker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.environments.packaged_models import packaged_ids
from penstock.manifests.deployment import Engine, KnownConfig
from penstock.serving.worker import Worker

if TYPE_CHECKING:
    from penstock.llamacpp.config import InvalidOption

GGUF = b"GGUF"
NO_GGUF = "is not a GGUF file"


def invalid_llamacpp_options(worker: Worker) -> tuple[InvalidOption, ...]:
    """The options of the engine's file that the llama.cpp worker does not accept."""
    config = worker.component.engine_config
    if worker.engine is not Engine.LLAMACPP or not isinstance(config, KnownConfig):
        return ()
    from penstock.llamacpp.config import invalid_options  # it imports pydantic

    return tuple(invalid_options(config.values))


def gguf_problem(model: object) -> str | None:
    """Why llama.cpp cannot load a model on this machine; None if it can, or without a model."""
    if model is None or str(model) in packaged_ids("gguf"):
        return None
    path = Path(str(model)).expanduser()
    if not path.is_file():
        return f"is {'a folder' if path.is_dir() else 'no file'} on this machine"
    try:
        with path.open("rb") as stream:
            return None if stream.read(len(GGUF)) == GGUF else NO_GGUF
    except OSError as error:
        return f"cannot be read: {error.strerror}"
