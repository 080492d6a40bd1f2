"""What `dynamo.trtllm.args` takes from TensorRT-LLM: the defaults of four engine arguments.

rc29 no longer has `BuildConfig` (dynamo/trtllm/backend_args.py falls back to `BaseLlmArgs`). The
values are TensorRT-LLM's: llmapi/llm_args.py, TorchLlmArgs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.engines.substitutes import Substitutes


@dataclass(frozen=True)
class FieldDefault:
    """The one attribute of a pydantic field that Dynamo reads."""

    default: int | None


class BaseLlmArgs:
    model_fields: ClassVar[dict[str, FieldDefault]] = {
        "max_batch_size": FieldDefault(2048),
        "max_num_tokens": FieldDefault(8192),
        "max_seq_len": FieldDefault(None),
        "max_beam_width": FieldDefault(1),
    }


MODULES: Substitutes = {
    "tensorrt_llm.llmapi": {},
    "tensorrt_llm.llmapi.llm_args": {"BaseLlmArgs": BaseLlmArgs},
}
