"""`speculative_config`, by its `decoding_type`.

Source: tensorrt_llm/llmapi/llm_args.py and the API reference of 1.3.0rc27 and rc29.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from penstock.engines.llm_args.base import Count, EngineArgs, Opaque, Positive
from penstock.engines.llm_args.sections import MoeBackend

Backend = Literal["VANILLA", "TRTLLM"]
Sampling = Literal["full", "no_topk", "no_topp", "no_topk_no_topp"]


class DecodingConfig(EngineArgs):
    """Settings of every drafting method."""

    decoding_type: str = "AUTO"
    max_draft_len: Count | None = None
    max_total_draft_tokens: int | None = None
    speculative_model: str | None = Field(
        default=None, validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )
    max_concurrency: Positive | None = None  # exclusive with draft_len_schedule
    # The smallest key must map to max_draft_len; switches CUDA-graph padding on.
    draft_len_schedule: dict[Positive, Count] | None = None
    load_format: str | None = None
    acceptance_rate_window_size: Count | None = None
    acceptance_rate_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    use_rejection_sampling: bool = False
    allow_advanced_sampling: bool = False  # deprecated, no effect
    advanced_sampling_mode: Sampling = "full"
    enable_penalty: bool = False  # while false, requests with penalties are rejected
    moe_backend: MoeBackend | None = None


class Tree(DecodingConfig):
    """Settings of methods that can draft a tree."""

    use_dynamic_tree: bool = False  # needs dynamic_tree_max_topK
    dynamic_tree_max_topK: int | None = None  # noqa: N815  the engine's spelling
    sa_config: Opaque | None = None


class Eagle3(Tree):
    """EAGLE-3; `Eagle` becomes it, with a warning."""

    decoding_type: str = "Eagle3"
    max_draft_len: Positive
    speculative_model: str = Field(
        validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )
    eagle3_layers_to_capture: list[int] | None = None  # default {1, L/2-1, L-4}
    eagle3_model_arch: Literal["llama3", "mistral_large3"] = "llama3"
    num_eagle_layers: int | None = None
    max_non_leaves_per_layer: int | None = None


class Mtp(Tree):
    """Multi-token prediction by layers of the model itself."""

    max_draft_len: Positive | None = None
    use_relaxed_acceptance_for_thinking: bool = False
    relaxed_topk: Positive = 1
    relaxed_delta: Annotated[float, Field(ge=0)] = 0.0
    use_mtp_vanilla: bool = False
    num_nextn_predict_layers: int | None = None  # deprecated: max_draft_len
    begin_thinking_phase_token: Count = 128798
    end_thinking_phase_token: Count = 128799


class NGram(DecodingConfig):
    """Drafts from the prompt's own n-grams."""

    max_draft_len: Positive
    max_matching_ngram_size: Positive = 2
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


class SuffixAutomaton(DecodingConfig):
    """SA: drafts from a suffix automaton."""

    max_draft_len: Positive
    max_matching_ngram_size: int = -1
    enable_global_pool: bool = False
    global_pool_size: Positive | None = None


class DraftTarget(DecodingConfig):
    """A smaller model drafts."""

    max_draft_len: Positive
    speculative_model: str = Field(
        validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )


class Pard(DecodingConfig):
    """PARD."""

    mask_token_id: int | None = None
    sa_config: Opaque | None = None


class DFlash(DecodingConfig):
    """DFlash."""

    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None
    attention_backend: Backend = "VANILLA"


class DSpark(DFlash):
    """DSpark."""

    block_size: Positive | None = None
    markov_rank: int | None = None
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None


class SaveState(DecodingConfig):
    """Writes hidden states for training a draft model."""

    output_directory: str
    write_interval: int = 20
    file_prefix: str = "data"
    eagle3_layers_to_capture: list[int] | None = None


DECODING: Mapping[str, type[DecodingConfig]] = {
    "Eagle3": Eagle3,
    "Eagle": Eagle3,
    "MTP": Mtp,
    "NGram": NGram,
    "SA": SuffixAutomaton,
    "Draft_Target": DraftTarget,
    "PARD": Pard,
    "DFlash": DFlash,
    "DSpark": DSpark,
    "SaveState": SaveState,
    "AUTO": DecodingConfig,
}
# User_Provided takes Python objects, which YAML cannot contain.
DECODING_TYPES = (*DECODING, "User_Provided")
