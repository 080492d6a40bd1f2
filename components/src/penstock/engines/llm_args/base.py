"""What every section of TensorRT-LLM's engine YAML shares."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
# A section that penstock does not look into.
Opaque = dict[str, Any]


class EngineArgs(BaseModel):
    """As TensorRT-LLM's StrictBaseModel: an unknown key stops the worker at its start.

    Types are pydantic's lax ones, because the engine's are: it takes "64" for a number.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), defer_build=True
    )

    @classmethod
    def defaults(cls) -> Self:
        """As `cls()`, for the default of a field: without making a validator at the import."""
        return cls.model_construct()
