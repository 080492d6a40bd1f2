"""A streamed answer is the same answer: same tokens, same usage, and a proper end."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT, ANSWER = 50, 16  # tokens


def probe(target: ProbeTarget) -> ProbeResult:
    prompt = target.prompt(PROMPT)
    whole = target.complete(prompt, ANSWER)
    events = list(target.stream(prompt, ANSWER))
    if not events or events[-1] is not None:
        return failed("the stream ended without [DONE]", "a proxy cuts or buffers the stream")
    chunks = [event for event in events if event is not None]
    ids = [i for c in chunks for i in (c.get("nvext") or {}).get("completion_token_ids") or []]
    text = "".join(choice.get("text") or "" for c in chunks for choice in c.get("choices") or [])
    reasons = [
        r for c in chunks for choice in c.get("choices") or [] if (r := choice.get("finish_reason"))
    ]
    usage = next((c["usage"]["completion_tokens"] for c in chunks if c.get("usage")), None)
    if reasons != [whole.choice.get("finish_reason")] or usage != ANSWER:
        return failed(f"finish reasons {reasons}, {usage} tokens in usage, expected {ANSWER}")
    if (ids, text) == (whole.token_ids, whole.choice.get("text")):
        return passed(f"{ANSWER} tokens alike in {len(chunks)} events")
    if target.complete(prompt, ANSWER).token_ids != whole.token_ids:
        return cannot_tell("greedy answers do not repeat, so two cannot be compared")
    return failed(f"streamed {text!r}, whole {whole.choice.get('text')!r}")
