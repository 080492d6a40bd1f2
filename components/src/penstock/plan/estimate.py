"""What a candidate would give, reckoned from step times: queues in one formula each, no replay.

It only chooses what is replayed; no figure of it is shown as a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.graph.slo import Slo
from penstock.manifests.deployment import Role
from penstock.plan.space import Candidate, Layout, PoolCandidate
from penstock.plan.steps import Steps, prompts_per_step
from penstock.plan.traffic import Traffic

BISECTIONS = 20
HIGHEST = 4096.0  # times the workload's load, at the most
ENDLESS = 1_000_000  # workers that wait for nothing
TAIL = 3.0  # a queue's 95th percentile over its mean, where services are alike
UNEVEN = 1.1  # a request's time between tokens over the mean one, at the 95th percentile
UNBALANCED_REUSE = 0.5  # of what could be reused, where the router does not look for it
Gap = Callable[[float], float | None]
Pair = tuple[float, float] | None
Table = Mapping[tuple[Layout, Role], Steps]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """At one load: ``ttft_ms`` and ``itl_ms`` that 95 % stay below, ``user_rate`` of the mean
    request in tokens a second; ``running``: requests of one rank at once."""

    ttft_ms: float
    itl_ms: float
    user_rate: float
    running: float

    def meets(self, slo: Slo, output: int) -> bool:
        e2e = self.ttft_ms + output * self.itl_ms
        pairs = ((self.ttft_ms, slo.ttft_ms), (self.itl_ms, slo.itl_ms), (e2e, slo.e2e_ms))
        return all(most is None or took <= most for took, most in pairs)


class Estimator:
    def __init__(self, table: Table, traffic: Traffic, transfer_ms: float) -> None:
        self._table = table
        self._traffic = traffic
        self._transfer_ms = transfer_ms
        self._known: dict[tuple[Candidate, Slo], float] = {}

    def scaled(self, scale: float) -> Estimator:
        """Of ``scale`` times the traffic."""
        return Estimator(self._table, self._traffic.scaled(scale), self._transfer_ms)

    def at(self, candidate: Candidate, scale: float) -> Estimate | None:
        """None where the engines do not keep up."""
        traffic = self._traffic
        if traffic.users is None:
            return self._of(candidate, traffic.rate * scale)
        users = max(1, round(traffic.users * scale))
        low, high, best = 0.0, users * 1000.0, None
        for _ in range(BISECTIONS):
            rate = (low + high) / 2
            found = self._of(candidate, rate)
            if found is not None and self._users(found, rate) <= users:
                low, best = rate, found
            else:
                high = rate
        return best

    def capacity(self, candidate: Candidate, slo: Slo) -> float:
        """The highest load, as a scale of the workload's, at which the SLO is met; 0 if none.

        Workers share the load, so it is that of one of each pool beside endless others, as often
        as there are workers: a few such answers serve thousands of candidates.
        """
        pools = candidate.pools
        return min(pool.replicas * self._alone(candidate, at, slo) for at, pool in enumerate(pools))

    def _alone(self, candidate: Candidate, at: int, slo: Slo) -> float:
        """With one worker of the pool ``at``."""
        pools = [replace(pool, replicas=ENDLESS) for pool in candidate.pools]
        pools[at] = replace(pools[at], replicas=1)
        *prefill, worker = pools
        one = Candidate(prefill=tuple(prefill), worker=worker, router=candidate.router)
        if (one, slo) not in self._known:
            self._known[one, slo] = self._capacity(one, slo)
        return self._known[one, slo]

    def _capacity(self, candidate: Candidate, slo: Slo) -> float:
        low, high, best = 0.0, HIGHEST, None
        rate = 1.0
        for _ in range(BISECTIONS):
            found = self._of(candidate, rate)
            if found is not None and found.meets(slo, self._traffic.output):
                low, best = rate, found
            else:
                high = rate
            rate = (low * high) ** 0.5 if low and high < HIGHEST else rate * (2 if low else 0.5)
        if best is None:
            return 0.0
        users = self._traffic.users
        return low / self._traffic.rate if users is None else self._users(best, low) / users

    def _users(self, found: Estimate, rate: float) -> float:
        """Who wait for an answer at once, each asking again when it is there."""
        took = found.ttft_ms + self._traffic.output * 1000 / found.user_rate
        return rate * took / 1000

    def _of(self, candidate: Candidate, rate: float) -> Estimate | None:
        """At ``rate`` requests a second."""
        share = 1.0 if candidate.router == "kv" else self._slowed()
        if candidate.is_disaggregated:
            return self._disaggregated(candidate, rate, share)
        return self._aggregated(candidate.worker, rate, share)

    def _slowed(self) -> float:
        """How many times as much is read, where less is reused."""
        return 1 + self._traffic.cached * UNBALANCED_REUSE / self._traffic.fresh

    def _aggregated(self, pool: PoolCandidate, rate: float, share: float) -> Estimate | None:
        steps = self._table[pool.layout, Role.WORKER]
        prompt = steps.prompt[pool.step] * share
        arrivals = rate / (pool.replicas * pool.layout.ranks) / 1000  # a millisecond and rank
        fresh = self._traffic.fresh
        chunks = arrivals * share * -(-fresh // pool.step) / prompts_per_step(fresh, pool.step)

        def gap(running: float) -> float | None:
            """Between two tokens: steps with a chunk of a prompt, and steps without."""
            mixed = steps.mixed_ms(pool.step, running)
            left = 1 - chunks * mixed
            return 1 / (chunks + left / steps.decode_ms(running)) if left > 0.02 else None

        found = self._settled(pool, steps, arrivals, gap)
        busy = arrivals * steps.share[pool.step] * share
        return _estimate(found, busy, prompt, steps.long_prompt[pool.step] * share)

    def _disaggregated(self, candidate: Candidate, rate: float, share: float) -> Estimate | None:
        (first,) = candidate.prefill
        reading = self._table[first.layout, Role.PREFILL]
        prompt = reading.prompt[first.step] * share
        workers = first.replicas * first.layout.ranks
        busy = rate / 1000 * reading.share[first.step] * share / workers
        pool = candidate.worker
        steps = self._table[pool.layout, Role.DECODE]
        arrivals = rate / 1000 / (pool.replicas * pool.layout.ranks)
        found = self._settled(pool, steps, arrivals, steps.decode_ms)
        long = reading.long_prompt[first.step] * share + self._transfer_ms
        return _estimate(found, busy, prompt, long, first.replicas)

    def _settled(self, pool: PoolCandidate, steps: Steps, arrivals: float, gap: Gap) -> Pair:
        """(requests of a rank at once, time between tokens) at which as many are answered as
        arrive; None beyond what the limits and the KV cache hold."""
        tokens = arrivals * self._traffic.output
        most = min(pool.batch, steps.capacity / self._traffic.context)
        low, high = 0.0, most
        for _ in range(BISECTIONS):
            running = (low + high) / 2
            itl = gap(running)
            # More run than arrive: fewer would do.
            if itl is not None and running / itl >= tokens:
                high = running
            else:
                low = running
        itl = gap(high)
        if itl is None or (high >= most * 0.999 and high / itl < tokens):
            return None
        return high, itl


def _estimate(
    settled: Pair, busy: float, prompt: float, long: float, servers: int = 1
) -> Estimate | None:
    """``busy``: share of the time that prompts are read, ``prompt`` a mean one's milliseconds,
    ``long`` of one that few exceed, ``servers`` that read them. None where they do not keep up."""
    if settled is None or busy >= 1:
        return None
    running, itl = settled
    # One server's queue; with several it is shorter by about their number.
    wait = busy * prompt / (2 * (1 - busy)) / max(1, servers * busy)
    return Estimate(
        ttft_ms=long + TAIL * wait + itl,
        itl_ms=itl * UNEVEN,
        user_rate=1000 / itl,
        running=running,
    )
