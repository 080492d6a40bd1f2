"""The router receives the workers' KV events if the graph enables them, else it predicts."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

PROMPT = 300  # tokens
# A counter; the Prometheus parser appends the suffix that its name lacks.
APPLIED = ("dynamo_component_kv_cache_events_applied_total",)


def probe(target: ProbeTarget) -> ProbeResult:
    expected = target.expected
    if expected is None:
        return cannot_tell("no graph was given")
    prompt = target.prompt(PROMPT)
    new = _applied_by(target, prompt, 3.0)
    # The least of three: other traffic counts too.
    again = min(_applied_by(target, prompt, 0.5) for _ in range(3)) if new else 0.0
    follows = new > 0 and again == 0
    counts = (
        f"a prompt of {PROMPT} tokens caused {new:.0f} stored events, its repetition {again:.0f}"
    )
    if expected.router_mode != "kv" or not expected.kv_events:
        if follows:
            return failed(f"the router follows KV events, which the graph turns off ({counts})")
        return passed(f"no KV events, as the graph declares: {counts}")
    if new == 0:
        return failed(
            f"no KV event reached the router within 3 s of a new prompt of {PROMPT} tokens",
            "Enable KV events in the workers that prefill (kv-events-config, --publish-kv-events).",
        )
    if not follows:
        return failed(
            f"the router predicts from requests: {counts}",
            "Remove --no-router-kv-events from the frontend.",
        )
    return passed(counts)


def _applied_by(target: ProbeTarget, prompt: list[int], wait_s: float) -> float:
    """Stored events that the router counts for ``prompt``. Workers report a block once; a router
    that predicts counts each request."""
    before = _applied(target)
    target.complete(prompt, 2)
    target.wait_for(lambda: _applied(target) > before, wait_s)
    return _applied(target) - before


def _applied(target: ProbeTarget) -> float:
    return target.metrics().total(APPLIED, event_type="stored", status="ok") or 0.0
