"""What config.json states about a model's layers, for models of every type.

`checks` compares it with what engines support. What the file does not state is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.models.config import positions_of
from penstock.models.known import exact_config, layers_config
from penstock.models.shape import RecurrentState, recurrent_state
from penstock.strict_yaml.loader import load_json
from penstock.text.values import positive_int

Config = Mapping[str, Any]

# Model types with recurrent layers (Mamba, gated delta net, Kimi delta attention) among attention
# layers: classes with IsHybrid in vllm/model_executor/models of 0.31.0.
RECURRENT = (
    *("nemotron_h", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear", "jamba"),
    *("bamba", "falcon_h1", "granitemoehybrid", "zamba2", "glm5_next_text", "lfm2", "lfm2_moe"),
)
# Model types that mix sliding-window and full layers whatever `layer_types` says.
WINDOWED = ("deepseek_v4", "deepseek_v41_text", "deepseek_ref", "mimo_v2_flash", "gpt_oss")
SINKS = ("gpt_oss", "mimo_v2_flash")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    # `model_type` of the language model.
    kind: str
    # The class that engines look up, the first of `architectures`; empty if unknown.
    architecture: str
    heads: int | None
    kv_heads: int | None
    # Of the full-attention layers, if they have another number than the sliding-window layers.
    global_kv_heads: int | None
    # Of all attention layers; some models have two kinds. Empty for MLA.
    head_sizes: tuple[int, ...]
    # Tokens of the longest sequence.
    positions: int | None
    experts: int
    # Intermediate size of one expert.
    expert_width: int | None
    # Intermediate size of the dense layers.
    dense_width: int | None
    is_mla: bool
    # Layers with a sliding window and layers without.
    has_windows: bool
    # Recurrent layers and attention layers.
    is_hybrid: bool
    # Whether attention has a sink, a learned value in addition to the scores.
    has_sinks: bool
    # Tokens whose keys the sparse-attention index pools; None without pooling.
    index_pool: int | None
    # `quant_method`: "none" if the weights are not quantized, None if unknown.
    quantization: str | None
    # Whether the experts are in NVFP4 although `quant_method` is that of the other layers.
    has_nvfp4_experts: bool
    # The block size of the weights' scales: (rows, columns).
    weight_block: tuple[int, int] | None
    # The type that the checkpoint's quantization sets for the KV cache.
    kv_dtype: str | None
    recurrent: RecurrentState | None

    @property
    def has_several_kv_layouts(self) -> bool:
        """Whether vLLM's hybrid KV cache manager has several groups of layers to manage."""
        return self.has_windows or self.is_hybrid


def facts_of(config: Config, *, is_exact: bool = True) -> ModelFacts:
    """``is_exact`` False: the quantization may be another than that of ``config``."""
    architecture = _architecture(config)  # the text's own section may name another
    text = config.get("text_config")
    config = {**config, **text} if isinstance(text, Mapping) else config
    kind = str(config.get("model_type", ""))
    section = config.get("quantization_config")
    section = section if isinstance(section, Mapping) and is_exact else {}
    heads = positive_int(config.get("num_attention_heads"))
    is_mla = bool(config.get("kv_lora_rank")) or kind == "glm5_next_text"
    expert_width = positive_int(config.get("moe_intermediate_size"))
    width = positive_int(config.get("intermediate_size"))
    experts = _experts(config)
    return ModelFacts(
        kind=kind,
        architecture=architecture,
        heads=heads,
        kv_heads=positive_int(config.get("num_key_value_heads")) or heads,
        global_kv_heads=positive_int(config.get("num_global_key_value_heads")),
        head_sizes=() if is_mla else _head_sizes(config, heads),
        positions=_positions(config),
        experts=experts,
        expert_width=(expert_width or width) if experts else None,
        dense_width=width if expert_width or not experts else None,
        is_mla=is_mla,
        has_windows=_has_windows(config, kind),
        is_hybrid=kind in RECURRENT or "linear_attention" in _layer_types(config),
        has_sinks=kind in SINKS,
        index_pool=positive_int(config.get("index_kpool")),
        quantization=str(section.get("quant_method", "none")).lower() if is_exact else None,
        has_nvfp4_experts=bool(experts) and _has_nvfp4_experts(section),
        weight_block=_weight_block(section),
        kv_dtype="fp8" if str(section.get("kv_cache_quant_algo")).upper() == "FP8" else None,
        recurrent=recurrent_state(config, kind),
    )


def _has_nvfp4_experts(section: Config) -> bool:
    """Whether ModelOpt has quantized only the experts of an FP8 checkpoint, as in NVIDIA's
    DeepSeek-V4: SGLang reads `moe_quant_algo` (configs/model_config.py 0.5.14)."""
    if str(section.get("moe_quant_algo", "")).upper() == "NVFP4":
        return True
    groups = section.get("config_groups")
    is_mixed = str(section.get("quant_algo", "")).upper() == "MIXED_PRECISION"
    return is_mixed and "'num_bits': 4" in str(groups)


def find_facts(name: str, *folders: Path) -> ModelFacts | None:
    """Of the model called ``name``: from the first folder with a config.json, or packaged."""
    for folder in folders:
        try:
            config = load_json((folder / "config.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return facts_of(config) if isinstance(config, Mapping) else None
    if (exact := exact_config(name)) is not None:
        return facts_of(exact)
    config = layers_config(name)
    return None if config is None else facts_of(config, is_exact=False)


def _architecture(config: Config) -> str:
    """The first architecture in config.json or in the packaged values, which have only this one."""
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else config.get("architecture")
    return first if isinstance(first, str) else ""


def _experts(config: Config) -> int:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return next((n for name in names if (n := positive_int(config.get(name)))), 0)


def _head_sizes(config: Config, heads: int | None) -> tuple[int, ...]:
    hidden = positive_int(config.get("hidden_size"))
    size = positive_int(config.get("head_dim")) or (hidden // heads if hidden and heads else None)
    sizes = {size, positive_int(config.get("global_head_dim"))}
    return tuple(sorted(size for size in sizes if size))


def _positions(config: Config) -> int | None:
    try:
        return positions_of(config) or None
    except (TypeError, ValueError):
        return None


def _layer_types(config: Config) -> frozenset[str]:
    types = config.get("layer_types")
    return frozenset(map(str, types)) if isinstance(types, list) else frozenset()


def _has_windows(config: Config, kind: str) -> bool:
    types = _layer_types(config)
    return kind in WINDOWED or {"sliding_attention", "full_attention"} <= types


def _weight_block(section: Mapping[str, Any]) -> tuple[int, int] | None:
    block = section.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and all(map(positive_int, block)):
        return int(block[0]), int(block[1])
    return None
