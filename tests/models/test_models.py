"""Models from their config.json: bytes and shapes compared with published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.models import ModelShape, find_model, read_model
from penstock.models.config import BrokenConfigError, UnknownShapeError, shape_of
from penstock.models.known import known_id, known_ids, known_shape, meant_id

GIB = 2**30
LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "num_experts_per_tok": 8,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8"},
}


def shape(config: dict[str, Any]) -> ModelShape:
    return shape_of(config, "model")


@pytest.mark.parametrize(
    ("model", "gib", "bf16", "fp8"),
    [("openai/gpt-oss-120b", 60.8, 73728, 36864), ("openai/gpt-oss-20b", 12.8, 49152, 24576)],
)
def test_gpt_oss_matches_the_published_figures(model: str, gib: float, bf16: int, fp8: int) -> None:
    model_shape = find_model(model)
    assert model_shape.parts.total / GIB == pytest.approx(gib, rel=0.01)
    assert (model_shape.kv_bytes_per_token(), model_shape.kv_bytes_per_token("fp8")) == (bf16, fp8)
    assert model_shape.full_layers * 2 == model_shape.layers


@pytest.mark.parametrize(
    ("config", "billions", "per_weight"),
    [(LLAMA_8B, 8.03, 2), (QWEN3_235B, 235.1, 2), (DEEPSEEK_V3, 671.0, None)],
)
def test_parameters_match_the_model_card(
    config: dict[str, Any], billions: float, per_weight: int | None
) -> None:
    total = shape(config).parts.total
    if per_weight is None:  # fp8, with embeddings in bf16
        tables = 2 * config["vocab_size"] * config["hidden_size"]
        total -= tables
        per_weight = 1
    assert total / per_weight / 1e9 == pytest.approx(billions, rel=0.01)


def test_smollm2_has_its_135_million_parameters_and_tied_embeddings() -> None:
    model_shape = find_model("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert model_shape.parts.total / 2 / 1e6 == pytest.approx(134.5, rel=0.001)
    assert (model_shape.positions, model_shape.kv_bytes_per_token("float32")) == (8192, 46_080)


def test_kv_of_latent_attention_is_the_latent() -> None:
    model_shape = shape(DEEPSEEK_V3)
    assert (model_shape.kv_values, model_shape.is_mla) == (576, True)
    assert model_shape.kv_bytes_per_token("bfloat16") == 61 * 576 * 2


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 524_288),
        ({"type": "dynamic", "factor": 2}, 262_144),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131_072),
        ({"rope_type": "yarn", "factor": 4.0}, 131_072),
        ({"rope_type": "default"}, 131_072),
        (None, 131_072),
    ],
)
def test_positions_are_scaled_if_the_config_does_not_include_the_scaling(
    scaling: dict[str, Any] | None, positions: int
) -> None:
    assert shape({**LLAMA_8B, "rope_scaling": scaling}).positions == positions


@pytest.mark.parametrize(
    ("quantization", "kv_dtype"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False},
            },
            "fp8",
        ),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "fp8"}, None),
        (None, None),
    ],
)
def test_the_checkpoint_may_set_the_kv_cache_type(
    quantization: dict[str, Any] | None, kv_dtype: str | None
) -> None:
    assert shape({**LLAMA_8B, "quantization_config": quantization}).kv_dtype == kv_dtype


def test_weights_quantized_at_load_are_half() -> None:
    plain, halved = shape(LLAMA_8B), shape(LLAMA_8B).quantized_at_load("fp8")
    assert halved.parts.attention + halved.parts.dense == pytest.approx(
        (plain.parts.attention + plain.parts.dense) / 2
    )
    assert halved.parts.embedding == plain.parts.embedding


def test_the_attention_of_an_nvfp4_checkpoint_may_be_in_16_bits() -> None:
    """With attention on each of eight GPUs, one takes 90.5 GB of Kimi-K2.5-NVFP4."""
    model = known_shape("nvidia/Kimi-K2.5-NVFP4")
    assert model is not None
    parts = model.parts
    on_each = parts.total - parts.experts * 7 / 8
    assert on_each == pytest.approx(90.5e9, rel=0.01)


def test_kv_bytes_of_a_prompt() -> None:
    """The measured sum of 18 transfers of vLLM 0.31.0 (4 layers, windows of 128 in two of them)."""
    tiny = {
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_local_experts": 4,
        "vocab_size": 1000,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "dtype": "float32",
    }
    model_shape = shape(tiny)
    lengths = [1, 2, 31, 32, 33, 64, 127, 128, 129, 300, 500, 1000, 1500, 3, 3, 3, 3, 13]
    assert sum(model_shape.kv_bytes(n, 32, None) or 0 for n in lengths) == 11_599_872
    assert model_shape.kv_bytes(33, 32, "fp8") == (model_shape.kv_bytes(33, 32, "auto") or 0) // 4
    assert model_shape.kv_bytes(1, 32, "int4_per_token_head") is None
    # 4 layers × 256 values × 32 tokens, each 4 bits and a sixteenth of its scale's byte
    assert model_shape.kv_bytes(1, 32, "nvfp4") == 18_432


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({}, (None,) * 4),
        ({"sliding_window": 4096, "use_sliding_window": False}, (None,) * 4),
        ({"sliding_window": 4096, "model_type": "mistral"}, (4096,) * 4),
        ({"sliding_window": 4096, "model_type": "gemma2"}, (4096, None) * 2),
        (
            {"sliding_window": 128, "layer_types": ["full_attention", "sliding_attention"] * 2},
            (None, 128) * 2,
        ),
    ],
)
def test_the_windows_of_the_layers(config: dict[str, Any], windows: tuple[int | None]) -> None:
    assert shape({**LLAMA_8B, "num_hidden_layers": 4, **config}).windows == windows


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"num_attention_heads": null}'])
def test_an_incomplete_config_has_no_shape(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert read_model(tmp_path) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, None) for key in ("num_hidden_layers", "vocab_size", "hidden_size")),
        ("num_hidden_layers", -3),
        ("num_hidden_layers", 32.5),
        ("num_attention_heads", "32"),
        ("hidden_size", True),
        ("vocab_size", 0),
        ("num_key_value_heads", -8),
        ("layer_types", ["full_attention"]),
    ],
)
def test_a_missing_or_invalid_value_is_named(key: str, value: object) -> None:
    error = UnknownShapeError if value is None else BrokenConfigError
    config = {**LLAMA_8B, key: value}
    with pytest.raises(error, match=key):
        shape({name: value for name, value in config.items() if value is not None})


def test_an_unsupported_model_type_is_named() -> None:
    with pytest.raises(UnknownShapeError, match="mamba"):
        shape({**LLAMA_8B, "model_type": "mamba"})


def test_the_size_in_the_checkpoints_index_wins(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    index = {"metadata": {"total_size": 16_060_522_496}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    model_shape = read_model(tmp_path)
    assert model_shape is not None
    assert model_shape.is_exact
    assert model_shape.parts.total == pytest.approx(16_060_522_496)


@pytest.mark.parametrize(
    "name",
    [
        "openai/gpt-oss-120b",
        "/opt/models/openai/gpt-oss-120b",
        "/cache/hub/models--openai--gpt-oss-120b/snapshots/b5c939",
    ],
)
def test_a_path_to_a_packaged_model_is_known(name: str) -> None:
    assert find_model(name).layers == 36


@pytest.mark.parametrize("name", ["nvidia/gpt-oss-120b-Eagle3-v3", "my/gpt-oss-120b-tuned", "x"])
def test_a_model_derived_from_a_packaged_one_is_not_that_model(name: str) -> None:
    with pytest.raises(UnknownShapeError):
        find_model(name)


def test_a_missing_folder_is_named() -> None:
    message = "no /models/x/config.json on this machine, and acme/x is not a known model"
    with pytest.raises(UnknownShapeError, match=message):
        find_model("acme/x", Path("/models/x"), Path("acme/x"))


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("qwen/qwen3-32b", "Qwen/Qwen3-32B"),
        ("/models/Qwen3-32B/", "Qwen/Qwen3-32B"),
        ("/hub/models--openai--gpt-oss-20b/snapshots/abc", "openai/gpt-oss-20b"),
        ("/models/Qwen3-32B-tuned", None),
    ],
)
def test_the_id_of_a_known_model(name: str, id_: str | None) -> None:
    assert known_id(name) == id_


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai/gpt-oss-12b", "openai/gpt-oss-120b"),
        ("openai/gpt-oss-2b", "openai/gpt-oss-20b"),
        ("openai/gpt-oss-210b", "openai/gpt-oss-120b"),
        ("openai/gpt-oss-20", "openai/gpt-oss-20b"),
        ("openai/gptoss-120b", "openai/gpt-oss-120b"),
        ("openai/gpt_oss-120b", "openai/gpt-oss-120b"),
        ("openai/gpt-os-120b", "openai/gpt-oss-120b"),
        ("opneai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("open-ai/gpt-oss-120b", "openai/gpt-oss-120b"),
        ("Qwen/Qwem3-32B", "Qwen/Qwen3-32B"),
        ("meta-llama/Llama-3.3-70B-Instuct", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_a_typing_error_has_the_id_that_was_meant(name: str, meant: str) -> None:
    assert meant_id(name) == meant


@pytest.mark.parametrize(
    "name",
    [
        *known_ids(),
        "OpenAI/GPT-OSS-120B",
        "gpt-oss-120b",
        "acme/gpt-oss-120b",
        "acme/gpt-oss-120b-finetuned",
        "acme/gptoss-120b",
        "openai/gpt-oss-120b-fp8",
        "openai/gpt-oss-safeguard-20b",
        "openai/whisper-large",
        "penstock/tiny-gpt-oss",
        "Qwen/Qwen3-14B",  # another size
        "Qwen/Qwen3-VL-32B",
        "zai-org/GLM-5V",
        "deepseek-ai/DeepSeek-R2",
        "/models/openai/gptoss-120b",
    ],
)
def test_another_model_is_not_a_typing_error(name: str) -> None:
    assert meant_id(name) is None
