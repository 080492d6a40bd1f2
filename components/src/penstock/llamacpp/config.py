"""The options of `engine.config` with `engine.kind: llamacpp`, in llama.cpp's own names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from penstock.strict_yaml.base import Positive, Spec, invalid
from penstock.strict_yaml.problems import FieldProblem, field_problems
from penstock.text.names import did_you_mean, nearest

Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Sampling(Spec):
    """Used where a request sets no value of its own."""

    temp: NotNegative = Field(
        default=1.0, description="Temperature; 0 always selects the most probable token."
    )
    top_k: int = Field(
        default=0, ge=0, description=("Number of most probable tokens to sample from; 0 means all.")
    )
    top_p: Fraction = Field(
        default=1.0,
        description=("Cumulative probability of the tokens to sample from; 1 means all."),
    )
    min_p: Fraction = Field(
        default=0.0,
        description=(
            "Minimum probability of a token relative to the most probable one; 0 means none."
        ),
    )
    repeat_penalty: NotNegative = Field(
        default=1.0, description="Penalty for repeating one of the last 64 tokens; 1 means none."
    )


class LlamaCppConfig(Spec):
    n_parallel: Positive = Field(
        default=4,
        le=256,  # LLAMA_MAX_SEQ, above which llama.cpp does not load the model
        description=(
            "Number of slots, at most 256. A worker runs one request per slot at the same time. A "
            "slot keeps the KV cache of its last request."
        ),
    )
    n_ctx_seq: Positive | None = Field(
        default=None,
        description=(
            "Context length of a slot in tokens; if unset, model.context_length; if that is unset "
            "too, the context length of the GGUF file. The KV cache of all slots is allocated at "
            "the start."
        ),
    )
    n_threads: Positive | None = Field(
        default=None,
        description=(
            "Number of CPU threads; if unset, half of the cores, because the workers of a graph "
            "share them."
        ),
    )
    n_batch: Positive = Field(
        default=256,
        description=(
            "Logical batch size in tokens. Between batches, other requests begin, and those whose "
            "client has left end, so a large batch delays them."
        ),
    )
    n_ubatch: Positive | None = Field(
        default=None,
        description="Physical batch size in tokens; if unset, llama.cpp's default.",
    )
    n_gpu_layers: int | None = Field(
        default=None,
        ge=-1,
        description=(
            "Number of layers to offload to the GPU, -1 for all; if unset, as many as fit into the "
            "memory of the GPU."
        ),
    )
    block_size: Positive = Field(
        default=16, description="Block size in tokens of the KV events for the router."
    )
    n_predict: Positive | None = Field(
        default=None,
        description=(
            "Output limit in tokens of requests that set none; if unset, the rest of the context. "
            "Only `up` applies it, in its request adapter; the worker ignores this option."
        ),
    )
    sampling: Sampling = Field(
        default=Sampling(), description="Sampling parameters of requests that do not set them."
    )

    @model_validator(mode="after")
    def _context_holds_a_block(self) -> Self:
        if self.n_ctx_seq is not None and self.n_ctx_seq <= self.block_size:
            raise invalid(
                "n_ctx_seq",
                f"must be more than block_size ({self.block_size}), got {self.n_ctx_seq}",
                "Increase n_ctx_seq, or decrease block_size.",
            )
        return self


@dataclass(frozen=True)
class InvalidOption:
    path: tuple[str, ...]
    message: str
    """Without the path."""
    fix: str
    """Empty if the message says it."""
    near: str = ""
    """The option that an unknown one probably means; empty if none is close."""

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'config'}: {self.message}"


def read_config(path: Path | None) -> LlamaCppConfig:
    """The configuration in a YAML file. ValueError names each invalid option."""
    content: Any = yaml.safe_load(path.read_text("utf-8")) if path is not None else None
    if problems := invalid_options(content or {}):
        raise ValueError("; ".join(map(str, problems)))
    return LlamaCppConfig.model_validate(content or {})


def invalid_options(content: object) -> list[InvalidOption]:
    """What the worker rejects in the content of its configuration file."""
    try:
        LlamaCppConfig.model_validate(content)
    except ValidationError as error:
        pairs = zip(error.errors(), field_problems(error, LlamaCppConfig), strict=True)
        return [_invalid(error_details, problem) for error_details, problem in pairs]
    return []


def _invalid(error: ErrorDetails, problem: FieldProblem) -> InvalidOption:
    if error["type"] != "extra_forbidden":
        path = tuple(problem.place.split(".")) if problem.place else ()
        return InvalidOption(path, problem.message, problem.fix)
    path = tuple(map(str, error["loc"]))  # a key may contain a dot
    model = Sampling if path[0] == "sampling" and path[1:] else LlamaCppConfig
    near = nearest(path[-1], model.model_fields)
    known = did_you_mean(path[-1], model.model_fields)
    known = known or f"It has {', '.join(sorted(model.model_fields))}."
    message = f"is not an option of penstock's llama.cpp worker. {known}"
    return InvalidOption(path, message, "", near)
