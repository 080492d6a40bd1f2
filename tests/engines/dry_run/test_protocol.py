"""The lines that penstock and the engines' processes exchange, and the folders of models."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.engines.dry_run.model_folders import complete_config, folder_for
from penstock.engines.dry_run.protocol import Accepted, Refused, Undecided, decode, encode
from penstock.hardware import GPUS

from .configurations import MODEL, configuration


def test_the_line_has_the_gpu_and_the_folder_instead_of_the_model(tmp_path: Path) -> None:
    draft = f"--speculative-config '{json.dumps({'model': MODEL})}' --tokenizer={MODEL}"
    asked = json.loads(encode(configuration(f"--served-model-name own {draft}", tmp_path)))
    folder = str(tmp_path / "models" / "openai--gpt-oss-120b")
    assert asked["arguments"] == [
        *("--model", folder, "--served-model-name", "own"),
        *("--speculative-config", json.dumps({"model": folder}), f"--tokenizer={folder}"),
    ]
    assert asked["hardware"] == {
        "name": "NVIDIA H200",
        "capability": [9, 0],
        "memory_bytes": int(GPUS["h200"].memory_gib * 2**30),
        "count": 8,
    }


def test_a_sentence_names_the_model_instead_of_its_folder() -> None:
    line = json.dumps({"outcome": "refused", "text": "no heads in /tmp/m/config.json"})
    assert decode(line, {MODEL: "/tmp/m"}) == Refused(message=f"no heads in {MODEL}/config.json")


def test_a_refusal_of_dynamos_worker() -> None:
    line = json.dumps({"outcome": "refused", "text": "no", "is_of_dynamo": True})
    assert decode(line, {}) == Refused(message="no", is_of_dynamo=True)


def test_the_outcomes_are_read() -> None:
    accepted = decode('{"outcome": "accepted", "resolved": {"block_size": 16}}', {})
    assert isinstance(accepted, Accepted)
    assert accepted.resolved.block_size == 16
    assert accepted.resolved.attention_backend == ""
    undecided = decode('{"outcome": "undecided", "text": "it reads /x"}', {})
    assert undecided == Undecided(reason="it reads /x")


def test_the_config_of_a_known_model_names_its_class(tmp_path: Path) -> None:
    folder = folder_for(MODEL, tmp_path)
    assert isinstance(folder, Path)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["GptOssForCausalLM"]
    assert config["num_attention_heads"] == 64
    assert folder_for(MODEL, tmp_path) == folder


def test_the_layers_of_a_model_with_images_are_its_text_config() -> None:
    config = complete_config("Qwen/Qwen3.5-122B-A10B")
    assert not isinstance(config, str)
    assert config["architectures"] == ["Qwen3_5MoeForConditionalGeneration"]
    assert "num_hidden_layers" in config["text_config"]


def test_a_missing_config_or_class_is_a_reason() -> None:
    assert complete_config("a/b") == "penstock does not know the config.json of a/b"
    of_another_type = complete_config("moonshotai/Kimi-K3")
    assert of_another_type == "penstock does not know the class of models of type kimi_linear"
