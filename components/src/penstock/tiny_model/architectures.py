"""The tiny models: `config.json` and every tensor, with the names that transformers uses.

Standard deviations are chosen so that each part of the prompt changes the output and the two best
tokens are far apart (the end-to-end tests measure both): a wrong KV block changes the next tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VOCABULARY = 4096  # the packaged tokenizer's
HIDDEN = 256
LAYERS = 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
INTERMEDIATE = 256
EXPERTS, EXPERTS_PER_TOKEN = 8, 2
SLIDING_WINDOW = 128  # gpt-oss's window; prompts of a few hundred tokens are longer
CONTEXT = 131072
TRAINED_CONTEXT = 4096  # YaRN stretches it to CONTEXT
BIAS_STD = 0.1
NORM_STD = 0.1
SINK_STD = 1.0
ROUTER_STD = 2.0  # times 1/sqrt(hidden), so that experts differ clearly
LOGIT_STD = 4.0  # the best token leads by tenths; float32 noise is millionths


@dataclass(frozen=True)
class Tensor:
    """One tensor: values are ``mean`` plus noise of standard deviation ``std``."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", (outputs, inputs), inputs**-0.5)
    if bias:
        yield Tensor(f"{name}.bias", (outputs,), BIAS_STD)


def _norm(name: str) -> Tensor:
    return Tensor(f"{name}.weight", (HIDDEN,), NORM_STD, mean=1.0)


def _attention(layer: str, bias: bool) -> Iterator[Tensor]:
    for projection, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        yield from _linear(f"{layer}.self_attn.{projection}_proj", heads * HEAD_DIM, HIDDEN, bias)
    yield from _linear(f"{layer}.self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM, bias)


def _experts(layer: str) -> Iterator[Tensor]:
    yield Tensor(f"{layer}.mlp.router.weight", (EXPERTS, HIDDEN), ROUTER_STD * HIDDEN**-0.5)
    yield Tensor(f"{layer}.mlp.router.bias", (EXPERTS,), BIAS_STD)
    experts = f"{layer}.mlp.experts"
    up, down = (EXPERTS, HIDDEN, 2 * INTERMEDIATE), (EXPERTS, INTERMEDIATE, HIDDEN)
    yield Tensor(f"{experts}.gate_up_proj", up, HIDDEN**-0.5)
    yield Tensor(f"{experts}.gate_up_proj_bias", (EXPERTS, 2 * INTERMEDIATE), BIAS_STD)
    yield Tensor(f"{experts}.down_proj", down, INTERMEDIATE**-0.5)
    yield Tensor(f"{experts}.down_proj_bias", (EXPERTS, HIDDEN), BIAS_STD)


def _dense(layer: str) -> Iterator[Tensor]:
    yield from _linear(f"{layer}.mlp.gate_proj", INTERMEDIATE, HIDDEN, bias=False)
    yield from _linear(f"{layer}.mlp.up_proj", INTERMEDIATE, HIDDEN, bias=False)
    yield from _linear(f"{layer}.mlp.down_proj", HIDDEN, INTERMEDIATE, bias=False)


def _tensors(gpt_oss: bool) -> Iterator[Tensor]:
    yield Tensor("model.embed_tokens.weight", (VOCABULARY, HIDDEN), 1.0)
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        yield _norm(f"{layer}.input_layernorm")
        yield from _attention(layer, bias=gpt_oss)
        if gpt_oss:
            yield Tensor(f"{layer}.self_attn.sinks", (HEADS,), SINK_STD)
        yield _norm(f"{layer}.post_attention_layernorm")
        yield from _experts(layer) if gpt_oss else _dense(layer)
    yield _norm("model.norm")
    yield Tensor("lm_head.weight", (VOCABULARY, HIDDEN), LOGIT_STD * HIDDEN**-0.5)


COMMON = {
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS_PER_TOKEN,
    "experts_per_token": EXPERTS_PER_TOKEN,
    "swiglu_limit": 7.0,
    "sliding_window": SLIDING_WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
    "initial_context_length": TRAINED_CONTEXT,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": CONTEXT / TRAINED_CONTEXT,
        "original_max_position_embeddings": TRAINED_CONTEXT,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 500000.0,
}


@dataclass(frozen=True)
class Architecture:
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


ARCHITECTURES = {
    "gpt-oss": Architecture(GPT_OSS | COMMON, tuple(_tensors(gpt_oss=True))),
    "llama": Architecture(LLAMA | COMMON, tuple(_tensors(gpt_oss=False))),
}
