"""The router sees the workers' KV events: else it only guesses what they have cached."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 300  # tokens
# A counter; Prometheus' own reader appends the suffix that its name lacks.
APPLIED = ("dynamo_component_kv_cache_events_applied_total",)


def probe(target: ProbeTarget) -> ProbeResult:
    expected = target.expected
    if expected is None:
        return cannot_tell("no graph was given")
    prompt = target.prompt(PROMPT)
    new = _applied_by(target, prompt, 3.0)
    # The least of three: what others ask meanwhile counts too.
    again = min(_applied_by(target, prompt, 0.5) for _ in range(3)) if new else 0.0
    follows = new > 0 and again == 0
    told = f"a new prompt of {PROMPT} tokens stored {new:.0f} times, again {again:.0f} times"
    if expected.router_mode != "kv" or not expected.kv_events:
        if follows:
            return failed(f"the router follows KV events ({told}), and the graph turns them off")
        return passed(f"no events, as the graph says: {told}")
    if new == 0:
        return failed(
            f"no KV event reached the router within 3 s of a new prompt of {PROMPT} tokens",
            "do the workers that read prompts publish events (kv-events-config,"
            " --publish-kv-events)?",
        )
    if not follows:
        return failed(
            f"the router guesses from requests: {told}",
            "the frontend runs with --no-router-kv-events",
        )
    return passed(told)


def _applied_by(target: ProbeTarget, prompt: list[int], wait_s: float) -> float:
    """Stored events that the router counts for ``prompt``. Workers tell of a block once; a router
    that guesses counts each request."""
    before = _applied(target)
    target.complete(prompt, 2)
    target.wait_for(lambda: _applied(target) > before, wait_s)
    return _applied(target) - before


def _applied(target: ProbeTarget) -> float:
    return target.metrics().total(APPLIED, event_type="stored", status="ok") or 0.0
