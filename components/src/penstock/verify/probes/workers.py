"""The probes of workers: which serve, which models, and how the frontends use them."""

from __future__ import annotations

from collections import Counter

from penstock.manifests.deployment import Role
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ProbeTarget


def topology(target: ProbeTarget) -> ProbeResult:
    """The frontend sees the graph's number of workers of each role, all of one generation."""
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


def models(target: ProbeTarget) -> ProbeResult:
    """Every model of the graph is listed, and every listed model completes a request."""
    if not target.models:
        return failed("/v1/models lists nothing", _missing_pool(target))
    missing = [
        m for m in (target.expected.models if target.expected else ()) if m not in target.models
    ]
    if missing:
        return failed(
            f"/v1/models lists {', '.join(target.models) or 'nothing'}, without {missing[0]}",
            _missing_pool(target),
        )
    for model in target.models:
        body = {"model": model, "prompt": target.prompt(8), "max_tokens": 2}
        response = target.post("/v1/completions", body)
        if response.status == 503:
            return failed(f"{model}: HTTP 503: {response.text}", _missing_pool(target))
        if response.status != 200:
            return failed(
                f"{model}: HTTP {response.status}: {response.text}", "Read the frontend's log."
            )
        if not isinstance(response.choice.get("text"), str):
            return failed(f"{model}: a response without text: {response.text}")
    return passed(", ".join(target.models))


def _missing_pool(target: ProbeTarget) -> str:
    """Which pool is missing: Dynamo 1.6.1 returns 503 and does not name it."""
    roles = {i.role for i in target.instances()}
    expects_prefill = target.expected is None or target.expected.disaggregated
    if expects_prefill and Role.PREFILL not in roles:
        return "The prefill pool is missing: no prefill worker is registered."
    if Role.DECODE not in roles:
        return "The decode pool is missing: no decode worker is registered."
    return "Workers of each pool are registered; read the frontend's log."


UNKNOWN_MODEL = "penstock/no-such-model"


def unknown_model(target: ProbeTarget) -> ProbeResult:
    """A request for an unknown model gets status 404 with a JSON body."""
    for path, prompt in (
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        response = target.post(path, {"model": UNKNOWN_MODEL, "max_tokens": 1, **prompt})
        if response.status != 404 or not response.body:
            return failed(
                f"{path}: HTTP {response.status}: {response.text}",
                "A proxy in front of the frontend responds instead of it.",
            )
    return passed("status 404 with a JSON body, for completions and chat")


SHORT_PROMPT = 200  # tokens


def disaggregation(target: ProbeTarget) -> ProbeResult:
    """A request uses a prefill and a decode worker in a disaggregated graph, else one worker."""
    workers = target.complete(target.prompt(SHORT_PROMPT), 4).workers
    prefill, decode = workers.get("prefill_worker_id"), workers.get("decode_worker_id")
    if decode is None:
        return cannot_tell(
            "the response names no worker",
            "Only the KV router and a direct endpoint report worker ids.",
        )
    if target.expected is None:
        return cannot_tell(f"no graph was given; prefill {_hex(prefill)}, decode {_hex(decode)}")
    if not target.expected.disaggregated:
        if prefill not in (None, decode):
            return failed(
                f"prefill on {_hex(prefill)}, decode on {_hex(decode)}, but the graph has one pool",
                "Workers of another graph serve this model.",
            )
        return passed(f"worker {_hex(decode)} did prefill and decode")
    if prefill is None or prefill == decode:
        return failed(
            f"worker {_hex(decode)} served the request alone",
            "No prefill worker takes part: see `topology`.",
        )
    roles = {i.worker_id: i.role for i in target.instances()}
    if roles.get(prefill) is not Role.PREFILL or roles.get(decode) is not Role.DECODE:
        return failed(
            f"prefill on {_hex(prefill)}, decode on {_hex(decode)}: not workers of these pools"
        )
    return passed(f"prefill on {_hex(prefill)}, decode on {_hex(decode)}")


def _hex(worker: int | None) -> str:
    return "none" if worker is None else f"{worker:x}"


MIGRATION_LINE = r"Request migration (?:enabled|disabled) \(limit: (?P<limit>\d+)"
MIGRATED = ("dynamo_frontend_model_migration_total",)
WITH_GRAMMAR = (
    "requests with `response_format` or a required tool never migrate: a killed worker loses them "
    "(dynamo#7930)"
)


def migration(target: ProbeTarget) -> ProbeResult:
    """The frontends run with the graph's migration limit, according to their logs."""
    if target.expected is None:
        return cannot_tell("no graph was given")
    limits = {int(match["limit"]) for match in target.log_matches(MIGRATION_LINE)}
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
    moved = target.metrics().total(MIGRATED) or 0.0
    unless = f"; {WITH_GRAMMAR}" if expected else ""
    return passed(f"limit {expected}; {moved:.0f} requests migrated so far{unless}")
