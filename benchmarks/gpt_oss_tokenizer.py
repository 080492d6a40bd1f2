"""Writes a model folder with the vocabulary of o200k_base, from which gpt-oss' tokenizer was made.

The environment `harmony` has it.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

from transformers.convert_slow_tokenizer import TikTokenConverter

from penstock.environments import environments_root
from penstock.tokenizer import FOLDER

VOCABULARY = environments_root() / "harmony" / "encodings" / "o200k_base.tiktoken"
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|"
    r"'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|endoftext|>", "<|return|>", "<|start|>", "<|message|>", "<|end|>")


def ranks(path: str) -> dict[bytes, int]:
    """Replaces the package tiktoken."""
    lines = (line.split() for line in Path(path).read_bytes().splitlines())
    return {b64decode(token): int(rank) for token, rank in lines}


def write_tokenizer(folder: Path) -> None:
    """Writes a model folder with the vocabulary of gpt-oss."""
    shutil.copytree(FOLDER, folder)
    converter: Any = TikTokenConverter  # untyped
    converter.load_tiktoken_bpe = staticmethod(ranks)
    tokenizer = converter(str(VOCABULARY), PATTERN, extra_special_tokens=SPECIAL).converted()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 262144}
    (folder / "config.json").write_text(json.dumps(config))
