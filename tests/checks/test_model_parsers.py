"""The table of model families: its parsers exist, and an id belongs to one family."""

from __future__ import annotations

import re

import pytest

from penstock.checks.finding import Level
from penstock.checks.rules.responses import (
    KINDS,
    REASONING_FLAG,
    TOOL_FLAG,
    Family,
    families,
    family_of,
    parsers,
)
from penstock.models.known import known_ids
from tests.checks.cases_responses import serves
from tests.checks.support import check, vllm_agg, vllm_agg_dgd

# Ids as the model hub and NVIDIA's recipes spell them.
EXAMPLES = {
    "openai/gpt-oss-120b": "gpt-oss",
    "/model-cache/deepseek-r1-fp4": "DeepSeek R1",
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": "a distilled DeepSeek R1",
    "/hub/models--nvidia--DeepSeek-V3.2-NVFP4/snapshots/main": "DeepSeek V3.2",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "Qwen3 Instruct",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": "Qwen3-Coder",
    "Qwen/Qwen3.8-2.4T-A95B-FP8": "Qwen3.8",
    "zai-org/GLM-4.7-Flash": "GLM-4",
    "moonshotai/Kimi-K2-Thinking": "Kimi K2 Thinking",
    "MiniMaxAI/MiniMax-M2.7": "MiniMax M2",
    "/opt/models/patched/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "Nemotron 3 Ultra",
    "mistralai/Mistral-7B-Instruct-v0.3": "Mistral",
    "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": "Llama 3",
    "google/gemma-4-26B-A4B-it": "Gemma 4",
    "microsoft/Phi-4-mini-reasoning": "Phi-4",
    "ai21labs/AI21-Jamba-Large-1.7": "Jamba",
}
# Base models, embeddings, drafts and fine-tunes: nothing says what they write.
OTHERS = (
    "Qwen/Qwen3-Embedding-0.6B",
    "Qwen/Qwen3-8B-Base",
    "example/Qwen3-8B-support-bot",
    "meta-llama/Llama-3.1-8B",
    "nvidia/gpt-oss-120b-Eagle3-v3",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4-DSpark",
    "/models/model_weight",
)


@pytest.mark.parametrize("flag", KINDS)
def test_a_parser_of_dynamo_reads_one_format(flag: str) -> None:
    listed = [name for names in parsers(flag).formats.values() for name in names]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(parsers(flag).since)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.ids)
def test_the_parsers_of_a_family_exist(family: Family) -> None:
    reasoning, tools = parsers(REASONING_FLAG).since, parsers(TOOL_FLAG).since
    assert family.reasoning in {*reasoning, ""}
    assert family.tools in {*tools, ""}
    assert set(family.also) <= {*reasoning, *tools}
    assert family.reasoning or family.tools


@pytest.mark.parametrize("model", EXAMPLES)
def test_an_id_has_its_family(model: str) -> None:
    family = family_of(model)
    assert family is not None
    assert family.name == EXAMPLES[model]


@pytest.mark.parametrize("model", OTHERS)
def test_other_models_have_none(model: str) -> None:
    assert family_of(model) is None


def test_no_id_is_of_two_families() -> None:
    for model in (*known_ids(), *EXAMPLES):
        last = model.rpartition("/")[2].lower()
        assert sum(bool(re.fullmatch(family.ids, last)) for family in families()) <= 1, model


def level_of(model: str, reasoning: str | None = None, tools: str | None = None) -> list[str]:
    findings = check(vllm_agg(serves(model, reasoning, tools)), only="PS602")
    return [str(finding.level) for finding in findings]


def test_the_level_is_that_of_the_certainty() -> None:
    assert level_of("Qwen/Qwen3.6-27B") == [Level.WARNING]
    assert level_of("Qwen/Qwen3-32B") == [Level.NOTE]
    assert level_of("Qwen/Qwen3-32B", "kimi_k3", "hermes") == [Level.WARNING]
    assert level_of("Qwen/Qwen3-32B", "qwen3") == [Level.NOTE]
    assert level_of("openai/gpt-oss-120b", "qwen3", "harmony") == [Level.ERROR]


def test_a_parser_that_nothing_describes_is_accepted() -> None:
    assert level_of("zai-org/GLM-5.2", "glm47", "glm45") == []


def test_the_served_name_tells_the_family_of_a_folder() -> None:
    args = ["--model", "/models/weights", "--served-model-name", "moonshotai/Kimi-K3"]
    changes = {"dgd/spec/components/worker/podTemplate/spec/containers/main/args": args}
    findings = check(vllm_agg_dgd(changes), only="PS602")
    assert [finding.level for finding in findings] == [Level.WARNING]
    assert "Kimi K3" in findings[0].message


def test_flags_from_outside_of_the_file_may_set_a_parser() -> None:
    args = ["--model", "Qwen/Qwen3.6-27B", "$EXTRA_ARGS"]
    changes = {"dgd/spec/components/worker/podTemplate/spec/containers/main/args": args}
    assert check(vllm_agg_dgd(changes), only="PS602") == ()
