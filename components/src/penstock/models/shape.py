"""The shape of a decoder model: layers, heads, experts, bytes.

`models.config` builds it from a `config.json`; `memory` and `checks` compute with it. The state of
recurrent layers is that of `MambaStateShapeCalculator` in vLLM 0.31.0 (mamba_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.text.values import positive_int

# Bytes of one value, by the type names of engines and config.json.
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
    "mxfp8": 1 + 1 / 32,  # one scale for 32 values
    "nvfp4": 0.5 + 1 / 16,  # one scale for 16 values
}
# Bits of one weight with its share of the scales. MXFP4: an 8-bit scale for 32 weights. NVFP4: one
# for 16. AWQ and GPTQ: a 16-bit scale and a zero point for 128.
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
    """Bytes of the checkpoint's weights, all layers together, by how parallelism splits them."""

    # The input table.
    embedding: float
    # The output table; 0 if it is tied to the input table.
    head: float
    # The attention projections.
    attention: float
    # The MLP weights that every token uses: dense MLPs, shared experts and routers.
    dense: float
    # The experts, which expert parallelism splits.
    experts: float
    # The norms, which every rank holds completely.
    norms: float

    @property
    def total(self) -> float:
        return self.embedding + self.head + self.attention + self.dense + self.experts + self.norms


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    name: str
    # `model_type` of config.json.
    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    # Values that one layer caches for one token: 2 · kv_heads · head_dim, or under MLA the latent
    # and its rotary part.
    kv_values: int
    # The sliding window in tokens of each layer that keeps KV; None for full attention.
    windows: tuple[int | None, ...]
    vocabulary: int
    # Tokens of the longest sequence.
    positions: int
    experts: int
    experts_per_token: int
    dtype: str
    quantization: str
    parts: Parts
    # Multi-head latent attention: tensor parallelism does not split the KV cache.
    is_mla: bool = False
    # Whether the bytes come from the checkpoint's index and not from the shape.
    is_exact: bool = False
    # `quant_method` of config.json.
    method: str = "none"
    # The KV cache type that the checkpoint's quantization sets.
    kv_dtype: str | None = None

    @property
    def is_gpt_oss(self) -> bool:
        """Whether it is a model of the gpt-oss family."""
        return self.kind == "gpt_oss"

    @property
    def full_layers(self) -> int:
        """Number of layers without a sliding window."""
        return sum(window is None for window in self.windows)

    def quantized_at_load(self, quantization: str) -> ModelShape:
        """An unquantized model with the weights of its layers in a format of `WEIGHT_BITS`."""
        factor = WEIGHT_BITS[quantization] / 8 / BYTES.get(self.dtype, 2)
        attention, dense = self.parts.attention * factor, self.parts.dense * factor
        experts = self.parts.experts * factor
        parts = replace(self.parts, attention=attention, dense=dense, experts=experts)
        return replace(self, parts=parts, quantization=f"{quantization} at load")

    def value_bytes(self, kv_dtype: str | None) -> float | None:
        """Bytes of one cached value, None if unknown; ``kv_dtype`` None means the weights' type."""
        return BYTES.get(self.dtype if kv_dtype in (None, "auto") else str(kv_dtype))

    def kv_bytes_per_token(self, kv_dtype: str | None = None) -> int | None:
        """Bytes of one token in all layers; sliding layers count like full ones."""
        size = self.value_bytes(kv_dtype)
        return None if size is None else round(len(self.windows) * self.kv_values * size)

    def kv_bytes(self, tokens: int, block_size: int, kv_dtype: str | None) -> int | None:
        """Bytes of the blocks that hold ``tokens``; None for a type of unknown size.

        A sliding layer needs only the blocks in the window of the next token.
        """
        size = self.value_bytes(kv_dtype)
        if size is None:
            return None
        blocks = sum(_blocks(tokens, window, block_size) for window in self.windows)
        return round(blocks * self.kv_values * block_size * size)


def _blocks(tokens: int, window: int | None, block_size: int) -> int:
    first = 0 if window is None else max(0, tokens - window + 1)
    return -(-tokens // block_size) - first // block_size


Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecurrentState:
    # Channels of the convolution that tensor parallelism splits, and positions that it keeps.
    conv_channels: int
    conv_length: int
    # Heads that tensor parallelism splits, and values of each head's state.
    heads: int
    head_values: int
    # Bytes of one value.
    conv_bytes: int
    head_bytes: int

    def page_bytes(self, tp: int) -> int | None:
        """Bytes of one layer's state on one GPU; None if the heads cannot be split."""
        if self.heads % tp or self.conv_channels % tp:
            return None
        conv = self.conv_channels // tp * self.conv_length * self.conv_bytes
        return conv + self.heads // tp * self.head_values * self.head_bytes


def recurrent_state(config: Config, kind: str) -> RecurrentState | None:
    """Of a gated delta net (Qwen3.5, Qwen3-Next); None for other layers."""
    if not kind.startswith(("qwen3_5", "qwen3_next")):
        return None
    names = ("key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads")
    sizes = [positive_int(config.get(f"linear_{name}")) for name in names]
    kernel = positive_int(config.get("linear_conv_kernel_dim"))
    if kernel is None or any(size is None for size in sizes):
        return None
    key, value, key_heads, value_heads = (size or 0 for size in sizes)
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    plain = int(BYTES.get(dtype, 2))
    state = config.get("mamba_ssm_dtype")
    return RecurrentState(
        conv_channels=2 * key * key_heads + value * value_heads,
        conv_length=kernel - 1,
        heads=value_heads,
        head_values=key * value,
        conv_bytes=plain,
        head_bytes=int(BYTES.get(str(state), plain)),
    )
