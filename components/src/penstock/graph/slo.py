"""The service level objectives (SLO) of a graph."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.strict_yaml.base import Spec
from penstock.text.numbers import limit_text

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Slo(Spec):
    ttft_ms: Milliseconds | None = Field(
        default=None,
        description="Maximum time to first token (TTFT) in milliseconds; if unset, no limit.",
    )
    itl_ms: Milliseconds | None = Field(
        default=None,
        description="Maximum mean inter-token latency (ITL) of a request in milliseconds; if "
        "unset, no limit.",
    )
    e2e_ms: Milliseconds | None = Field(
        default=None, description="Maximum end-to-end latency in milliseconds; if unset, no limit."
    )

    def __bool__(self) -> bool:
        """Whether any objective is set."""
        return any(getattr(self, name) is not None for name in type(self).model_fields)

    def __str__(self) -> str:
        objectives = {"TTFT": self.ttft_ms, "ITL": self.itl_ms, "end to end": self.e2e_ms}
        return ", ".join(
            f"{what} ≤ {limit_text(ms)} ms" for what, ms in objectives.items() if ms is not None
        )
