"""The shape of a decoder model: layers, heads, experts, bytes.

`models.config` makes it from a `config.json`; `memory` and `checks` do the arithmetic on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# Bytes of a value by the names that engines and config.json use.
BYTES = {
    "float32": 4,
    "float": 4,
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "fp16": 2,
    "half": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "int8": 1,
    "mxfp8": 1 + 1 / 32,  # a scale for each 32 values
    "nvfp4": 0.5 + 1 / 16,  # one for each 16
}
# Bits of one weight with its scales: MXFP4 has a scale of 8 bits for 32, NVFP4 one for 16, the
# 4-bit integer formats (AWQ, GPTQ) 16 bits and a zero for 128.
WEIGHT_BITS = {
    "mxfp4": 4 + 8 / 32,
    "nvfp4": 4 + 8 / 16,
    "fp8": 8.0,
    "mxfp8": 8 + 8 / 32,
    "awq": 4 + 24 / 128,
    "gptq": 4 + 24 / 128,
    "int8": 8.0,
}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Bytes of the checkpoint's weights by how parallelism splits them, all layers together.

    ``embedding`` is the input table, ``head`` the output one (0 where tied); ``attention`` its
    projections, ``dense`` what of the MLPs every token passes, ``experts`` what expert parallelism
    splits, ``norms`` what every rank holds whole.
    """

    embedding: float
    head: float
    attention: float
    dense: float
    experts: float
    norms: float

    @property
    def total(self) -> float:
        return self.embedding + self.head + self.attention + self.dense + self.experts + self.norms


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """``windows`` holds an entry a layer that keeps KV: its sliding window in tokens, or None.

    ``kv_values`` are the values that one such layer keeps for one token: 2 · kv_heads · head_dim,
    or the latent and its rotary part under MLA (then ``is_mla``, and tensor parallelism does not
    divide them). ``positions`` is the longest sequence that the config promises. ``is_exact``: the
    weights' bytes come from the checkpoint's index, not from the shape. ``kv_dtype`` is the type
    that the checkpoint's quantization sets for the cache, ``method`` the one that sets it.
    """

    name: str
    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_values: int
    windows: tuple[int | None, ...]
    vocabulary: int
    positions: int
    experts: int
    experts_per_token: int
    dtype: str
    quantization: str
    parts: Parts
    is_mla: bool = False
    is_exact: bool = False
    method: str = "none"
    kv_dtype: str | None = None

    @property
    def is_gpt_oss(self) -> bool:
        return self.kind == "gpt_oss"

    @property
    def full_layers(self) -> int:
        return sum(window is None for window in self.windows)

    def quantized_at_load(self, quantization: str) -> ModelShape:
        """With the weights of its layers in a format of `WEIGHT_BITS`; for a plain checkpoint."""
        factor = WEIGHT_BITS[quantization] / 8 / BYTES.get(self.dtype, 2)
        attention, dense = self.parts.attention * factor, self.parts.dense * factor
        experts = self.parts.experts * factor
        parts = replace(self.parts, attention=attention, dense=dense, experts=experts)
        return replace(self, parts=parts, quantization=f"{quantization} at load")

    def value_bytes(self, kv_dtype: str | None) -> float | None:
        """Bytes of one cached value; ``kv_dtype`` None or auto: the weights' type."""
        return BYTES.get(self.dtype if kv_dtype in (None, "auto") else str(kv_dtype))

    def kv_bytes_per_token(self, kv_dtype: str | None = None) -> int | None:
        """K and V of one token in all layers, sliding ones counted like full ones."""
        size = self.value_bytes(kv_dtype)
        return None if size is None else round(len(self.windows) * self.kv_values * size)

    def kv_bytes(self, tokens: int, block_size: int, kv_dtype: str | None) -> int | None:
        """Bytes of the whole blocks that hold ``tokens``; None for a type of unknown size.

        A sliding layer needs only the blocks that its window reaches back to from the next token.
        """
        size = self.value_bytes(kv_dtype)
        if size is None:
            return None
        blocks = sum(_blocks(tokens, window, block_size) for window in self.windows)
        return round(blocks * self.kv_values * block_size * size)


def _blocks(tokens: int, window: int | None, block_size: int) -> int:
    first = 0 if window is None else max(0, tokens - window + 1)
    return -(-tokens // block_size) - first // block_size
