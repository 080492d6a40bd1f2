"""Which version of each engine was the first with a model's architecture."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engines.flags import load
from penstock.engines.releases import RELEASES
from penstock.manifests.deployment import Engine

TABLE = "architectures.json"
# TensorRT-LLM's release notes ("Model Support") of the version. Of other models, they and Dynamo's
# pages differ, or state no version.
TRTLLM: Mapping[str, str] = {
    "GlmMoeDsaForCausalLM": "1.3.0rc9",
    "Qwen3_5ForConditionalGeneration": "1.3.0rc9",
    "Qwen3_5MoeForConditionalGeneration": "1.3.0rc9",
}
# The release notes of vLLM 0.23 state that M3 is not supported, but Dynamo's page "Model Early
# Access Builds" states that its recipes run on the images of 1.3, which have 0.23.
DOUBTFUL = ("MiniMaxM3SparseForConditionalGeneration",)


def first_version(engine: Engine, architecture: str) -> str | None:
    """The first engine version in Dynamo's releases that has the architecture; None if unknown, or
    if the oldest known version has it."""
    if architecture in DOUBTFUL:
        return None
    table = TRTLLM if engine is Engine.TRTLLM else load(TABLE).get(engine.value, {})
    first = table.get(architecture)
    oldest = getattr(next(iter(RELEASES.values())), engine.value, None)
    return None if first == oldest else first
