"""The words that a graph may choose from, and how its validators refuse."""

from __future__ import annotations

from typing import Literal

from pydantic_core import PydanticCustomError

EngineKind = Literal["trtllm", "vllm", "sglang", "mocker"]
Device = Literal["gpu", "cpu"]
Probe = Literal[
    "models",
    "unknown-model",
    "topology",
    "disaggregation",
    "kv-transfer",
    "transport",
    "kv-routing",
    "kv-events",
    "block-size",
    "prefix-cache",
    "context-length",
    "streaming",
    "greedy",
    "reasoning-parser",
    "tool-call-parser",
    "cancel",
    "migration",
]
RouterMode = Literal[
    "kv",
    "round-robin",
    "random",
    "power-of-two",
    "least-loaded",
    "direct",
    "device-aware-weighted",
]


def refuse(place: str, message: str, fix: str) -> PydanticCustomError:
    """A refusal by a validator that sees several fields; the loader turns it into a Problem."""
    return PydanticCustomError(
        "penstock", "{message}", {"message": message, "place": place, "fix": fix}
    )
