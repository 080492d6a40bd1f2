"""Rules about ports that several engine processes of one pod open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.vllm_connectors import connector_of
from penstock.checks.rules.routing.router import caches_prefixes, events_config, publishes
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SIDE_CHANNEL_PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
ENDPOINT = re.compile(r"^tcp://.*:(\d+)$")


@rule(
    id="PS451",
    title="two engines of one pod open the same port",
    level=Level.ERROR,
    cause="The engine processes of a pod share its network. Each opens the port of its KV events "
    "and of the NIXL side channel, plus its data-parallel rank.",
    effect="The second engine stops with “Address already in use”.",
    remedy="Give every process its own ports.",
    source="vllm/distributed/kv_events.py 355 and 530, "
    "kv_connector/v1/nixl/base_scheduler.py 76-79 of 0.31.0; dynamo#5224",
    versions=Versions(vllm=">=0.12,<0.32"),
)
def shared_port(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for name in dict.fromkeys(worker.name for worker in deployment.workers):
        processes = [
            w
            for w in deployment.workers
            if w.name == name and w.engine is Engine.VLLM and not w.launch.is_conditional
        ]
        for first, second in combinations(processes, 2):
            yield from _clashes(first, second)


def _clashes(first: Worker, second: Worker) -> Iterator[RuleResult]:
    ranges = _ranks(first), _ranks(second)
    if ranges[0] is None or ranges[1] is None:
        return
    taken = dict(_ports(first))
    for what, (port, location) in _ports(second):
        if what not in taken:
            continue
        one = range(taken[what][0] + ranges[0].start, taken[what][0] + ranges[0].stop)
        other = range(port + ranges[1].start, port + ranges[1].stop)
        if set(one) & set(other):
            yield RuleResult(
                location=location,
                message=f"two processes of {second.name} use port {max(one[0], other[0])} for "
                f"{what}",
                fix=Fix(text=f"Use port {one.stop} or higher for the second process."),
            )


def _ranks(worker: Worker) -> range | None:
    """The data-parallel ranks in the process; None if only the cluster knows them."""
    for key in ("data-parallel-rank", "data-parallel-start-rank"):
        value = worker.get(key)
        if value is not None:
            if isinstance(value, bool) or not str(value).isdigit():
                return None
            local = positive_int(worker.get("data-parallel-size-local")) or 1
            return range(int(value), int(value) + local)
    return range(worker.dp) if worker.is_laid_out else None


def _ports(worker: Worker) -> Iterator[tuple[str, tuple[int, Location]]]:
    """What the process opens, the port of rank 0, and where it is set."""
    endpoint = ENDPOINT.match(str(events_config(worker, "endpoint") or ""))
    if endpoint and publishes(worker) and caches_prefixes(worker)[0] and worker.runs_prefill:
        location = worker.config_location("kv-events-config")
        yield "KV events", (int(endpoint[1]), location)
    connector = connector_of(worker)
    text = worker.env(SIDE_CHANNEL_PORT)
    if connector is not None and connector.has_nixl and text is not None and text.isdigit():
        yield "the NIXL side channel", (int(text), worker.location("env", SIDE_CHANNEL_PORT))
