"""Convert `config.json` to a `ModelShape`: count parameters, then bytes by quantization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.models.shape import BYTES, WEIGHT_BITS, ModelShape, Parts

Config = Mapping[str, Any]

# Model types whose layers have K and V heads, followed by one MLP (DENSE) or experts (MOE).
DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "granite", "exaone4")
MOE = ("gpt_oss", "mixtral", "qwen2_moe", "qwen3_moe")
MLA = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2")


class UnknownShapeError(Exception):
    """The model type is not supported, or there is no config."""


class MissingConfigError(UnknownShapeError):
    """There is no config."""


class BrokenConfigError(UnknownShapeError):
    """The config cannot be read, or a required number is missing."""


def shape_of(config: Config, name: str, checkpoint_bytes: int | None = None) -> ModelShape:
    """The shape of ``config``; ``checkpoint_bytes`` is the size in its index, if known.

    Raises UnknownShapeError with the reason if the model type is not supported.
    """
    config = {**config, **config.get("text_config", {})}
    kind = str(config.get("model_type", ""))
    if kind not in (*DENSE, *MOE, *MLA):
        known = ", ".join((*DENSE, *MOE, *MLA))
        raise UnknownShapeError(f"model_type {kind!r} is not supported; supported: {known}")
    try:
        return _shape(config, kind, name, checkpoint_bytes)
    except KeyError as error:
        raise BrokenConfigError(f"config.json has no {error.args[0]}") from None
    except (TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise BrokenConfigError(f"config.json is invalid: {error}") from None


def _required(config: Config, key: str) -> int:
    """A required integer above 0; KeyError if it is missing."""
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{key} must be an integer above 0, got {value!r}")
    return value


def _optional(config: Config, key: str, otherwise: int = 0) -> int:
    """An integer above 0; ``otherwise`` if the key is missing, null or 0."""
    return _required(config, key) if config.get(key) else otherwise


def _shape(config: Config, kind: str, name: str, checkpoint_bytes: int | None) -> ModelShape:
    layers, heads = _required(config, "num_hidden_layers"), _required(config, "num_attention_heads")
    hidden = _required(config, "hidden_size")
    kv_heads = _optional(config, "num_key_value_heads", heads)
    head_dim = _optional(config, "head_dim", hidden // heads)
    is_mla = kind in MLA
    latent = (
        _required(config, "kv_lora_rank") + _required(config, "qk_rope_head_dim") if is_mla else 0
    )
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    counts = _Counts(config, kind, layers, hidden, heads, kv_heads, head_dim)
    quantization = quantization_of(config)
    parts = _bytes(counts, quantization, BYTES.get(dtype, 2), _quantized(config, kind))
    if checkpoint_bytes:
        parts = _scaled(parts, checkpoint_bytes)
    return ModelShape(
        name=name,
        kind=kind,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=1 if is_mla else kv_heads,
        head_dim=head_dim,
        kv_values=latent or 2 * kv_heads * head_dim,
        windows=windows_of(config, layers),
        vocabulary=_required(config, "vocab_size"),
        positions=positions_of(config),
        experts=counts.experts,
        experts_per_token=_optional(config, "num_experts_per_tok")
        or _optional(config, "experts_per_token"),
        dtype=dtype,
        quantization=quantization,
        parts=parts,
        is_mla=is_mla,
        is_exact=checkpoint_bytes is not None,
        method=_method(config),
        kv_dtype=_kv_dtype(config),
    )


# RoPE scaling types for which max_position_embeddings already includes the scaling
# (vllm/config/model.py 0.31.0).
STRETCHED = ("longrope", "su", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


def positions_of(config: Config) -> int:
    """The longest sequence: the positions, times the RoPE factor if they do not include it."""
    positions = _optional(config, "max_position_embeddings")
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(scaling, Mapping):
        return positions
    kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
    if kind in (None, *STRETCHED) or "original_max_position_embeddings" in scaling:
        return positions
    return int(positions * float(factor)) if factor else positions


def windows_of(config: Config, layers: int) -> tuple[int | None, ...]:
    """The sliding window of each layer in tokens, None for full attention."""
    slides = config.get("use_sliding_window") is not False
    window = _optional(config, "sliding_window") if slides else 0
    kinds = config.get("layer_types") or (
        ["full_attention"] * layers if not window or "layer_types" in config else None
    )
    if kinds is None and config.get("model_type") == "gemma2":
        return tuple(None if layer % 2 else window for layer in range(layers))
    if kinds is None:  # every layer slides: Mistral
        return (window,) * layers
    if len(kinds) != layers:
        raise ValueError(f"layer_types has {len(kinds)} entries for {layers} layers")
    return tuple(window if k == "sliding_attention" and window else None for k in kinds)


def quantization_of(config: Config) -> str:
    """mxfp4, nvfp4, fp8, awq, gptq, or none."""
    section, method = config.get("quantization_config") or {}, _method(config)
    if method in ("compressed-tensors", "modelopt"):
        text = str(section).lower()
        return "nvfp4" if "nvfp4" in text or "'num_bits': 4" in text else "fp8"
    return method if method in WEIGHT_BITS else "none" if method == "none" else "fp8"


def _method(config: Config) -> str:
    section = config.get("quantization_config") or {}
    return str(section.get("quant_method", "none")).lower()


def _kv_dtype(config: Config) -> str | None:
    """The KV cache type in the section of ModelOpt or compressed-tensors, if it is set."""
    outer = config.get("quantization_config") or {}
    inner = outer.get("quantization")
    sections = (inner, outer) if isinstance(inner, Mapping) else (outer,)
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    scheme = next((part[key] for key in keys for part in sections if part.get(key)), None)
    if isinstance(scheme, Mapping):
        bits = scheme.get("num_bits") if scheme.get("type") == "float" else None
        return {8: "fp8", 4: "nvfp4"}.get(bits) if isinstance(bits, int) else None
    name = str(scheme).lower()
    return name if name in ("fp8", "nvfp4") else None


def _quantized(config: Config, kind: str) -> frozenset[str]:
    """The quantized parts; gpt-oss quantizes only the experts (MXFP4)."""
    if kind == "gpt_oss":
        return frozenset({"experts"})
    ignored = str((config.get("quantization_config") or {}).get("ignore", ""))
    covered = {"dense", "experts"}
    return frozenset(covered if "self_attn" in ignored else covered | {"attention"})


@dataclass(frozen=True)
class _Counts:
    """Number of parameters in each part."""

    config: Config
    kind: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def experts(self) -> int:
        names = ("num_local_experts", "num_experts", "n_routed_experts")
        return next((_required(self.config, n) for n in names if self.config.get(n)), 0)

    @property
    def embedding(self) -> int:
        return _required(self.config, "vocab_size") * self.hidden

    @property
    def head(self) -> int:
        return 0 if self.config.get("tie_word_embeddings") else self.embedding

    @property
    def attention(self) -> int:
        if self.kind in MLA:
            return self.layers * self._latent_attention()
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.layers * (2 * self.hidden * q + 2 * self.hidden * kv)

    def _latent_attention(self) -> int:
        c = self.config
        nope, rope = _required(c, "qk_nope_head_dim"), _required(c, "qk_rope_head_dim")
        value, latent = _required(c, "v_head_dim"), _required(c, "kv_lora_rank")
        q_rank, q_out = _optional(c, "q_lora_rank"), self.heads * (nope + rope)
        query = q_rank * (self.hidden + q_out) if q_rank else self.hidden * q_out
        down = self.hidden * (latent + rope)
        return (
            query + down + latent * self.heads * (nope + value) + self.heads * value * self.hidden
        )

    @property
    def sparse_layers(self) -> int:
        if not self.experts:
            return 0
        first = _optional(self.config, "first_k_dense_replace")
        return self.layers - first - len(self.config.get("mlp_only_layers") or ())

    @property
    def dense(self) -> int:
        """Dense MLPs, shared experts and routers."""
        wide = 3 * self.hidden * _required(self.config, "intermediate_size")
        plain = (self.layers - self.sparse_layers) * wide
        shared = _optional(self.config, "n_shared_experts") * self._expert_width
        alone = _optional(self.config, "shared_expert_intermediate_size")
        router = self.experts * self.hidden
        return plain + self.sparse_layers * (3 * self.hidden * (shared + alone) + router)

    @property
    def _expert_width(self) -> int:
        width = _optional(self.config, "moe_intermediate_size")
        return width or _required(self.config, "intermediate_size")

    @property
    def expert_parameters(self) -> int:
        return self.sparse_layers * self.experts * 3 * self.hidden * self._expert_width


def _bytes(counts: _Counts, quantization: str, plain: float, quantized: frozenset[str]) -> Parts:
    packed = WEIGHT_BITS.get(quantization, 8.0 * plain) / 8

    def size(part: str, parameters: int) -> float:
        return parameters * (packed if part in quantized else plain)

    return Parts(
        embedding=size("embedding", counts.embedding),
        head=size("head", counts.head),
        attention=size("attention", counts.attention),
        dense=size("dense", counts.dense),
        experts=size("experts", counts.expert_parameters),
        norms=2.0 * counts.layers * counts.hidden * plain,
    )


def _scaled(parts: Parts, total: int) -> Parts:
    """The parts in the same proportions, with ``total`` bytes."""
    factor = total / parts.total
    return Parts(**{name: value * factor for name, value in vars(parts).items()})
