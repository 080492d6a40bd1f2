"""A streamed response has the same tokens and usage as one that is not, and ends with [DONE]."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT, OUTPUT = 50, 16  # tokens


def probe(target: ProbeTarget) -> ProbeResult:
    prompt = target.prompt(PROMPT)
    response = target.complete(prompt, OUTPUT)
    events = list(target.stream(prompt, OUTPUT))
    if not events or events[-1] is not None:
        return failed("the stream ended without [DONE]", "A proxy cuts or buffers the stream.")
    chunks = [event for event in events if event is not None]
    ids = [i for c in chunks for i in (c.get("nvext") or {}).get("completion_token_ids") or []]
    text = "".join(choice.get("text") or "" for c in chunks for choice in c.get("choices") or [])
    reasons = [
        r for c in chunks for choice in c.get("choices") or [] if (r := choice.get("finish_reason"))
    ]
    usage = next((c["usage"]["completion_tokens"] for c in chunks if c.get("usage")), None)
    if reasons != [response.choice.get("finish_reason")] or usage != OUTPUT:
        return failed(f"finish reasons {reasons}, {usage} tokens in usage, expected {OUTPUT}")
    if (ids, text) == (response.token_ids, response.choice.get("text")):
        return passed(f"the same {OUTPUT} tokens in {len(chunks)} events")
    if target.complete(prompt, OUTPUT).token_ids != response.token_ids:
        return cannot_tell("greedy outputs are not repeatable, so two cannot be compared")
    return failed(f"streamed {text!r}, not streamed {response.choice.get('text')!r}")
