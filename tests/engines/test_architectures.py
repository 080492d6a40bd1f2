"""The first version of each engine with an architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dump_architectures import _sglang, _vllm
from penstock.engines.flags import load
from penstock.engines.releases import RELEASES
from penstock.engines.value_history import ARCHITECTURES, TRTLLM, first_version
from penstock.manifests.deployment import Engine
from penstock.models import find_facts
from penstock.models.known import known_models

KNOWN = {str(config.get("architecture")) for config in known_models().values()}


@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.SGLANG])
def test_the_table_has_versions_of_dynamos_images(engine: Engine) -> None:
    table = load(ARCHITECTURES)[engine.value]
    assert set(table) <= KNOWN
    assert set(table.values()) <= {getattr(r, engine.value) for r in RELEASES.values()}


def test_release_notes_name_architectures_of_known_models() -> None:
    assert set(TRTLLM) <= KNOWN


def test_the_oldest_release_limits_nothing() -> None:
    assert first_version(Engine.VLLM, "LlamaForCausalLM") is None
    assert first_version(Engine.SGLANG, "NoSuchModel") is None
    assert first_version(Engine.MOCKER, "KimiK3ForConditionalGeneration") is None
    assert first_version(Engine.VLLM, "KimiK3ForConditionalGeneration") == "0.28.0"


def test_sources_that_contradict_each_other_limit_nothing() -> None:
    assert first_version(Engine.VLLM, "MiniMaxM3SparseForConditionalGeneration") is None


def test_the_dump_reads_the_tables_of_vllm_and_the_entry_classes_of_sglang(tmp_path: Path) -> None:
    models = tmp_path / "vllm/model_executor/models"
    models.mkdir(parents=True)
    (models / "registry.py").write_text(
        '_TEXT = {"AForCausalLM": ("a", "A")}\n_OOT_SUPPORTED_MODELS = {"B": "url"}\n'
        "_ALL = {**_TEXT}\n"
    )
    assert list(_vllm(tmp_path)) == ["AForCausalLM"]
    models = tmp_path / "sglang/srt/models"
    models.mkdir(parents=True)
    (models / "one.py").write_bytes(b"\xef\xbb\xbfEntryClass = [A, B]\n")
    (models / "two.py").write_text("EntryClass = C\nOther = D\n")
    assert list(_sglang(tmp_path)) == ["A", "B", "C"]


def test_the_architecture_is_that_of_the_model_and_not_of_its_text_part(tmp_path: Path) -> None:
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = find_facts("model", tmp_path)
    assert facts is not None
    assert facts.architecture == "KimiK25ForConditionalGeneration"
    known = find_facts("nvidia/Kimi-K2.6-NVFP4")
    assert known is not None
    assert known.architecture == facts.architecture
