"""The frontends run with the graph's migration limit, according to their logs."""

from __future__ import annotations

from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget

LIMIT = r"Request migration (?:enabled|disabled) \(limit: (?P<limit>\d+)"
MOVED = ("dynamo_frontend_model_migration_total",)


def probe(target: ProbeTarget) -> ProbeResult:
    if target.expected is None:
        return cannot_tell("no graph was given")
    limits = {int(match["limit"]) for match in target.log_matches(LIMIT)}
    expected = target.expected.migration_limit
    if not limits:
        return cannot_tell(
            "no frontend's log has the migration limit",
            "Give the frontends' logs (--log) at level info.",
        )
    if limits != {expected}:
        return failed(
            f"the migration limit is {expected} in the graph, "
            f"{', '.join(map(str, sorted(limits)))} in the frontends",
            "With 0 a request fails with its worker. Restart the frontend with the graph's limit.",
        )
    moved = target.metrics().total(MOVED) or 0.0
    return passed(f"limit {expected}; {moved:.0f} requests migrated so far")
