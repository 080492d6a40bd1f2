"""Converts a GGUF file with the Llama architecture into a folder that vLLM and transformers read.

`python convert_child.py FILE.gguf FOLDER`: smollm2.py starts it with the package gguf on its path.
Weights are dequantized to float32, which represents each quantized value exactly. The tokenizer is
written from the file's vocabulary: transformers' own conversion does not split digits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3  # the token type of GGUF for special tokens
# GGUF's names of a layer's tensors, and those of transformers.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
# As the model's card recommends. At temperature 1, the default of OpenAI's API, a model of this
# size writes noise until the context is full.
SAMPLING = {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def main() -> None:
    import gguf

    file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    require_supported(fields, [tensor.name for tensor in reader.tensors])
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    weights = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = tensor.name.split(".")[-2]
        tensor_values = unpermuted(values, heads[kind]) if kind in heads else values
        weights[name_of(tensor.name)] = np.ascontiguousarray(tensor_values)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer(fields).save(str(folder / "tokenizer.json"))
    for name, content in files(fields).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def require_supported(fields: dict[str, Any], tensors: list[str]) -> None:
    """ValueError for what the conversion would silently get wrong."""
    for key, value in (
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
    ):
        if fields[key] != value:
            raise ValueError(f"{key} is {fields[key]!r}; only {value!r} can be converted")
    if "output.weight" in tensors:
        raise ValueError("the model has an output.weight; only tied embeddings can be converted")


def name_of(tensor: str) -> str:
    """transformers' name: `blk.0.attn_q.weight` → `model.layers.0.self_attn.q_proj.weight`."""
    parts = tensor.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{LAYER[parts[2]]}.{parts[3]}"
    return f"{MODEL[parts[0]]}.{parts[1]}"


def unpermuted(weights: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The rows of each head in transformers' order: first halves of the rotated pairs, then second
    halves. GGUF has the two of a pair side by side."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """SmolLM2's: byte-level BPE, each digit alone.

    Digits are split by an expression, as fastokens (the frontend's tokenizer) has no `Digits`.
    """
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return tokenizer


def files(fields: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The JSON files of the folder, by name."""
    ids = {name: fields[f"tokenizer.ggml.{key}_token_id"] for name, key in SPECIAL.items()}
    tokens = fields["tokenizer.ggml.tokens"]
    ends = {f"{name}_id": ids[name] for name in ("bos_token", "eos_token", "pad_token")}
    epsilon = fields["llama.attention.layer_norm_rms_epsilon"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": float(str(np.float32(epsilon))),  # 1e-05, as before its rounding
        "rope_theta": fields["llama.rope.freq_base"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "vocab_size": len(tokens),
        "torch_dtype": "float32",
        **ends,
    }
    return {
        "config.json": config,
        "generation_config.json": {**ends, **SAMPLING},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{name: tokens[at] for name, at in ids.items()},
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": fields["llama.context_length"],
            "chat_template": fields["tokenizer.chat_template"],
        },
    }


if __name__ == "__main__":
    main()
