"""`speculative_config`, by its `decoding_type`.

Source: tensorrt_llm/llmapi/llm_args.py and the API reference of 1.3.0rc27 and rc29.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from penstock.engines.llm_args.base import Count, EngineArgs, Positive
from penstock.engines.llm_args.limits import NotZero, contradiction
from penstock.engines.llm_args.sections import MoeBackend

LONGEST_POOLED_NGRAM = 64
Backend = Literal["VANILLA", "TRTLLM"]
Sampling = Literal["full", "no_topk", "no_topp", "no_topk_no_topp"]


class SaConfig(EngineArgs):
    """`sa_config`: a suffix automaton combined with another method."""

    threshold: Positive = 4
    enable_global_pool: bool = False


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

    @model_validator(mode="after")
    def has_no_longer_draft(self) -> Self:
        longest = max((self.draft_len_schedule or {}).values(), default=0)
        if self.max_draft_len is not None and longest > self.max_draft_len:
            raise contradiction(
                "draft_len_schedule",
                f"draft_len_schedule contains {longest}, but max_draft_len is {self.max_draft_len}",
                f"Lower the lengths of draft_len_schedule to at most {self.max_draft_len}.",
            )
        return self


class Tree(DecodingConfig):
    """Settings of methods that can draft a tree."""

    use_dynamic_tree: bool = False  # needs dynamic_tree_max_topK
    dynamic_tree_max_topK: int | None = None  # noqa: N815  the engine's spelling
    sa_config: SaConfig | None = None

    @model_validator(mode="after")
    def has_a_possible_tree(self) -> Self:
        length, width = self.max_draft_len, self.dynamic_tree_max_topK
        total = self.max_total_draft_tokens
        if not (self.use_dynamic_tree and length and width and total is not None):
            return self
        if not length <= total <= length * width:
            raise contradiction(
                "max_total_draft_tokens",
                f"max_total_draft_tokens is {total}, but a tree of max_draft_len {length} and "
                f"dynamic_tree_max_topK {width} has {length} to {length * width} tokens",
                f"Set max_total_draft_tokens to a number from {length} to {length * width}.",
            )
        return self


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
    max_matching_ngram_size: NotZero = -1
    enable_global_pool: bool = False
    global_pool_size: Positive | None = None

    @model_validator(mode="after")
    def has_a_possible_pool(self) -> Self:
        size = self.max_matching_ngram_size
        if self.global_pool_size is not None and not self.enable_global_pool:
            raise contradiction(
                "global_pool_size",
                "global_pool_size is set, but enable_global_pool is not true",
                "Set enable_global_pool to true, or remove global_pool_size.",
            )
        if self.enable_global_pool and size != -1 and not 1 <= size <= LONGEST_POOLED_NGRAM:
            raise contradiction(
                "max_matching_ngram_size",
                f"max_matching_ngram_size is {size}, but with enable_global_pool it must be -1 or "
                f"1 to {LONGEST_POOLED_NGRAM}",
                f"Set max_matching_ngram_size to -1 or to at most {LONGEST_POOLED_NGRAM}.",
            )
        return self


class DraftTarget(DecodingConfig):
    """A smaller model drafts."""

    max_draft_len: Positive
    speculative_model: str = Field(
        validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )


class Pard(DecodingConfig):
    """PARD."""

    max_draft_len: Positive
    mask_token_id: int | None = None
    sa_config: SaConfig | None = None


class DFlash(DecodingConfig):
    """DFlash."""

    max_draft_len: Positive
    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None
    attention_backend: Backend = "VANILLA"


class DSpark(DFlash):
    """DSpark."""

    block_size: Positive | None = None
    markov_rank: int | None = None
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None

    @model_validator(mode="after")
    def has_blocks_of_the_draft_length(self) -> Self:
        if self.block_size is not None and self.block_size != self.max_draft_len:
            raise contradiction(
                "block_size",
                f"block_size is {self.block_size}, but max_draft_len is {self.max_draft_len}",
                f"Set block_size to {self.max_draft_len}.",
            )
        return self


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
