"""The parameters of /v1/responses. Dynamo ignores all others there, but not in chat completions."""

from __future__ import annotations

from .prompt import Body
from .refusal import UNSUPPORTED, Refusal

# OpenAI's, then Dynamo's. Dynamo or `rules` refuses some of them.
KNOWN = frozenset(
    {
        *("background", "context_management", "conversation", "include", "input", "instructions"),
        *("max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"),
        *("parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
        *("service_tier", "store", "stream", "stream_options", "temperature", "text"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
        *("chat_template_args", "chat_template_kwargs", "nvext", "thinking_token_budget"),
    }
)
# A parameter of chat completions → what /v1/responses has for it.
INSTEAD = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "guided_json": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}


def review_fields(body: Body) -> Refusal | None:
    """For a parameter that /v1/responses does not have."""
    for name, value in body.items():
        if name in KNOWN or value is None:
            continue
        fix = f"Use {INSTEAD[name]!r}" if name in INSTEAD else "Remove it from the request"
        return Refusal(
            message=f"/v1/responses has no parameter {name!r}, so Dynamo would ignore it. {fix}.",
            param=name,
            code=UNSUPPORTED,
        )
    return None
