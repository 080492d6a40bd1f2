"""The random weights: the same architecture and seed give the same values on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from penstock.tiny_model.architectures import Architecture, Tensor

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
