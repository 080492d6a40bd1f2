"""KV bytes of a prompt, from the model's `config.json`: what a transfer must move."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True, kw_only=True)
class KvShape:
    """``windows`` holds an entry a layer: its sliding window in tokens, None for full attention."""

    windows: tuple[int | None, ...]
    kv_heads: int
    head_dim: int
    dtype: str  # the weights' type, which KV has unless the engine is told otherwise

    def bytes_of(self, tokens: int, block_size: int, dtype: str | None) -> int | None:
        """Bytes of the whole blocks that hold ``tokens`` (K and V, all layers); ``dtype`` None or
        auto: the weights'. None for a type of unknown size.

        A sliding layer needs only the blocks that its window reaches back to from the next token.
        """
        size = BYTES.get(self.dtype if dtype is None or dtype == "auto" else dtype)
        if size is None:
            return None
        values = 2 * self.kv_heads * self.head_dim * block_size
        blocks = sum(_blocks(tokens, window, block_size) for window in self.windows)
        return blocks * values * size


def _blocks(tokens: int, window: int | None, block_size: int) -> int:
    first = 0 if window is None else max(0, tokens - window + 1)
    return -(-tokens // block_size) - first // block_size


def read_shape(folder: Path) -> KvShape | None:
    """The shape from ``folder``/config.json; None where there is none or it says too little."""
    try:
        config: Mapping[str, Any] = json.loads((folder / "config.json").read_text())
        heads = int(config["num_attention_heads"])
        window = config.get("sliding_window")
        kinds = config.get("layer_types") or ["full_attention"] * int(config["num_hidden_layers"])
        return KvShape(
            windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
            dtype=str(config.get("dtype") or config.get("torch_dtype") or ""),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
