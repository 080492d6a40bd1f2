"""The graph that `penstock init` writes: a layout by rule, as in the graphs of `dynamo_graphs/`.

`plan` searches by replaying the workload instead. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import wrap

from penstock.errors import UsageError
from penstock.graph.slo import Slo
from penstock.hardware import GPUS, Gpu
from penstock.hardware.gpus import requested_gpu
from penstock.models.find import find_model
from penstock.plan.graph_text import can_roll, free_gpus, gpus_of_update, graph_text
from penstock.plan.request import Objective, PlanRequest
from penstock.plan.space import Candidate, Layout, PoolCandidate
from penstock.text.names import nearest
from penstock.text.numbers import count_of

MODELS = ("openai/gpt-oss-120b", "openai/gpt-oss-20b")
GPU_NAMES = tuple(name for name in GPUS if name != "rtx-pro-6000")  # those of `hardware.gpu`
MAX_GPUS = 1024
SHORT, LONG = 32768, 131072  # tokens of context; a longer one reduces the batch
MIN_REPLICAS = 2  # of each pool, in a graph that leaves GPUs free for updates
SMALLEST_BATCH = 8
HEADROOM = (
    1.5  # slots for each request: with exactly one, some wait while another worker has free ones
)
WIDTH = 110  # of the comment's lines


class Traffic(StrEnum):
    """What the deployment serves: a ready-made workload, or one with another goal."""

    CHAT = "short-chat"
    DOCUMENTS = "document"
    AGENTIC = "agentic"
    LATENCY = "latency"
    BATCH = "batch"


DESCRIPTIONS = {
    Traffic.CHAT: "short prompts, many users",
    Traffic.DOCUMENTS: "long prompts; prefill and decode in separate pools",
    Traffic.AGENTIC: "long conversations with tool calls and shared system prompts",
    Traffic.LATENCY: "few users, the lowest inter-token latency",
    Traffic.BATCH: "the most tokens/s per GPU; latency does not matter",
}

BATCHES = {  # of a worker in a graph with one pool
    Traffic.CHAT: 256,
    Traffic.DOCUMENTS: 64,
    Traffic.AGENTIC: 128,
    Traffic.LATENCY: 32,
    Traffic.BATCH: 256,
}


@dataclass(frozen=True, kw_only=True)
class StartingGraph:
    """The answers, and the graph that follows from them."""

    request: PlanRequest
    candidate: Candidate
    traffic: Traffic
    concurrency: int | None = None

    def text(self, command: str) -> str:
        """The graph YAML; ``command`` is the command line that writes it."""
        return graph_text(self.request, self.candidate, list(self._header(command)))

    def summary(self) -> str:
        """`3 × TP2/EP2 aggregated, batch 256, …: 6 of 7 × h100`."""
        request = self.request
        return f"{self.candidate}: {self.candidate.gpus} of {request.gpus} × {request.gpu.name}"

    def reason(self) -> str:
        """How the layout was chosen, for the output."""
        if self.concurrency is None:
            gpus = f"up to {count_of(self.request.gpus, 'GPU')}"
            return f"by rule, for {gpus}: the number of concurrent requests is unknown"
        return f"by rule, for {count_of(self.concurrency, 'concurrent request')}"

    def update(self) -> str:
        """Whether a rolling update is possible, for the output and the graph's comment."""
        needed, free = gpus_of_update(self.candidate), free_gpus(self.request, self.candidate)
        text = f"an update starts one more worker of each pool ({count_of(needed, 'GPU')})"
        if can_roll(self.request, self.candidate):
            left = f"{count_of(free, 'GPU')} of hardware.nodes {'is' if free == 1 else 'are'} free"
            return f"{text} before it stops the old ones; {left}"
        left = f"{'only ' if free else ''}{free or 'no'} GPU{'s' * (free > 1)}"
        return (
            f"no rolling update is possible: {text}, but {left} of hardware.nodes "
            f"{'are' if free > 1 else 'is'} free. Before an update add a node, or stop the graph"
        )

    def _header(self, command: str) -> Iterator[str]:
        yield f"{self.request.shape.name} for {self.traffic}: {DESCRIPTIONS[self.traffic]}."
        yield f"GPUs, as written: {self.summary()}."
        yield from wrap(f"Updates: {self.update()}.", WIDTH, subsequent_indent="  ")
        if self.concurrency is not None:
            pool = self.candidate.worker
            slots = pool.replicas * pool.layout.ranks * pool.batch
            requests = count_of(self.concurrency, "request")
            text = f"Batch: {requests} at the same time, shared by the workers; "
            text += count_of(slots, "slot")
            if slots < HEADROOM * self.concurrency:
                yield f"{text}: requests without one wait."
            else:
                yield f"{text}, more than needed because requests are never spread equally."
        yield f"Written by `{command}`."
        yield "Values: by rule, as in penstock's graphs for these GPUs; not measured."
        if self.candidate.is_disaggregated and not self.request.gpu.is_grace:
            yield "The network is assumed to be InfiniBand; otherwise change hardware.fabric."
        yield ""


def find_model_id(text: str) -> str:
    """The id of a known model. UsageError for another one."""
    by_name = {name.rpartition("/")[2]: name for name in MODELS} | {name: name for name in MODELS}
    if size := by_name.get(text.lower()):
        return size
    near = nearest(text, by_name)
    fix = f"Did you mean {near}? " if near else ""
    fix += f"Known: {', '.join(MODELS)}. For others, use `penstock plan` or write the graph by hand"
    raise UsageError(f"{text} is not known", place="--model", fix=f"{fix}.")


def graph_gpu(text: str) -> Gpu:
    """The GPU of a name or a product label. UsageError for one that a graph cannot name."""
    return requested_gpu(text, GPU_NAMES)


def starting_graph(
    model: str,
    gpu: Gpu,
    gpus: int,
    traffic: Traffic,
    *,
    slo: Slo | None = None,
    concurrency: int | None = None,
) -> StartingGraph:
    """UsageError if the GPUs are too few. ``concurrency``: requests at the same time, which limit
    the batch of a worker; None for the usual batch."""
    least = _least_gpus(model, gpu)
    if gpus < least:
        message = f"{gpus} × {gpu.name} is too small for {model}"
        fix = f"Use at least {least}, or a GPU with more memory."
        raise UsageError(message, place="--gpus", fix=fix)

    def candidate_of(count: int) -> Candidate:
        return _candidate(traffic, gpu, count, least, concurrency)

    candidate = candidate_of(gpus)
    request = PlanRequest(
        model=model,
        shape=find_model(model),
        folder=None,
        gpu=gpu,
        gpus=gpus,
        slo=slo or Slo(),
        objective=Objective.COST,
        context=SHORT if traffic in (Traffic.CHAT, Traffic.BATCH) else LONG,
        shares_prefixes=True,
    )
    if not can_roll(request, candidate):
        candidate = _smaller(candidate, request, candidate_of)
    return StartingGraph(
        request=request, candidate=candidate, traffic=traffic, concurrency=concurrency
    )


def _candidate(
    traffic: Traffic, gpu: Gpu, gpus: int, least: int, concurrency: int | None
) -> Candidate:
    if traffic is Traffic.DOCUMENTS and gpus >= 2 * least:
        candidate = _disaggregated(gpu, gpus, least)
    else:
        candidate = _aggregated(traffic, gpu, gpus, least)
    return candidate if concurrency is None else _limited(candidate, concurrency)


def _smaller(most: Candidate, request: PlanRequest, of: Callable[[int], Candidate]) -> Candidate:
    """The candidate with the same kinds of workers, but so few that a rolling update has free GPUs.

    ``of``: the candidate for a number of GPUs. ``most`` if a pool would have one replica, whose end
    interrupts the service.
    """
    layouts = [pool.layout for pool in most.pools]
    for gpus in range(request.gpus - 1, sum(layout.gpus for layout in layouts) - 1, -1):
        fewer = of(gpus)
        is_alike = [pool.layout for pool in fewer.pools] == layouts
        is_redundant = all(pool.replicas >= MIN_REPLICAS for pool in fewer.pools)
        if is_alike and is_redundant and can_roll(request, fewer):
            return fewer
    return most


def _least_gpus(model: str, gpu: Gpu) -> int:
    """GPUs of the smallest worker: the weights of 120b leave too little KV cache on one H100."""
    return 2 if model.endswith("120b") and gpu.name == "h100" else 1


def _layout(gpu: Gpu, width: int, *, attention_dp: bool = False) -> Layout:
    """Hopper's kernels for MXFP4 support only expert parallelism."""
    has_ep = width > 1 and (gpu.is_hopper or attention_dp)
    return Layout(gpus=width, ep=width if has_ep else 1, attention_dp=attention_dp and width > 1)


def _aggregated(traffic: Traffic, gpu: Gpu, gpus: int, least: int) -> Candidate:
    """The caches of one pool hold the system prompts and the earlier turns."""
    width, batch, step, attention_dp = least, BATCHES[traffic], 8192, False
    if traffic is Traffic.LATENCY:
        width = _power_of_two(min(gpus, gpu.gpus_per_node))
    elif traffic is Traffic.BATCH and gpus > 1 and not gpu.is_hopper:
        # Blackwell: as in the throughput graphs, two GPUs that share experts, not sequences.
        width, batch, step, attention_dp = 2, 720, 16384, True
    layout = _layout(gpu, width, attention_dp=attention_dp)
    pool = PoolCandidate(layout=layout, replicas=gpus // width, batch=batch, step=step)
    return Candidate(prefill=(), worker=pool, router="kv")


def _disaggregated(gpu: Gpu, gpus: int, least: int) -> Candidate:
    """Half of the GPUs for prefill, and decode workers of up to four."""
    width = max(least, min(4, _power_of_two(gpus // 2)))
    replicas = max(1, gpus // 2 // width)
    decode = PoolCandidate(layout=_layout(gpu, width), replicas=replicas, batch=256, step=8192)
    batch, step = (32, 8192) if gpu.name == "h100" else (64, 16384)
    replicas = (gpus - decode.gpus) // least
    prefill = PoolCandidate(layout=_layout(gpu, least), replicas=replicas, batch=batch, step=step)
    return Candidate(prefill=(prefill,), worker=decode, router="kv")


def _limited(candidate: Candidate, concurrency: int) -> Candidate:
    """The candidate with no more workers than the requests keep busy, and the batch of a decode or
    aggregated worker reduced to `HEADROOM` times its share of them; never raised."""
    pool = _enough(candidate.worker, concurrency)
    share = HEADROOM * concurrency / (pool.replicas * pool.layout.ranks)
    batch = SMALLEST_BATCH
    while batch < share:
        batch *= 2
    prefill = tuple(_enough(pool, concurrency) for pool in candidate.prefill)
    worker = replace(pool, batch=min(batch, pool.batch))
    return replace(candidate, prefill=prefill, worker=worker)


def _enough(pool: PoolCandidate, concurrency: int) -> PoolCandidate:
    """The pool without the replicas that would have fewer than `SMALLEST_BATCH` requests each."""
    most = -(-concurrency // (SMALLEST_BATCH * pool.layout.ranks))
    return replace(pool, replicas=min(pool.replicas, most))


def _power_of_two(most: int) -> int:
    """The largest power of two up to ``most``."""
    return 1 << (most.bit_length() - 1)
