"""Write the same weights and tokenizer as one GGUF file, with llama.cpp's names.

llama.cpp computes gpt-oss's YaRN with `truncate: true`; everything else is as in `config.json`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gguf
from gguf import MODEL_ARCH, GGUFWriter, TokenType
from penstock.errors import InputError
from penstock.tiny_model.architectures import ARCHITECTURES
from penstock.tiny_model.write import Weights, random_weights
from penstock.tokenizer import FOLDER as TOKENIZER

Array = NDArray[np.float32]
NAMES = {"gpt-oss": MODEL_ARCH.GPT_OSS, "llama": MODEL_ARCH.LLAMA}
PRE_TOKENIZER = "gpt-2"  # of the packaged tokenizer, in llama.cpp's name


def write_gguf(file: Path, architecture: str = "gpt-oss", seed: int = 0) -> bool:
    """Write the model to ``file``; return False when the same file already exists.

    InputError when something else is there: nothing is overwritten.
    """
    target = file.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".penstock-") as draft:
            model = Path(draft) / "model.gguf"
            _write(model, architecture, seed)
            if not target.exists():
                model.replace(target)
                return True
            if target.read_bytes() == model.read_bytes():
                return False
            raise FileExistsError(0, "something else or an incomplete model is already there")
    except OSError as error:
        raise InputError(
            f"the model cannot be written: {error.strerror}",
            file=str(file),
            fix="Name a file that does not exist, where you may write.",
        ) from None


def _write(file: Path, architecture: str, seed: int) -> None:
    writer = GGUFWriter(file, gguf.MODEL_ARCH_NAMES[NAMES[architecture]])
    config = dict(ARCHITECTURES[architecture].config)
    writer.add_name(f"penstock tiny-model {architecture} seed {seed}")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_shape(writer, config)
    _add_tokenizer(writer)
    weights = random_weights(ARCHITECTURES[architecture], seed)
    for name, values in _tensors(weights, architecture, config):
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file.chmod(0o644)


def _add_shape(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "num_local_experts" in config:
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_sliding_window(config["sliding_window"])
    if "rope_scaling" in config:
        rope = config["rope_scaling"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _add_tokenizer(writer: GGUFWriter) -> None:
    content = json.loads((TOKENIZER / "tokenizer.json").read_text("utf-8"))
    ids = content["model"]["vocab"]
    special = {token["content"] for token in content["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    types = [TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens]
    ends = json.loads((TOKENIZER / "generation_config.json").read_text("utf-8"))
    template = json.loads((TOKENIZER / "tokenizer_config.json").read_text("utf-8"))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    writer.add_bos_token_id(ends["bos_token_id"])
    writer.add_eos_token_id(ends["eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(template["chat_template"])


def _tensors(
    weights: Weights, architecture: str, config: dict[str, Any]
) -> Iterator[tuple[str, Array]]:
    """Each tensor with its name in llama.cpp, in the order of ``weights``."""
    names = gguf.get_tensor_name_map(NAMES[architecture], config["num_hidden_layers"])
    for name, values in weights.items():
        layer, _, part = name.partition(".mlp.experts.")
        if part:
            yield from _experts(f"blk.{layer.rsplit('.', 1)[1]}", part, values)
            continue
        tensor = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if tensor is None:
            raise ValueError(f"llama.cpp has no tensor for {name}")
        is_rotated = architecture == "llama" and ".self_attn." in name
        stored = _llama_attention(name, values, config) if is_rotated else values
        if not tensor.endswith((".weight", ".bias")):
            tensor = f"{tensor}.weight"
        yield tensor, stored


def _experts(block: str, part: str, values: Array) -> Iterator[tuple[str, Array]]:
    """transformers has gate and up alternating in one tensor, and inputs before outputs."""
    kind = "bias" if part.endswith("_bias") else "weight"
    outputs_last = values if kind == "bias" else values.swapaxes(1, 2)
    if part.startswith("down"):
        yield f"{block}.ffn_down_exps.{kind}", outputs_last
        return
    yield f"{block}.ffn_gate_exps.{kind}", outputs_last[:, ::2]
    yield f"{block}.ffn_up_exps.{kind}", outputs_last[:, 1::2]


def _llama_attention(name: str, values: Array, config: dict[str, Any]) -> Array:
    """For Llama, llama.cpp rotates neighbors; transformers rotates the two halves of a head."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    count = next((config[key] for part, key in heads.items() if part in name), None)
    if count is None:
        return values
    halves = values.reshape(count, 2, -1, values.shape[1])
    return halves.swapaxes(1, 2).reshape(values.shape)
