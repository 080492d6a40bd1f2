"""NVIDIA's three published agentic rows of gpt-oss-120b: graphs, workloads and figures.

Source: recipes/gpt-oss-120b of github.com/ai-dynamo/dynamo, measured on 2026-07-09.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from penstock.manifests.source import open_source
from penstock.serving.understand import Hints
from penstock.simulate.acceptance import PUBLISHED, Acceptance
from penstock.simulate.metrics import served_requests
from penstock.simulate.model import Replayable
from penstock.simulate.replay import Replays
from penstock.simulate.replayable import replayable
from penstock.simulate.study import Study
from penstock.simulate.window import ServedRequest
from penstock.workload.load import LoadedWorkload, find_workload
from penstock.workload.model import Arrival, Conversation, Lengths, Workload
from penstock.workload.request import BLOCK_TOKENS, Request
from published.replays import ROOT, significant

GRAPHS = Path(__file__).parent / "agentic"
WORKLOAD = ROOT / "benchmarks" / "workloads" / "published" / "agentic-64k.yaml"
PREFIX_BLOCKS, FIRST_OWN = 10_000, 10**9  # numbers of blocks
ACCEPTANCE = "agentic"  # of --acceptance: the length of 2.72 that the recipe sets


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A part of a row's deployment that a twin on two cores can serve."""

    sets: tuple[str, ...]
    share: float
    """Of the GPUs, the concurrency and the number of shared prefixes."""
    requests: int
    speed: float
    """Simulation speed of the twin."""


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    """Also of its graph."""
    title: str
    gpus: int
    concurrency: int
    published: Mapping[str, float]
    scaled: Scaled

    @property
    def graph(self) -> Path:
        return GRAPHS / f"{self.name}.yaml"


def published(rate: float, user: float, ttft: float) -> Mapping[str, float]:
    """In the units of `figures`."""
    return {"tokens_per_second_gpu": rate, "tokens_per_second_user": user, "ttft_mean_s": ttft}


ROWS = (
    Row(
        name="b200-agg",
        title="8 × B200, aggregated",
        gpus=8,
        concurrency=512,
        published=published(2896, 58, 4.4),
        scaled=Scaled(sets=("worker.replicas=1",), share=1 / 8, requests=412, speed=0.25),
    ),
    Row(
        name="b200-2p6d",
        title="8 × B200, 2 prefill and 6 decode workers",
        gpus=8,
        concurrency=256,
        published=published(2069, 99, 5.6),
        scaled=Scaled(
            sets=("prefill.replicas=1", "decode.replicas=3"), share=1 / 2, requests=256, speed=0.2
        ),
    ),
    Row(
        name="h200-agg",
        title="8 × H200, aggregated, KV offload to the host",
        gpus=8,
        concurrency=256,
        published=published(1256, 47.5, 1.4),
        scaled=Scaled(sets=("worker.replicas=1",), share=1 / 8, requests=206, speed=0.25),
    ),
)


def workload_of(row: Row, *, share: float = 1.0, requests: int | None = None) -> LoadedWorkload:
    """The published load on ``share`` of the deployment."""
    loaded = find_workload(str(WORKLOAD))
    workload = loaded.workload
    assert workload.requests
    assert workload.system_prompts
    count = max(1, round(workload.system_prompts.count * share))
    changed = {
        "requests": requests or round(workload.requests * share),
        "arrival": Arrival(concurrency=round(row.concurrency * share)),
        "system_prompts": workload.system_prompts.model_copy(update={"count": count}),
    }
    return loaded.with_workload(workload.model_copy(update=changed))


def graph_of(
    row: Row,
    sets: Sequence[str] = (),
    *,
    acceptance: str | None = ACCEPTANCE,
    prices_draft: bool = True,
) -> Replayable:
    """``prices_draft``: False for the mocker, which has no time of a draft model."""
    rates = PUBLISHED[acceptance].rates if acceptance else None
    accepted = Acceptance(rates, prices_draft=prices_draft) if rates else None
    return replayable(open_source(row.graph, sets), Hints(), accepted)


def with_kernels_of_trtllm(graph: Replayable) -> Replayable:
    """With the MXFP4 × MXFP8 experts of TensorRT-LLM, which were not measured for vLLM."""

    def changed(engine: Mapping[str, Any]) -> Mapping[str, Any]:
        timing = engine["engine"]["timing_model"]
        kernels = {"backend": "trtllm", "moe_quant_mode": "w4a8_mxfp4_mxfp8"}
        timing = timing | {"config": timing["config"] | kernels}
        return {**engine, "engine": engine["engine"] | {"timing_model": timing}}

    pools = tuple(replace(pool, engine=changed(pool.engine)) for pool in graph.pools)
    return replace(graph, pools=pools)


def figures(requests: Sequence[ServedRequest], gpus: float) -> dict[str, Any]:
    """As AIPerf 0.10 defines them, over the complete run: output tokens of all requests per second
    and GPU, mean of 1 / ITL over the requests, and mean TTFT."""
    begin = min(one.arrived_ms for one in requests)
    seconds = (max(one.ended_ms for one in requests) - begin) / 1000
    input_tokens = sum(one.input_tokens for one in requests)
    itl = [one.itl_ms for one in requests if one.itl_ms]
    return {
        "tokens_per_second_gpu": significant(sum(one.tokens for one in requests) / seconds / gpus),
        "tokens_per_second_user": significant(mean(1000 / one for one in itl)),
        "ttft_mean_s": significant(mean(one.ttft_ms for one in requests) / 1000),
        "itl_mean_ms": significant(mean(itl)),
        "prefix_hit_rate": round(sum(one.cached_tokens for one in requests) / input_tokens, 3),
        "requests": len(requests),
        "simulated_s": round(seconds, 1),
    }


def predicted(graph: Replayable, loaded: LoadedWorkload, replays: Replays) -> dict[str, Any]:
    """One replay. SimulationError as `replayable`."""
    (row,) = Study(workload=loaded, replays=replays, seeds=1).rows([graph], None)
    return figures(served_requests(row.results[0]), row.replayable.gpus)


def _changed(row: Row, **changes: Any) -> LoadedWorkload:
    loaded = workload_of(row)
    return loaded.with_workload(loaded.workload.model_copy(update=changes))


def _conversations(row: Row, added: int, output: Lengths) -> LoadedWorkload:
    """Of 20 turns, each with ``added`` new input tokens; 90% of the input are earlier turns."""
    turns = 20
    workload = Workload(
        requests=row.concurrency * turns,
        input=Lengths(mean=added),
        output=output,
        arrival=Arrival(concurrency=row.concurrency),
        conversation=Conversation(turns=turns, start="first"),
    )
    return workload_of(row).with_workload(workload)


# Median 400. That the mean is longer follows from the published figures by Little's law.
LONG_TAIL = Lengths(mean=1000, cv=2.29, max=60_000)
# Of the recorded inputs: 18 % are below 8k tokens, 47 % below 64k (vLLM's article of 2026-08-07).
MIXED_INPUTS = ((0.18, 1_000, 8_000), (0.29, 8_000, 64_000), (0.53, 64_000, 128_000))
# Median 400, mean 867. The published run of the first row takes about two minutes. At 58 tokens/s
# per user, its outputs have at most 7,000 tokens.
MIXED_OUTPUTS = Lengths.model_validate({"quantiles": [[0, 50], [0.5, 400], [0.9, 1800], [1, 4500]]})
# With these, 92 % of the input tokens are hits, first uses of the prefixes included.
PREFIXES, SHARED_SHARE = 16, 0.96


def _with_mixed_inputs(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Requests with mixed input lengths. Each input begins with a part of a shared prefix; the rest
    is its own."""
    random, own = Random(46), FIRST_OWN
    weights, lows, highs = zip(*MIXED_INPUTS, strict=True)
    changed = []
    for request in requests:
        (part,) = random.choices(range(len(weights)), weights)
        tokens = round(random.uniform(lows[part], highs[part]))
        count = -(-tokens // BLOCK_TOKENS)
        shared = int(SHARED_SHARE * count)
        first = random.randrange(PREFIXES) * PREFIX_BLOCKS
        blocks = (*range(first, first + shared), *range(own, own + count - shared))
        own += count - shared
        changed.append(replace(request, input_tokens=tokens, blocks=blocks))
    return tuple(changed)


def _together(row: Row) -> tuple[Replayable, LoadedWorkload]:
    graph = graph_of(row) if _is_hopper(row) else with_kernels_of_trtllm(graph_of(row))
    loaded = _changed(row, output=MIXED_OUTPUTS)
    return graph, replace(loaded, change=_with_mixed_inputs)


MIX = "mixed input lengths, outputs: mean 867 tokens, 92% hits, MXFP8 kernels on B200"
MXFP8 = "expert kernels of TensorRT-LLM (MXFP4 × MXFP8)"
Variant = Callable[[Row], tuple[Replayable, LoadedWorkload]]
VARIANTS: Mapping[str, Variant] = {
    "without EAGLE-3": lambda row: (graph_of(row, acceptance=None), workload_of(row)),
    "acceptance length 2.28": lambda row: (graph_of(row, acceptance="mixed"), workload_of(row)),
    MXFP8: lambda row: (with_kernels_of_trtllm(graph_of(row)), workload_of(row)),
    "outputs: median 400, mean 1,000 tokens": lambda row: (
        graph_of(row),
        _changed(row, output=LONG_TAIL),
    ),
    "conversations: inputs of 6k to 126k tokens": lambda row: (
        graph_of(row),
        _conversations(row, 5900, Lengths(mean=400)),
    ),
    "conversations with such outputs": lambda row: (
        graph_of(row),
        _conversations(row, 5000, LONG_TAIL),
    ),
    MIX: _together,
}


def _is_hopper(row: Row) -> bool:
    return row.name.startswith("h200")


def variants(row: Row) -> Mapping[str, Variant]:
    """Hopper has no MXFP8 kernels. The disaggregated replay of conversations takes too long."""
    is_disaggregated = row.name == "b200-2p6d"
    return {
        name: make
        for name, make in VARIANTS.items()
        if not (_is_hopper(row) and name == MXFP8)
        and not (is_disaggregated and name.startswith("conversations"))
    }
