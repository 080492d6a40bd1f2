"""Write what the checks use of config.json of public models: one line for each model.

python tools/dump_known_models.py FOLDER > known_models.json

FOLDER is `aisimulate_core/model_configs` of AISimulate, which has unmodified copies of the files.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEYS = frozenset({
    "add_full_attention_sink_bias", "add_swa_attention_sink_bias", "attention_chunk_size",
    "attn_output_gate", "compress_ratios", "conv_kernel", "dtype", "first_k_dense_replace",
    "global_head_dim", "head_dim", "hidden_size", "hybrid_layer_pattern",
    "hybrid_override_pattern", "index_kpool", "index_topk", "intermediate_size", "kv_lora_rank",
    "layer_types", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",
    "linear_num_value_heads", "linear_value_head_dim", "mamba_head_dim", "mamba_num_heads",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "max_position_embeddings", "mlp_only_layers",
    "model_type", "moe_intermediate_size", "n_groups", "n_routed_experts", "n_shared_experts",
    "num_attention_heads", "num_experts", "num_experts_per_tok", "num_global_key_value_heads",
    "num_hidden_layers", "num_key_value_heads", "num_local_experts", "q_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim", "rope_parameters", "rope_scaling",
    "shared_expert_intermediate_size", "sliding_window", "ssm_state_size",
    "tie_word_embeddings", "torch_dtype", "use_sliding_window", "v_head_dim", "vocab_size",
})  # fmt: skip
# Checkpoints whose config.json has the same values for KEYS.
SAME = {
    "meta-llama--Llama-3.1-8B-Instruct": "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama--Meta-Llama-3.1-8B-Instruct": "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama--Llama-3.1-70B-Instruct": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama--Meta-Llama-3.1-70B-Instruct": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama--Llama-3.3-70B-Instruct": "meta-llama--Meta-Llama-3.1-70B",
    "meta-llama--Llama-3.1-405B-Instruct": "meta-llama--Meta-Llama-3.1-405B",
    "deepseek-ai--DeepSeek-R1-0528": "deepseek-ai--DeepSeek-R1",
    "deepseek-ai--DeepSeek-V3-0324": "deepseek-ai--DeepSeek-V3",
    "deepseek-ai--DeepSeek-V3.1": "deepseek-ai--DeepSeek-V3",
}
# Checkpoints that another one in the folder was quantized from.
BEFORE_QUANTIZATION = {
    "google--gemma-4-31B-it": "nvidia--Gemma-4-31B-IT-NVFP4",
    "Qwen--Qwen3.6-27B": "nvidia--Qwen3.6-27B-NVFP4",
    "Qwen--Qwen3.6-35B-A3B": "nvidia--Qwen3.6-35B-A3B-NVFP4",
}
# Values of models that are not in the folder.
OTHERS = {
    # index_kpool: vLLM's Glm5NextPooledIndexer. The rest: vllm#57713, TensorRT-LLM#19136.
    "zai-org--GLM-5.3-Flash": {
        "model_type": "glm5_next_text",
        "num_hidden_layers": 45,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "index_topk": 2048,
        "index_kpool": 4,
    }
}
# An entry of `ignore` that covers the attention of a layer, not only its norms or one projection.
WHOLE_ATTENTION = re.compile(r"self_attn(\.?\*)?$")
SECTION_KEYS = (
    *("quant_method", "quant_algo", "weight_block_size", "config_groups", "format"),
    "moe_quant_algo",
    *("kv_cache_quant_algo", "kv_cache_scheme"),
)


def quantization(config: Mapping[str, Any], modelopt: Path) -> dict[str, Any] | None:
    """The section of config.json, or that of ModelOpt's file, without lists of layers: `ignore`
    states only that no attention is quantized."""
    text = config.get("text_config") or {}
    section = config.get("quantization_config") or text.get("quantization_config")
    if section:
        return _short(section)
    if modelopt.is_file():
        found = json.loads(modelopt.read_text("utf-8"))["quantization"]
        return {"quant_method": "modelopt"} | _short(found)
    return None


def _short(section: Mapping[str, Any]) -> dict[str, Any]:
    ignored = section.get("ignore") or section.get("exclude_modules") or ()
    attention = {"ignore": ["self_attn"]} if any(map(WHOLE_ATTENTION.search, ignored)) else {}
    return {k: v for k, v in section.items() if k in SECTION_KEYS and v is not None} | attention


def summary(folder: Path, name: str) -> dict[str, Any]:
    config = json.loads((folder / f"{name}_config.json").read_text("utf-8"))
    merged = {**config, **(config.get("text_config") or {})}
    found = {k: merged[k] for k in sorted(KEYS & merged.keys()) if merged[k] is not None}
    found = {"architecture": config["architectures"][0], **found}
    section = quantization(config, folder / f"{name}_hf_quant_config.json")
    return found | ({"quantization_config": section} if section else {})


def main() -> None:
    folder = Path(sys.argv[1])
    names = sorted(
        path.name.removesuffix("_config.json")
        for path in folder.glob("*_config.json")
        if not path.name.endswith("_hf_quant_config.json")
    )
    models = {name: summary(folder, name) for name in names}
    models |= {name: models[same] for name, same in SAME.items()} | OTHERS
    for name, quantized in BEFORE_QUANTIZATION.items():
        models[name] = {k: v for k, v in models[quantized].items() if k != "quantization_config"}
    lines = (
        f"{json.dumps(name.replace('--', '/', 1))}: {json.dumps(models[name])}"
        for name in sorted(models, key=str.lower)
    )
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
