"""The workers that the frontend sees are the graph's: of each role, one generation."""

from __future__ import annotations

from collections import Counter

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget


def probe(target: ProbeTarget) -> ProbeResult:
    instances = target.instances()
    seen = Counter(i.role for i in instances)
    told = f"{seen[Role.PREFILL]} prefill, {seen[Role.DECODE]} decode or aggregated"
    namespaces = sorted({i.namespace for i in instances})
    if len(namespaces) > 1:
        return failed(
            f"workers of {len(namespaces)} generations serve: {', '.join(namespaces)}",
            "a roll-out is under way or stuck: look at the newest generation's pods and logs",
        )
    if target.expected is None:
        return cannot_tell(f"no graph was given to compare with; the frontend sees {told}")
    workers = target.expected.workers
    wanted = {
        Role.PREFILL: workers.get(Role.PREFILL, 0),
        Role.DECODE: workers.get(Role.DECODE, 0) + workers.get(Role.WORKER, 0),
    }
    wrong = [
        f"{role}: {seen[role]} of {count} workers"
        for role, count in wanted.items()
        if seen[role] != count
    ]
    if wrong:
        return failed(
            "; ".join(wrong),
            "look at the log of a worker that is missing, or whether somebody scaled",
        )
    return passed(f"{told}, generation {', '.join(namespaces)}")
