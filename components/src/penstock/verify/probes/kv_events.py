"""The router sees the workers' KV events: else it only guesses what they have cached."""

from __future__ import annotations

from penstock.verify.outcome import Outcome, cannot_tell, failed, passed
from penstock.verify.target import Target

PROMPT = 300  # tokens
# A counter; Prometheus' own reader appends the suffix that its name lacks.
APPLIED = ("dynamo_component_kv_cache_events_applied_total",)


def probe(target: Target) -> Outcome:
    expected = target.expected
    if expected is None:
        return cannot_tell("no graph was given")
    before = _applied(target)
    target.complete(target.prompt(PROMPT), 2)
    came = target.wait_for(lambda: _applied(target) > before, 3.0)
    more = _applied(target) - before
    if expected.router_mode != "kv" or not expected.kv_events:
        if came:
            return failed(
                f"{more:.0f} events applied after a new prompt, and the graph turns them off"
            )
        return passed("no events, as the graph says")
    if not came:
        return failed(
            f"no KV event reached the router within 3 s of a new prompt of {PROMPT} tokens",
            "do the workers that read prompts publish events (kv-events-config,"
            " --publish-kv-events), and does the router follow them (no --no-router-kv-events)?",
        )
    return passed(f"{more:.0f} stored events applied after a new prompt of {PROMPT} tokens")


def _applied(target: Target) -> float:
    return target.metrics().total(APPLIED, event_type="stored", status="ok") or 0.0
