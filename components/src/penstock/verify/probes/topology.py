"""The frontend sees the graph's number of workers of each role, all of one generation."""

from __future__ import annotations

from collections import Counter

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget


def probe(target: ProbeTarget) -> ProbeResult:
    instances = target.instances()
    counts = Counter(i.role for i in instances)
    observed = f"{counts[Role.PREFILL]} prefill, {counts[Role.DECODE]} decode or aggregated"
    namespaces = sorted({i.namespace for i in instances})
    if len(namespaces) > 1:
        return failed(
            f"workers of {len(namespaces)} generations serve: {', '.join(namespaces)}",
            "A rollout is in progress or stuck: read the newest generation's logs.",
        )
    if target.expected is None:
        return cannot_tell(f"no graph was given; the frontend sees {observed}")
    workers = target.expected.workers
    expected = {
        Role.PREFILL: workers.get(Role.PREFILL, 0),
        Role.DECODE: workers.get(Role.DECODE, 0) + workers.get(Role.WORKER, 0),
    }
    wrong = [
        f"{role}: {counts[role]} workers, expected {count}"
        for role, count in expected.items()
        if counts[role] != count
    ]
    if wrong:
        return failed(
            "; ".join(wrong),
            "Read the log of a missing worker, or check whether the pool was scaled.",
        )
    empty = target.expected.empty_pools
    declared = f"; the graph declares 0 replicas of {', '.join(empty)}" if empty else ""
    return passed(f"{observed}, generation {', '.join(namespaces)}{declared}")
