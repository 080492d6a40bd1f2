"""Dynamo's own worker settings, which every engine's worker has: endpoint, parsers and router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engines.engine import given
from penstock.manifests.deployment import Launch


def explicit_endpoint(launch: Launch, settings: Mapping[str, Any]) -> str | None:
    """The address under which the worker registers, if the launch sets it or its namespace.

    If it is unset, engine and mocker agree: `dyn://$DYN_NAMESPACE.prefill.generate` for prefill
    workers, else `.backend.generate`. The mocker has no --namespace and does not read DYN_ENDPOINT.
    """
    if given(launch, "--endpoint", "--namespace", "DYN_ENDPOINT") is None:
        return None
    return "dyn://{namespace}.{component}.{endpoint}".format_map(settings)


def speculation_line(kind: str, tokens: Any) -> str:
    """Why the mocker does not simulate speculative decoding."""
    drafted = f", {tokens} tokens" if tokens else ""
    return (
        f"speculative decoding ({kind}{drafted}): the mocker needs a measured acceptance rate,"
        " so it decodes one token per step"
    )


def parser_lines(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of Dynamo's worker settings have no effect on the mocker, and why."""
    lines = []
    names = (settings.get("dyn_reasoning_parser"), settings.get("dyn_tool_call_parser"))
    if found := [name for name in names if name]:
        lines.append(
            f"reasoning and tool parsers ({', '.join(found)}): the mocker's output is random"
            " tokens, so there is nothing to parse"
        )
    if settings.get("enable_multimodal"):
        lines.append("multimodal input: the mocker reads text only")
    advertised = settings.get("router_advertisement") or {}
    if mode := advertised.get("router_mode"):
        lines.append(
            f"--router-mode {mode} advertised by the worker: the frontend's own mode applies"
        )
    return tuple(lines)
