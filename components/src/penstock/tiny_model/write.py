"""Write the model folder. The same architecture and seed give the same bytes."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from penstock.errors import InputError
from penstock.files import write_file
from penstock.tiny_model.architectures import ARCHITECTURES, Architecture, Tensor
from penstock.tokenizer import FOLDER as TOKENIZER

MADE_BY = "penstock_tiny_model"  # key in config.json with the architecture and the seed
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def write(folder: Path, architecture: str = "gpt-oss", seed: int = 0) -> bool:
    """Write the model to ``folder``; return False when the same model already exists.

    InputError when the folder contains anything else: nothing is overwritten.
    """
    made_by = {"architecture": architecture, "seed": seed}
    target = folder.resolve()
    if _is_made_by(target, made_by):
        return False
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileExistsError(0, "something else or an incomplete model is already there")
        target.parent.mkdir(parents=True, exist_ok=True)
        # A separate draft: two processes may write at once.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".penstock-") as draft:
            model = Path(draft) / "model"
            model.mkdir()
            _write(model, ARCHITECTURES[architecture], made_by)
            model.replace(target)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"the model cannot be written: {reason}",
            file=str(folder),
            fix="Name a folder that does not exist, where you may write.",
        ) from None
    return True


def _is_made_by(folder: Path, made_by: dict[str, object]) -> bool:
    """Whether the folder has the complete model."""
    architecture = ARCHITECTURES[str(made_by["architecture"])]
    names = {tensor.name for tensor in architecture.tensors}
    try:
        config = json.loads((folder / "config.json").read_text())
        with safe_open(folder / "model.safetensors", "numpy") as weights:
            has_all_tensors = set(weights.keys()) == names
    except (OSError, ValueError, SafetensorError):
        return False
    has_all_files = all((folder / name).exists() for name in TOKENIZER_FILES)
    is_same_model = isinstance(config, dict) and config.get(MADE_BY) == made_by
    return has_all_tensors and has_all_files and is_same_model


def _write(folder: Path, architecture: Architecture, made_by: dict[str, object]) -> None:
    tensors = random_weights(architecture, int(str(made_by["seed"])))
    weights = folder / "model.safetensors"
    save_file(tensors, weights, {"format": "pt"})
    weights.chmod(0o644)
    for name in TOKENIZER_FILES:
        shutil.copyfile(TOKENIZER / name, folder / name)
    config = {**architecture.config, MADE_BY: made_by}
    write_file(folder / "config.json", json.dumps(config, indent=1) + "\n")


Weights = Mapping[str, NDArray[np.float32]]


def random_weights(architecture: Architecture, seed: int) -> dict[str, NDArray[np.float32]]:
    """Every tensor by its name in transformers."""
    noise = _Noise(seed)
    return {tensor.name: noise.tensor(tensor) for tensor in architecture.tensors}


class _Noise:
    """Uniform noise from Philox's raw output, which numpy guarantees to be stable; its normal
    distribution is not."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.Philox(seed)

    def tensor(self, tensor: Tensor) -> NDArray[np.float32]:
        words = self._words.random_raw(math.prod(tensor.shape))
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = tensor.mean + (2 * uniform - 1) * math.sqrt(3) * tensor.std
        return _bfloat16(values).reshape(tensor.shape)


def _bfloat16(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The nearest bfloat16 values as float32: an engine has the same weights in both types."""
    bits = values.astype(np.float32).view(np.uint32)
    to_even = (bits >> 16) & 1
    rounded: NDArray[np.float32] = ((bits + 0x7FFF + to_even) & 0xFFFF0000).view(np.float32)
    return rounded
