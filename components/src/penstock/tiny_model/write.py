"""Draw the weights and write the model folder; the same name and seed give the same bytes."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
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
    target = folder.resolve()
    if _is_made_by(target, made_by):
        return False
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileExistsError(0, "something else is there, or that model in pieces")
        target.parent.mkdir(parents=True, exist_ok=True)
        # A draft of its own: two may write at once.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".penstock-") as draft:
            made = Path(draft) / "model"
            made.mkdir()
            _write(made, ARCHITECTURES[architecture], made_by)
            made.replace(target)
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            Problem(
                file=str(folder),
                message=f"the model cannot be written: {why}",
                fix="name a folder that does not exist yet",
            )
        ) from None
    return True


def _is_made_by(folder: Path, made_by: dict[str, object]) -> bool:
    """Whether the whole of that model is there."""
    architecture = ARCHITECTURES[str(made_by["architecture"])]
    names = {tensor.name for tensor in architecture.tensors}
    try:
        config = json.loads((folder / "config.json").read_text())
        with safe_open(folder / "model.safetensors", "numpy") as weights:
            whole = set(weights.keys()) == names
    except (OSError, ValueError, SafetensorError):
        return False
    there = all((folder / name).exists() for name in TOKENIZER_FILES)
    return whole and there and isinstance(config, dict) and config.get(MADE_BY) == made_by


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
