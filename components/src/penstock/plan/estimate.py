"""Estimates of a candidate's performance from step times, and the order that follows from them.

They select what is replayed. The only one that is printed is a number of GPUs, if no graph meets
the SLO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from penstock.graph.slo import Slo
from penstock.manifests.deployment import Role
from penstock.plan.request import Draft, Objective, PlanRequest
from penstock.plan.space import Candidate, Layout, PoolCandidate
from penstock.plan.steps import Steps, prompts_per_step
from penstock.plan.traffic import Traffic

BISECTIONS = 20
HIGHEST = 4096.0  # times the workload's rate
UNLIMITED = 1_000_000  # workers, of a pool that is no bottleneck
TAIL = 3.0  # 95th percentile of a queue's waiting time over its mean, with equal service times
UNEVEN = 1.1  # 95th percentile of the ITL of requests over the mean
MISSED_HITS = 0.5  # share of the possible prefix-cache hits that other routers miss
DRAFTING = 1.1  # times the time of a step, with the draft model's
Gap = Callable[[float], float | None]
Pair = tuple[float, float] | None
Table = Mapping[tuple[Layout, Role], Steps]
MIN_CAPACITY = 0.6  # of the scale: candidates of which less is estimated are not replayed
# Of the scale, by which a replay may be better than the optimistic estimate: at 1.07 times the
# estimated scale, one worker of 4 GPUs met the SLO for 94.95% of the requests of code agents.
BOUND_MARGIN = 0.2
BOUND_FROM = 0.9  # share of requests that must meet the SLO, from which their mean must too
BATCH_MARGIN = 2.0  # a batch limit of so many times the running requests has no effect


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The estimate at one request rate."""

    ttft_ms: float  # 95th percentile
    itl_ms: float  # 95th percentile
    user_rate: float  # output tokens/s of the mean request
    running: float  # concurrent requests of one rank

    def meets(self, slo: Slo, output: int) -> bool:
        e2e = self.ttft_ms + output * self.itl_ms
        pairs = ((self.ttft_ms, slo.ttft_ms), (self.itl_ms, slo.itl_ms), (e2e, slo.e2e_ms))
        return all(limit is None or took <= limit for took, limit in pairs)


class Estimator:
    """``is_bound``: without allowances for queues, uneven requests and missed prefix-cache hits, so
    that no replay should be better, except by what the formulas and step times are wrong."""

    def __init__(
        self,
        table: Table,
        traffic: Traffic,
        transfer_ms: float,
        *,
        frontend_ms: float = 0.0,
        draft: Draft | None = None,
        is_bound: bool = False,
    ) -> None:
        self._table = table
        self._draft = draft
        self._traffic = traffic
        self._transfer_ms = transfer_ms
        self._frontend_ms = frontend_ms
        self._is_bound = is_bound
        self._tail, self._uneven = (0.0, 1.0) if is_bound else (TAIL, UNEVEN)
        # Thousands of candidates have few kinds of pools: each kind is computed once.
        self._capacities: dict[tuple[object, ...], tuple[float, ...]] = {}
        self._pairs: dict[tuple[object, ...], Pair] = {}

    def scaled(self, scale: float) -> Estimator:
        """The same estimator for ``scale`` times the traffic."""
        return self._with(self._traffic.scaled(scale), is_bound=self._is_bound)

    def bound(self) -> Estimator:
        """The optimistic estimator."""
        return self._with(self._traffic, is_bound=True)

    def _with(self, traffic: Traffic, *, is_bound: bool) -> Estimator:
        return Estimator(
            self._table,
            traffic,
            self._transfer_ms,
            frontend_ms=self._frontend_ms,
            draft=self._draft,
            is_bound=is_bound,
        )

    def at(self, candidate: Candidate, scale: float) -> Estimate | None:
        """The estimate at ``scale`` times the traffic; None if the engines do not keep up."""
        traffic = self._traffic
        if traffic.concurrency is None:
            return self._of(candidate, traffic.rate * scale)
        concurrency = max(1, round(traffic.concurrency * scale))
        low, high, best = 0.0, concurrency * 1000.0, None
        for _ in range(BISECTIONS):
            rate = (low + high) / 2
            estimate = self._of(candidate, rate)
            if estimate is not None and self._concurrency(estimate, rate) <= concurrency:
                low, best = rate, estimate
            else:
                high = rate
        return best

    def capacity(self, candidate: Candidate, slo: Slo) -> float:
        """The highest scale at which the SLO is met; 0 if there is none.

        Workers share the load. So it is the capacity of one worker while the other pools are
        unlimited, times the number of workers, of the pool that is the bottleneck. A few such
        estimates serve thousands of candidates.
        """
        pools = candidate.pools
        limits = ((pool.layout, pool.batch, pool.step) for pool in pools)
        key = (slo, candidate.router, candidate.drafts, *limits)
        if (alone := self._capacities.get(key)) is None:
            alone = tuple(self._alone(candidate, at, slo) for at in range(len(pools)))
            self._capacities[key] = alone
        return min(pool.replicas * capacity for pool, capacity in zip(pools, alone, strict=True))

    def required_capacity(self, candidate: Candidate, request: PlanRequest) -> float:
        """The `capacity`, also after the loss of a worker if the SLO must be met then."""
        losses = candidate.losses.values() if request.survives_loss else ()
        return min(self.capacity(graph, request.slo) for graph in (candidate, *losses))

    def _alone(self, candidate: Candidate, at: int, slo: Slo) -> float:
        """The capacity of one worker of pool ``at``, with unlimited other pools."""
        pools = [replace(pool, replicas=UNLIMITED) for pool in candidate.pools]
        pools[at] = replace(pools[at], replicas=1)
        *prefill, worker = pools
        return self._capacity(replace(candidate, prefill=tuple(prefill), worker=worker), slo)

    def _capacity(self, candidate: Candidate, slo: Slo) -> float:
        low, high, best = 0.0, HIGHEST, None
        rate = 1.0
        for _ in range(BISECTIONS):
            estimate = self._of(candidate, rate)
            if estimate is not None and estimate.meets(slo, self._traffic.output):
                low, best = rate, estimate
            else:
                high = rate
            rate = (low * high) ** 0.5 if low and high < HIGHEST else rate * (2 if low else 0.5)
        if best is None:
            return 0.0
        concurrency = self._traffic.concurrency
        if concurrency is None:
            return low / self._traffic.rate
        return self._concurrency(best, low) / concurrency

    def _concurrency(self, estimate: Estimate, rate: float) -> float:
        """The closed-loop clients that send ``rate`` requests/s."""
        took = estimate.ttft_ms + self._traffic.output * 1000 / estimate.user_rate
        return rate * took / 1000

    def _of(self, candidate: Candidate, rate: float) -> Estimate | None:
        """The estimate at ``rate`` requests/s."""
        misses_hits = candidate.router != "kv" and not self._is_bound
        share = self._extra_prefill() if misses_hits else 1.0
        if candidate.is_disaggregated:
            return self._disaggregated(candidate, rate, share)
        return self._aggregated(candidate, rate, share)

    def _extra_prefill(self) -> float:
        """The factor of tokens to prefill where the router causes fewer prefix-cache hits."""
        return 1 + self._traffic.cached * MISSED_HITS / self._traffic.fresh

    def _aggregated(self, candidate: Candidate, rate: float, share: float) -> Estimate | None:
        pool = candidate.worker
        steps = self._table[pool.layout, Role.WORKER]
        prompt = steps.prompt[pool.step] * share
        arrivals = rate / (pool.replicas * pool.layout.ranks) / 1000  # per millisecond and rank
        fresh = self._traffic.fresh
        chunks = arrivals * share * -(-fresh // pool.step) / prompts_per_step(fresh, pool.step)

        verified, slower, tokens = self._step(candidate)

        def gap(running: float) -> float | None:
            """Time between two tokens: some steps have a chunk of an input, others have none."""
            mixed = steps.mixed_ms(pool.step, max(1.0, running) * verified) * slower
            left = 1 - chunks * mixed
            alone = steps.decode_ms(max(1.0, running) * verified) * slower
            return 1 / (chunks + left / alone) / tokens if left > 0.02 else None

        estimate = self._settled(candidate, Role.WORKER, arrivals, gap, share)
        busy = arrivals * steps.share[pool.step] * share
        return self._estimate(estimate, busy, prompt, steps.long_prompt[pool.step] * share)

    def _disaggregated(self, candidate: Candidate, rate: float, share: float) -> Estimate | None:
        (first,) = candidate.prefill
        prefill = self._table[first.layout, Role.PREFILL]
        prompt = prefill.prompt[first.step] * share
        workers = first.replicas * first.layout.ranks
        busy = rate / 1000 * prefill.share[first.step] * share / workers
        pool = candidate.worker
        steps = self._table[pool.layout, Role.DECODE]
        arrivals = rate / 1000 / (pool.replicas * pool.layout.ranks)
        verified, slower, tokens = self._step(candidate)

        def gap(running: float) -> float:
            return steps.decode_ms(max(1.0, running) * verified) * slower / tokens

        estimate = self._settled(candidate, Role.DECODE, arrivals, gap)
        long = prefill.long_prompt[first.step] * share + self._transfer_ms
        return self._estimate(estimate, busy, prompt, long, first.replicas)

    def _step(self, candidate: Candidate) -> tuple[float, float, float]:
        """(tokens that a step verifies for a request, times the time of a step, tokens that it
        generates for a request). A verified token takes as long as one of another request, except
        in a bound."""
        if not candidate.drafts or self._draft is None:
            return 1.0, 1.0, 1.0
        if self._is_bound:
            return 1.0, 1.0, self._draft.length
        return 1.0 + self._draft.tokens, DRAFTING, self._draft.length

    def _settled(
        self, candidate: Candidate, role: Role, arrivals: float, gap: Gap, share: float = 1.0
    ) -> Pair:
        """(concurrent requests of a rank, time between tokens) at which as many requests end as
        arrive; None if the limits or the KV cache are too small for that.

        ``gap`` depends only on the kind of the pool, its role, ``arrivals`` and ``share``.
        """
        pool = candidate.worker
        key = (role, candidate.drafts, pool.layout, pool.batch, pool.step, arrivals, share)
        if key not in self._pairs:
            self._pairs[key] = self._bisected(pool, self._table[pool.layout, role], arrivals, gap)
        return self._pairs[key]

    def _bisected(self, pool: PoolCandidate, steps: Steps, arrivals: float, gap: Gap) -> Pair:
        tokens = arrivals * self._traffic.output
        most = min(pool.batch, steps.capacity / self._traffic.context)
        low, high = 0.0, most
        for _ in range(BISECTIONS):
            running = (low + high) / 2
            itl = gap(running)
            # More requests end than arrive: fewer concurrent ones are enough.
            if itl is not None and running / itl >= tokens:
                high = running
            else:
                low = running
        itl = gap(high)
        if itl is None or (high >= most * 0.999 and high / itl < tokens):
            return None
        return high, itl

    def _estimate(
        self, settled: Pair, busy: float, prompt: float, long: float, servers: int = 1
    ) -> Estimate | None:
        """Combines the times of the steps; None if prefill does not keep up.

        ``busy``: share of time with prefill. ``prompt``, ``long``: milliseconds of prefill of a
        mean and of a long input. ``servers``: workers that prefill.
        """
        if settled is None or busy >= 1:
            return None
        running, itl = settled
        # The queue of one server; with several it is shorter by about their number.
        wait = busy * prompt / (2 * (1 - busy)) / max(1, servers * busy)
        return Estimate(
            ttft_ms=self._frontend_ms + long + self._tail * wait + itl,
            itl_ms=itl * self._uneven,
            user_rate=1000 / itl,
            running=running,
        )


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The candidates of one family, the most promising first."""

    candidates: tuple[Candidate, ...]
    capacity: Mapping[Candidate, float]  # the highest scale that is estimated to meet the SLO

    def only(self, *, drafts: bool) -> Ranked:
        """The candidates with or without speculative decoding."""
        kept = tuple(candidate for candidate in self.candidates if candidate.drafts == drafts)
        return replace(self, candidates=kept)

    @cached_property
    def shapes(self) -> list[Candidate]:
        """The first candidate of each shape, in order: others differ from it in their limits."""
        return _first_of_each_shape(self.candidates)

    @cached_property
    def by_gpus(self) -> list[list[Candidate]]:
        """A candidate of each shape, in groups with equally many GPUs, the fewest first; in each
        the highest capacity first, and the first of each width before others."""
        order = sorted(self.candidates, key=lambda c: (c.gpus, -self.capacity[c], c.order))
        equal = groupby(order, key=lambda c: c.gpus)
        return [_first_of_each_width(_first_of_each_shape(list(group))) for _, group in equal]


def _first_of_each_shape(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that differ from an earlier one in the router mode only come last: it rarely decides
    whether the SLO is met, and a search replays only the first ones at first."""
    shapes: dict[tuple[object, ...], Candidate] = {}
    graphs: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        shapes.setdefault(_without_limits(candidate), candidate)
        graphs.setdefault(_without_limits(replace(candidate, router="kv")), candidate)
    return list(dict.fromkeys([*graphs.values(), *shapes.values()]))


def _first_of_each_width(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first of each width before the others, as the estimate is wrong by most between widths;
    those with data parallelism of attention after these, as it is too high for them."""
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        layouts = [pool.layout for pool in candidate.pools]
        if not any(layout.attention_dp for layout in layouts):
            first.setdefault((candidate.drafts, *(each.gpus for each in layouts)), candidate)
    return list(dict.fromkeys([*first.values(), *candidates]))


@dataclass(frozen=True, slots=True)
class Estimated:
    """A candidate of a ranking. Tens of thousands are ranked, so no dictionary has them as keys."""

    candidate: Candidate
    capacity: float
    estimate: Estimate | None

    @property
    def rate(self) -> float:
        """A candidate below the requested scale was estimated at a lower one, where it is
        faster."""
        user_rate = self.estimate.user_rate if self.estimate else 0.0
        return user_rate * min(1.0, self.capacity)


def rank(
    candidates: Sequence[Candidate],
    estimator: Estimator,
    request: PlanRequest,
    attain: float = BOUND_FROM,
) -> Ranked:
    """Ranks the candidates, without hopeless ones and those with a batch limit of no effect.

    ``attain``: share of requests that must meet the SLO.
    """
    pairs = [(c, estimator.required_capacity(c, request)) for c in candidates]
    if request.objective is Objective.THROUGHPUT:
        best = sorted(
            (estimated for estimated in pairs if estimated[1]),
            key=lambda estimated: (-estimated[1], estimated[0].order),
        )
        return Ranked(candidates=tuple(c for c, _ in best), capacity=dict(best))
    bound = estimator.bound() if attain >= BOUND_FROM else None
    able = [
        Estimated(c, capacity, estimator.at(c, min(1.0, capacity)))
        for c, capacity in pairs
        if capacity >= MIN_CAPACITY
        and (bound is None or bound.required_capacity(c, request) >= 1 - BOUND_MARGIN)
    ]
    distinct = _distinct(able)
    # The estimate does not compare step sizes, which the replays do. So candidates that differ in
    # their limits only stay together, in the order of the best of them.
    keys = [_without_limits(estimated.candidate) for estimated in distinct]
    fastest: dict[tuple[object, ...], float] = {}
    for key, estimated in zip(keys, distinct, strict=True):
        fastest[key] = max(fastest.get(key, 0.0), estimated.rate)
    order = sorted(
        zip(keys, distinct, strict=True),
        key=lambda pair: (-fastest[pair[0]], -pair[1].rate, pair[1].candidate.order),
    )
    return Ranked(
        candidates=tuple(candidate.candidate for _, candidate in order),
        capacity={estimated.candidate: estimated.capacity for estimated in distinct},
    )


def _distinct(able: Sequence[Estimated]) -> list[Estimated]:
    """Leaves out candidates that only a batch limit that is not reached distinguishes from the
    candidate with the highest one."""
    keys = [_without_batch(estimated.candidate) for estimated in able]
    highest: dict[tuple[object, ...], int] = {}
    for key, estimated in zip(keys, able, strict=True):
        highest[key] = max(highest.get(key, 0), estimated.candidate.worker.batch)

    def is_duplicate(estimated: Estimated, highest_batch: int) -> bool:
        limit, estimate = estimated.candidate.worker.batch, estimated.estimate
        return estimate is not None and estimate.running * BATCH_MARGIN <= limit < highest_batch

    return [
        estimated
        for key, estimated in zip(keys, able, strict=True)
        if not is_duplicate(estimated, highest[key])
    ]


def _without_batch(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    return (*_without_limits(candidate), worker.step)


def _without_limits(candidate: Candidate) -> tuple[object, ...]:
    worker = candidate.worker
    kind = candidate.router, candidate.drafts
    return (candidate.prefill, worker.layout, worker.replicas, *kind)
