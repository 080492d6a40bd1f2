"""A folder with a model's config.json, which an engine's own code reads.

It has what penstock knows of a public model: the keys that shape its layers. Keys that are missing
get the defaults of the model's class.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.files import write_file
from penstock.graph.text_file import read_text_file
from penstock.models.find import packaged_config
from penstock.models.known import layers_config

# model_type → the class that the model's config.json names.
ARCHITECTURES: Mapping[str, str] = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mimo": "MiMoForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
# The same for models with inputs other than text. Their layers are in `text_config`: the model_type
# of this section → the model_type and class of the model.
WITH_TEXT_CONFIG: Mapping[str, tuple[str, str]] = {
    "gemma4_text": ("gemma4", "Gemma4ForConditionalGeneration"),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
}
MOST_BYTES = 2**20  # of a config.json; the largest published ones have 100 KiB
# A setting of every FP8 checkpoint with scales for blocks, which penstock's table leaves out.
FP8 = {"activation_scheme": "dynamic"}
# Keys of the whole model, not of its text layers.
OF_THE_MODEL = ("quantization_config",)


def complete_config(name: str) -> Mapping[str, Any] | str:
    """The config.json of a public model as far as it is known, or the reason why it is not."""
    config = layers_config(name) or packaged_config(name)
    if config is None:
        return f"penstock does not know the config.json of {name}"
    if not {"dtype", "torch_dtype"} & set(config):
        config = {**config, "dtype": "bfloat16"}  # the dtype of every model in the table
    quantization = config.get("quantization_config")
    if quantization and quantization.get("quant_method") == "fp8":
        config = {**config, "quantization_config": {**FP8, **quantization}}
    kind = str(config["model_type"])
    if "architectures" in config:
        return config
    if kind in ARCHITECTURES:
        return {**config, "architectures": [ARCHITECTURES[kind]]}
    if kind in WITH_TEXT_CONFIG:
        outer, architecture = WITH_TEXT_CONFIG[kind]
        of_the_model = {key: config[key] for key in OF_THE_MODEL if key in config}
        text = {key: value for key, value in config.items() if key not in OF_THE_MODEL}
        return {
            "model_type": outer,
            "architectures": [architecture],
            "text_config": text,
            **of_the_model,
        }
    return f"penstock does not know the class of models of type {kind}"


def copied_folder(source: Path, below: Path) -> Path | str:
    """A folder with nothing but the config.json of a model's folder, or the reason why not: code
    that the model brings (`auto_map`) must not run here."""
    try:
        config = json.loads(read_text_file(source / "config.json", MOST_BYTES))
    except (InputError, ValueError):
        return f"{source.name} has no config.json that can be read"
    if not isinstance(config, dict) or "auto_map" in json.dumps(config):
        return f"the model {source.name} has code of its own, which is not run"
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:16]  # two folders may have one name
    return _written(config, _folder(f"{source.name}-{digest}", below))


def folder_for(name: str, below: Path) -> Path | str:
    """The folder of a public model's config.json, written below a folder once; or the reason why
    there is none."""
    folder = _folder(name, below)
    if folder.is_dir():
        return folder
    config = complete_config(name)
    if isinstance(config, str):
        return config
    return _written(config, folder)


def _folder(name: str, below: Path) -> Path:
    return below / "models" / re.sub(r"[^\w.-]+", "--", name).strip("-")


def _written(config: Mapping[str, Any], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / "config.json", json.dumps(config))
    return folder
