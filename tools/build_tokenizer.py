"""Build the packaged tokenizer: byte-level BPE, trained on Python's help texts.

The special tokens are those of gpt-oss's Harmony format, so each of its markers is one token. The
vocabulary depends on the Python version that runs this, so the folder is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from penstock.files import write_file
from penstock.tokenizer import FOLDER

VOCABULARY = 4096
CONTEXT = 131072
SPECIAL = (
    "<|endoftext|>",
    "<|return|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|call|>",
)
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|start|>{{ message.role }}<|message|>"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- elif message.content -%}"
    "{%- for part in message.content -%}{{ part.text }}{%- endfor -%}"
    "{%- endif -%}<|end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
)


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    return tokenizer


def config() -> dict[str, object]:
    """The shape of a tiny Llama. It has no weights; the mocker reads the sizes."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def write(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    train().save(str(folder / "tokenizer.json"))
    parts: dict[str, dict[str, object]] = {
        "config.json": config(),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|return|>",
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in parts.items():
        write_file(folder / name, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write()
