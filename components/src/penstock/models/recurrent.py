"""The size of the state that recurrent layers keep for one sequence.

From `MambaStateShapeCalculator` in vllm/model_executor/layers/mamba/mamba_utils.py 0.31.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.models.shape import BYTES
from penstock.text.values import positive_int

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
