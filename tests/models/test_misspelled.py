"""A typing error in the ID of a known model, and IDs of other models."""

from __future__ import annotations

import pytest

from penstock.models.known import known_ids, meant_id


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
