"""Configurations of models that are not packaged."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = TemporaryDirectory()  # removed at exit


def model(name: str, **config: Any) -> str:
    """A folder with a config.json of 32 layers and 32 heads, with ``config`` merged over them."""
    shape = {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    folder = Path(FOLDER.name, name)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**shape, **config}))
    return str(folder)


LATENT = model(
    "latent",
    model_type="deepseek_v3",
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
)
