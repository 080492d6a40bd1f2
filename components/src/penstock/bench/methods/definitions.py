"""Definitions of Artificial Analysis and OpenRouter, one line each (docs/methods.md)."""

from __future__ import annotations

SPEED, THROUGHPUT = "output speed (Artificial Analysis)", "throughput (OpenRouter)"
DEFINITIONS = {
    SPEED: "output tokens/s of a request after its first token: TTFT is excluded",
    THROUGHPUT: "output tokens of a request / its complete duration: TTFT is included",
}


def definition_lines() -> list[str]:
    return [f"{name}: {text}" for name, text in DEFINITIONS.items()]
