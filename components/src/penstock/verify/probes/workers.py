"""The probes of workers: which serve, which models, and how the frontends use them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

from penstock.live.scrape import SENT, Scrape, Scrapes
from penstock.local.load import GENERATE
from penstock.manifests.deployment import WORKERS, Role
from penstock.text.numbers import count_of
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import NoResponseError, ProbeTarget


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


ANSWER_S = 20.0  # for 2 tokens of output, also of a worker with long prompts of others
POLL_S = 1.0
ROUNDS = 3
AT_ONCE = 32  # requests
PINS = {Role.PREFILL: "prefill_worker_id", Role.DECODE: "decode_worker_id"}


def workers(target: ProbeTarget) -> ProbeResult:
    """Each worker responds to a request that names it: its pod can be ready while it hangs."""
    check = AnswerCheck(target)
    if not check.roles:
        return failed("the frontend lists no workers", "Read the workers' logs.")
    for _ in range(ROUNDS):
        check.ask()
    problems = [*check.hung.values(), *_unusable(target, check.roles)]
    for worker in check.unknown:
        name = _name(target, worker)
        if worker in check.errors:
            problems.append(f"no response by {name}: {check.errors[worker]}")
        elif problems:
            problems.append(f"{name} is not tested, as its requests need a worker that hangs")
    if not problems and not check.answered:
        return cannot_tell("no response names a worker", "Use a frontend's port, without a proxy.")
    if not problems and check.unknown:
        names = ", ".join(_name(target, worker) for worker in check.unknown)
        return cannot_tell(f"the frontend sends no request to {names}", "Repeat the probe.")
    if problems:
        return failed("; ".join(problems), "Read the log of this worker, and restart it.")
    names = ", ".join(sorted(_name(target, worker) for worker in check.answered))
    return passed(f"{count_of(len(check.roles), 'worker')} responded: {names}")


def _name(target: ProbeTarget, worker: int) -> str:
    process = target.workers.get(worker)
    return process.name if process else f"worker {worker:x}"


def _unusable(target: ProbeTarget, listed: Collection[int]) -> Iterator[str]:
    for worker, process in target.workers.items():
        if worker not in listed:
            yield f"{process.name} is ready, but the frontend does not list it"
    exporting = {process.name for process in target.workers.values()}
    for process in target.processes if exporting else ():
        if process.role in WORKERS and process.metrics and process.name not in exporting:
            yield f"{process.name} is ready, but returns no metrics"


class AnswerCheck:
    """Sends requests to workers that have not answered yet, and follows the metrics meanwhile.

    A request names a prefill and a decode worker. If the frontend ignores the names, the response
    still states which workers served it.
    """

    def __init__(self, target: ProbeTarget) -> None:
        self._target, self._scrapes = target, Scrapes()
        self.roles = {i.worker_id: i.role for i in target.instances()}
        self.answered: set[int] = set()
        self.hung: dict[int, str] = {}
        """By worker: what its metrics show."""
        self.errors: dict[int, str] = {}
        """By worker: why the last request that named it has no response."""
        self._follow()
        self._sent = {worker: self._sent_by(worker) for worker in self.roles}

    @property
    def unknown(self) -> list[int]:
        return [w for w in self.roles if w not in self.answered and w not in self.hung]

    def ask(self) -> None:
        """Send each unknown worker one request, for at most ANSWER_S."""
        pairs, self.errors = list(self._pairs()), {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            requests = [pool.submit(self._served_by, pair) for pair in pairs]
            while wait(requests, POLL_S).not_done:
                self._follow()
        for pair, request in zip(pairs, requests, strict=True):
            served = request.result()
            if not isinstance(served, str):
                self.answered |= served
                continue
            stalls = {worker: text for worker in pair if (text := self._stall(worker))}
            self.hung |= stalls
            for worker in pair:
                if worker not in stalls and self._sent_by(worker) > self._sent[worker]:
                    self.answered.add(worker)  # the other one of the pair has not
                elif not stalls:
                    self.errors[worker] = served

    def _pairs(self) -> Iterator[tuple[int, ...]]:
        """Each unknown worker with one of the other role that does not hang, if there are both
        roles: one that has answered, if possible."""
        for number, worker in enumerate(self.unknown):
            others = [w for w in self.roles if self.roles[w] is not self.roles[worker]]
            usable = [w for w in others if w not in self.hung]
            partners = [w for w in usable if w in self.answered] or usable
            if partners:
                yield worker, partners[number % len(partners)]
            elif not others:
                yield (worker,)

    def _served_by(self, pair: Iterable[int]) -> set[int] | str:
        """The workers that the response names, or why there is no response."""
        target = self._target
        pins = {PINS[self.roles[worker]]: worker for worker in pair}
        try:
            served = target.complete(target.prompt(8), 2, ANSWER_S, nvext=pins).workers
        except NoResponseError as error:
            return str(error)
        return {int(served[name]) for name in PINS.values() if served.get(name) is not None}

    def _follow(self) -> None:
        read = self._target.scrapes(self._target.workers.values())
        at_s = time.monotonic()
        scrapes = {n: Scrape(at_s=at_s, metrics=m) if m.samples else None for n, m in read.items()}
        self._scrapes.add(scrapes, scrapes)

    def _sent_by(self, worker: int) -> float:
        """Bytes of its responses, as far as they are known."""
        process = self._target.workers.get(worker)
        interval = self._scrapes.interval(process.name) if process else None
        return (interval.now.metrics.total([SENT], **GENERATE) or 0.0) if interval else 0.0

    def _stall(self, worker: int) -> str:
        process = self._target.workers.get(worker)
        seconds = self._scrapes.stalled_s(process.name) if process else 0.0
        if process is None or seconds < ANSWER_S / 2:
            return ""
        return f"{process.name} hangs: requests in flight, and nothing sent for {seconds:.0f} s"


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
