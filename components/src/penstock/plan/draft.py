"""The draft model and the acceptance rates with which `plan` considers EAGLE-3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from penstock.errors import Problem, UsageError

METHOD = "EAGLE-3"
# By model; the draft models that Dynamo's recipes use.
DRAFT_MODELS: Mapping[str, str] = {"openai/gpt-oss-120b": "nvidia/gpt-oss-120b-Eagle3-v3"}
TOKENS = 3  # drafted in each step, as in those recipes


@dataclass(frozen=True, kw_only=True)
class Draft:
    """EAGLE-3 with a draft model, and how many of its tokens are accepted."""

    model: str  # id or path of the draft model
    rates: tuple[float, ...]  # that token 1, 2, … is accepted, given that those before it were

    @property
    def tokens(self) -> int:
        """Tokens that are drafted in each step."""
        return len(self.rates)

    @property
    def length(self) -> float:
        """Mean number of tokens that a step generates for a request."""
        return 1.0 + sum(prod(self.rates[:token]) for token in range(1, self.tokens + 1))


def draft_of(
    model: str, draft_model: str | None, acceptance: tuple[float, ...] | None
) -> Draft | None:
    """None without acceptance rates: then speculative decoding is not considered.

    UsageError for a model whose draft model is not known.
    """
    if acceptance is None:
        if draft_model is None:
            return None
        message = "no acceptance rates are given"
        fix = "Add --acceptance RATES, such as --acceptance chat."
        raise UsageError(Problem(place="--draft-model", message=message, fix=fix))
    found = draft_model or DRAFT_MODELS.get(model)
    if found is None:
        message = f"no draft model is known for {model}"
        fix = "Name one with --draft-model ID."
        raise UsageError(Problem(place="--acceptance", message=message, fix=fix))
    return Draft(model=found, rates=acceptance[:TOKENS])
