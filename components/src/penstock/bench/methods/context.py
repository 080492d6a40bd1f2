"""The context length that an endpoint serves, as its `/v1/models` reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.verify.target import ProbeTarget

DYNAMO = "context_window"  # the key of Dynamo's frontend
VLLM = "max_model_len"  # of vLLM and SGLang
LLAMACPP = "n_ctx"  # in the object `meta`


def reported_context(model: Mapping[str, Any]) -> int | None:
    """In tokens. ``model``: one entry of `/v1/models`. None if it does not contain a positive
    integer."""
    meta = model.get("meta")
    llamacpp = meta.get(LLAMACPP) if isinstance(meta, Mapping) else None
    for value in (llamacpp, model.get(VLLM), model.get(DYNAMO)):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def served_context(url: str, name: str) -> int | None:
    """In tokens, of model ``name`` at ``url`` (without `/v1`); None if it is not reported."""
    endpoint = ProbeTarget(url=url)
    try:
        listed = endpoint.get("/v1/models").body.get("data")
    finally:
        endpoint.close()
    entries = [
        entry for entry in listed or () if isinstance(entry, dict) and entry.get("id") == name
    ]
    return reported_context(entries[0]) if entries else None
