"""A request may move to another worker as often as the graph says: the frontend's own word."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

SAID = r"Request migration (?:enabled|disabled) \(limit: (?P<limit>\d+)"
MOVED = ("dynamo_frontend_model_migration_total",)


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is None:
        return cannot_tell("no graph was given")
    said = {int(match["limit"]) for match in target.log_matches(SAID)}
    wanted = target.expected.migration_limit
    if not said:
        return cannot_tell(
            "no frontend's log says its limit", "give the frontends' logs (--log), at level info"
        )
    if said != {wanted}:
        return failed(
            f"the graph says {wanted}, the frontends say {', '.join(map(str, sorted(said)))}",
            "with 0 a request dies with its worker: start the frontend with the graph's limit",
        )
    moved = target.metrics().total(MOVED) or 0.0
    return passed(f"limit {wanted}; {moved:.0f} requests moved so far")
