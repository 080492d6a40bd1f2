"""Draw the weights and write the model folder; the same name and seed give the same bytes."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from penstock.errors import InputError, Problem
from penstock.tiny_model.architectures import ARCHITECTURES, Architecture, Tensor
from penstock.tokenizer import FOLDER as TOKENIZER

MADE_BY = "penstock_tiny_model"  # key in config.json: which architecture and seed
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def write(folder: Path, architecture: str = "gpt-oss", seed: int = 0) -> bool:
    """Write the model ``architecture`` to ``folder``; False when that very model is there already.

    InputError when something else is there: nothing is overwritten.
    """
    made_by = {"architecture": architecture, "seed": seed}
    if _is_made_by(folder, made_by):
        return False
    draft = folder.with_name(f".{folder.name}.penstock")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(0, "something else is there")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _write(draft, ARCHITECTURES[architecture], made_by)
        draft.replace(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise InputError(
            Problem(
                file=str(folder),
                message=f"the model cannot be written: {error.strerror}",
                fix="name a folder that does not exist yet",
            )
        ) from None
    return True


def _is_made_by(folder: Path, made_by: dict[str, object]) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get(MADE_BY) == made_by


def _write(folder: Path, architecture: Architecture, made_by: dict[str, object]) -> None:
    draws = _Draws(int(str(made_by["seed"])))
    tensors = {tensor.name: draws.tensor(tensor) for tensor in architecture.tensors}
    weights = folder / "model.safetensors"
    save_file(tensors, weights, {"format": "pt"})
    weights.chmod(0o644)
    for name in TOKENIZER_FILES:
        shutil.copyfile(TOKENIZER / name, folder / name)
    config = {**architecture.config, MADE_BY: made_by}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


class _Draws:
    """Uniform noise from Philox's raw words, which numpy promises never to change; what it makes of
    them for a normal distribution it may."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(seed)

    def tensor(self, tensor: Tensor) -> NDArray[np.float32]:
        words = self._words.random_raw(math.prod(tensor.shape))
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = tensor.mean + (2 * uniform - 1) * math.sqrt(3) * tensor.std
        return _bfloat16(values).reshape(tensor.shape)


def _bfloat16(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The nearest bfloat16 values, as float32: an engine has the same weights in either type."""
    bits = values.astype(np.float32).view(np.uint32)
    to_even = (bits >> 16) & 1
    rounded: NDArray[np.float32] = ((bits + 0x7FFF + to_even) & 0xFFFF0000).view(np.float32)
    return rounded
