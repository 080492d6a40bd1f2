"""The section `speculation` of a graph."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from penstock.graph.messages import problem
from penstock.strict_yaml.base import Positive, Spec, Text

NO_SPECULATION = ("mocker", "llamacpp")  # engines without it


class Speculation(Spec):
    method: Literal["eagle3", "mtp", "ngram"] = Field(description="Method that drafts the tokens.")
    draft_model: Text | None = Field(
        default=None, description="ID or path of the draft model, required by eagle3."
    )
    draft_revision: Text | None = Field(
        default=None,
        description=(
            "Commit of the draft model. model.cache.download requires it, unless draft_model is a "
            "path."
        ),
    )
    draft_tokens: Positive = Field(
        default=3, description="Number of tokens that are drafted per step."
    )

    @model_validator(mode="after")
    def _eagle_needs_a_draft_model(self) -> Self:
        if self.method == "eagle3" and self.draft_model is None:
            raise problem("draft_model", "draft_model_missing", method=self.method)
        if self.method != "eagle3" and self.draft_model is not None:
            raise problem("draft_model", "draft_model_unused", method=self.method)
        return self
