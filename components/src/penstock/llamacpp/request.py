"""A request of Dynamo's frontend as a completion of llama.cpp's server. Pure.

InvalidArgument becomes a 400 for the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dynamo.llm.exceptions import InvalidArgument

from penstock.llamacpp.config import Sampling
from penstock.llamacpp.structural_tag import grammar_of, requires_tag

SEEDS = 2**32 - 1  # the last 32-bit number is llama.cpp's request for a random seed
# Dynamo's name → llama.cpp's.
SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
}
NO_PENALTY = {"presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one request asks of llama.cpp."""

    prompt: tuple[int, ...]
    max_tokens: int
    body: Mapping[str, Any]
    """Sampling parameters and the grammar, in llama.cpp's names."""
    top_logprobs: int | None = None
    """Alternatives per token; None: no log probabilities."""
    stop_tokens: frozenset[int] = field(default_factory=frozenset)
    has_optional_grammar: bool = False
    """Whether the output is useful without the grammar: that of tool calls that may be left out."""

    def without_grammar(self) -> Asked:
        return replace(self, body={k: v for k, v in self.body.items() if k != "grammar"})

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar restricts the output from its first token."""
        return "grammar" in self.body or "json_schema" in self.body


def read_request(request: Mapping[str, Any], context_length: int, defaults: Sampling) -> Asked:
    """``context_length``: of a slot, in tokens; ``defaults``: for parameters that are not set."""
    prompt = tuple(int(token) for token in request["token_ids"])
    sampling = request.get("sampling_options") or {}
    stop = request.get("stop_conditions") or {}
    output = request.get("output_options") or {}
    room = context_length - len(prompt)
    if not prompt:
        raise InvalidArgument("The prompt is empty.")
    if room < 1:
        raise InvalidArgument(
            f"This model's maximum context length is {context_length} tokens. However, the prompt "
            f"has {len(prompt)} tokens. Reduce the length of the messages."
        )
    _require_one_choice(sampling)
    if stop.get("min_tokens"):
        raise InvalidArgument("llama.cpp does not support min_tokens.")
    asked = stop.get("max_tokens")
    if output.get("prompt_logprobs") is not None:
        raise InvalidArgument(
            "llama.cpp supports neither `echo` nor log probabilities of the prompt."
        )
    hidden = (*(stop.get("stop_token_ids_hidden") or ()), *(stop.get("stop_token_ids") or ()))
    ignores_eos = bool(stop.get("ignore_eos"))
    logprobs = output.get("logprobs")
    return Asked(
        prompt=prompt,
        max_tokens=room if asked is None else min(int(asked), room),
        body={
            **_sampling(sampling, defaults),
            **_grammar(sampling.get("guided_decoding")),
            **({} if logprobs is None else {"n_probs": max(1, int(logprobs))}),
            "ignore_eos": ignores_eos,
        },
        top_logprobs=None if logprobs is None else int(logprobs),
        stop_tokens=frozenset() if ignores_eos else frozenset(hidden),
        has_optional_grammar=_may_be_left_out(sampling.get("guided_decoding")),
    )


def _require_one_choice(sampling: Mapping[str, Any]) -> None:
    """Dynamo's frontend ends a response with the first choice that ends, so the others are cut."""
    for name in ("n", "best_of"):
        if int(sampling.get(name) or 1) != 1:
            raise InvalidArgument(
                f"{name} is {sampling[name]}: the llamacpp engine generates one choice per request."
            )


def _sampling(requested: Mapping[str, Any], defaults: Sampling) -> dict[str, Any]:
    """Every parameter is set: llama.cpp's own defaults differ from OpenAI's."""
    body: dict[str, Any] = {
        **NO_PENALTY,
        "temperature": defaults.temp,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
        "repeat_penalty": defaults.repeat_penalty,
    }
    body |= {
        llamacpp_name: requested[name]
        for name, llamacpp_name in SAMPLING.items()
        if requested.get(name) is not None
    }
    body["top_k"] = max(0, int(body["top_k"]))  # Dynamo: -1 is all tokens
    if requested.get("seed") is not None:
        body["seed"] = int(requested["seed"]) % SEEDS
    return body


def _grammar(guided: Any) -> dict[str, Any]:
    """`json_schema` or `grammar` of one of Dynamo's guided decoding fields."""
    if not isinstance(guided, Mapping):
        return {}
    if guided.get("whitespace_pattern") is not None:
        raise InvalidArgument("llama.cpp does not support guided_whitespace_pattern.")
    constraints = {k: v for k, v in guided.items() if v is not None and k in GUIDED}
    if not constraints:
        if guided.get("regex") is not None:
            raise InvalidArgument("llama.cpp does not support guided decoding by regex.")
        return {}
    if len(constraints) > 1:
        raise InvalidArgument(f"Guided decoding needs one of {', '.join(sorted(constraints))}.")
    ((name, value),) = constraints.items()
    return GUIDED[name](value)


def _may_be_left_out(guided: Any) -> bool:
    tag = guided.get("structural_tag") if isinstance(guided, Mapping) else None
    return tag is not None and not requires_tag(tag)


def _json(value: Any) -> dict[str, Any]:
    """``value``: a JSON schema, or its text."""
    if not isinstance(value, str):
        return {"json_schema": value}
    try:
        return {"json_schema": json.loads(value)}
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"The JSON schema of this request is not JSON: {error}") from None


def _choice(value: Any) -> dict[str, Any]:
    if not value:
        raise InvalidArgument("guided_choice has no choices.")
    return {"grammar": "root ::= " + " | ".join(f'"{_quoted(str(word))}"' for word in value)}


def _quoted(word: str) -> str:
    """In GBNF, which has fewer escapes than JSON."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(c if c >= " " else f"\\x{ord(c):02X}" for c in escaped)


GUIDED: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "json": _json,
    "choice": _choice,
    "grammar": lambda value: {"grammar": str(value)},
    "structural_tag": lambda value: {"grammar": grammar_of(value)},
}
