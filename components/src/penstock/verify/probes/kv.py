"""The probes of the KV cache: transfer, routing by prefix, events, blocks and reuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.live.scrape import KV_BYTES
from penstock.manifests.deployment import Role
from penstock.metrics import Metrics
from penstock.models import read_model
from penstock.verify.result import ProbeResult, cannot_tell, failed, passed
from penstock.verify.target import ApiResponse, NotReportedError, ProbeTarget, Process

# Tokens: several blocks of any size and a part of one, longer than gpt-oss's window.
TRANSFER_PROMPT = 413
# SGLang: MiB, exported by prefill workers. Other engines: bytes, exported by decode workers.
TRANSFERRED_BYTES = dict.fromkeys(KV_BYTES, 1.0) | {"sglang:kv_transfer_total_mb_sum": 2.0**20}
TRANSFER_SECONDS = {
    "vllm:nixl_xfer_time_seconds_sum": 1.0,
    "trtllm_kv_transfer_latency_seconds_sum": 1.0,
    "llamacpp_kv_transfer_seconds_total": 1.0,
    "sglang:kv_transfer_latency_ms_sum": 1e-3,
}
FAILED_TRANSFERS = (
    "vllm:nixl_num_failed_transfers_total",
    "vllm:nixl_num_kv_expired_reqs_total",
    "llamacpp_kv_transfer_failures_total",
    "sglang:num_transfer_failed_reqs_total",
)
PROMPT_TOKENS = ("vllm:prompt_tokens_by_source_total",)
COMPUTED_BY_DECODE = {"source": "local_compute", "dynamo_component": "backend"}
# llama.cpp transfers a file, which also has a header and, per token, its id and position.
FILE_BYTES_PER_TOKEN, FILE_BYTES = 24, 8192
MOST_WORKERS = 16  # to which a probe sends one request each


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What the counters have grown by during a request."""

    workers: tuple[int | None, int | None]
    """Those that did prefill and decode; None if the response does not name them."""
    moved: int
    """Bytes."""
    seconds: float
    lost: int
    """Transfers that failed or expired."""
    computed: int
    """Prompt tokens that a decode worker has computed."""

    @property
    def has_failed(self) -> bool:
        return self.moved <= 0 or self.lost > 0 or self.computed >= TRANSFER_PROMPT


def kv_transfer(target: ProbeTarget) -> ProbeResult:
    """KV bytes move to each decode worker, as many as the model's shape predicts."""
    if target.expected is not None and not target.expected.disaggregated:
        return cannot_tell("the graph has one pool: no KV is transferred")
    if _scaled(_of_processes(target), TRANSFERRED_BYTES) is None:
        return cannot_tell(
            "no worker exports the bytes transferred",
            "Give the workers' metrics (--metrics); a mocker transfers no KV and exports none.",
        )
    transfers = [_transfer(target, worker) for worker in _decode_workers(target)]
    if failures := [_failure(target, transfer) for transfer in transfers if transfer.has_failed]:
        return failed(
            "; ".join(failures),
            "Compare the KV transfer settings of the pools, and read the decode worker's log.",
        )
    seen = "; ".join(_pairs(target, transfers))
    predicted = _predicted(target)
    if predicted is None:
        return cannot_tell(
            f"{seen}, but the expected number of bytes is not known",
            "Give the model's folder (--model-dir), and a graph that sets the block size.",
        )
    each = f" for {TRANSFER_PROMPT} tokens" if len(transfers) > 1 else ""
    if min(transfer.moved for transfer in transfers) < predicted:
        return failed(
            f"{seen}; the model's shape predicts {predicted:,}{each}",
            "Blocks were not transferred, or the KV cache has another data type than in the graph.",
        )
    most = max(transfer.moved for transfer in transfers)
    if most > predicted + _other_bytes(target):
        return cannot_tell(
            f"{seen}; the model's shape predicts {predicted:,}{each}",
            "Stop other traffic, which also transfers KV. Otherwise the KV cache has a larger data "
            "type than in the graph.",
        )
    more = f", {most - predicted:,} of them for the ids of the tokens" if most > predicted else ""
    return passed(f"{seen}, as the model's shape predicts{more}")


def _of_processes(target: ProbeTarget) -> Metrics:
    scrapes = target.scrapes(p for p in target.processes if p.role is not Role.FRONTEND)
    return Metrics(tuple(sample for metrics in scrapes.values() for sample in metrics.samples))


def _scaled(metrics: Metrics, units: Mapping[str, float]) -> float | None:
    totals = ((metrics.total([name]), unit) for name, unit in units.items())
    known = [total * unit for total, unit in totals if total is not None]
    return sum(known) if known else None


def _decode_workers(target: ProbeTarget) -> list[int | None]:
    """The first MOST_WORKERS; None stands for any, if the frontend lists none."""
    try:
        workers = [i.worker_id for i in target.instances() if i.role is Role.DECODE]
    except NotReportedError:
        workers = []
    return [*workers[:MOST_WORKERS]] or [None]


def _transfer(target: ProbeTarget, worker: int | None) -> Transfer:
    """Of a request that names its decode worker, unless it is None."""
    before = _of_processes(target)
    start = _scaled(before, TRANSFERRED_BYTES) or 0.0
    pin = {} if worker is None else {"decode_worker_id": worker}
    workers = target.complete(target.prompt(TRANSFER_PROMPT), 4, nvext=pin).workers
    after = [before]

    def has_grown() -> bool:
        after[0] = _of_processes(target)
        return (_scaled(after[0], TRANSFERRED_BYTES) or 0.0) > start

    target.wait_for(has_grown)

    def grown(names: Iterable[str], **labels: str) -> int:
        now, then = (metrics.total(names, **labels) or 0.0 for metrics in (after[0], before))
        return round(now - then)

    seconds = (_scaled(metrics, TRANSFER_SECONDS) or 0.0 for metrics in (after[0], before))
    return Transfer(
        workers=(workers.get("prefill_worker_id"), workers.get("decode_worker_id", worker)),
        moved=round((_scaled(after[0], TRANSFERRED_BYTES) or 0.0) - start),
        seconds=next(seconds) - next(seconds),
        lost=grown(FAILED_TRANSFERS),
        computed=grown(PROMPT_TOKENS, **COMPUTED_BY_DECODE),
    )


def _failure(target: ProbeTarget, transfer: Transfer) -> str:
    prefill, decode = (_process(target, worker) for worker in transfer.workers)
    text = f"{transfer.moved:,} bytes moved for {TRANSFER_PROMPT} tokens"
    if prefill and decode:
        text = f"{prefill.name} → {decode.name}: {text}"
    if transfer.lost:
        text += f", {transfer.lost} transfers failed or expired"
    if transfer.computed:
        text += f"; {decode.name if decode else 'the decode worker'} computed {transfer.computed} "
        text += "tokens of the prompt itself"
    return text


def _process(target: ProbeTarget, worker: int | None) -> Process | None:
    return target.workers.get(worker) if worker is not None else None


def _pairs(target: ProbeTarget, transfers: Iterable[Transfer]) -> Iterator[str]:
    """For each pair of pools: bytes, rate and transport."""
    pairs: dict[tuple[str, ...], list[Transfer]] = {}
    for transfer in transfers:
        processes = [_process(target, worker) for worker in transfer.workers]
        pools = tuple(process.pool if process else "" for process in processes)
        pairs.setdefault(pools, []).append(transfer)
    for pools, of_pair in pairs.items():
        moved, seconds = sum(t.moved for t in of_pair), sum(t.seconds for t in of_pair)
        count = f"{len(of_pair)} × " if len(of_pair) > 1 else ""
        name = f"{' → '.join(pools)}: " if all(pools) else ""
        rate = f" ({moved / seconds / 1e9:.2f} GB/s)" if seconds > 0 else ""
        ids = {worker for transfer in of_pair for worker in transfer.workers}
        involved = [process for worker, process in target.workers.items() if worker in ids]
        yield (
            f"{name}{moved:,} bytes for {count}{TRANSFER_PROMPT} tokens in {1000 * seconds:.1f} ms"
            f"{rate} over {_path(target, involved)}"
        )


def _predicted(target: ProbeTarget) -> int | None:
    expected, folder = target.expected, target.model_folder
    shape = read_model(folder) if folder is not None else None
    if shape is None or expected is None:
        return None
    block_size = 1 if expected.runs_llamacpp else expected.block_size
    if block_size is None:
        return None
    return shape.kv_bytes(TRANSFER_PROMPT, block_size, expected.kv_dtype)


def _other_bytes(target: ProbeTarget) -> int:
    """The most bytes that a transfer has in addition to the KV."""
    is_file = target.expected is not None and target.expected.runs_llamacpp
    return TRANSFER_PROMPT * FILE_BYTES_PER_TOKEN + FILE_BYTES if is_file else 0


# "UCX  INFO    ucp_context_0 inter-node cfg#2 rma(rc_mlx5/mlx5_0:1)  am(rc_mlx5/mlx5_0:1)"
UCX_LINE = r"UCX\s+INFO\s+\S+ (?:intra|inter)-node cfg#\d+ (?P<lanes>.+)"
UCX_LANE = re.compile(r"(?P<use>rma|rma_am|am)\((?P<transports>[^)]*)\)")
NIXL_LINE = r"NIXL\s+INFO\s+\S+ Backend (?P<name>\w+) was instantiated"
TRANSPORTS = {
    "RDMA": ("rc", "dc", "ud", "ib", "srd"),
    "NVLink or CUDA IPC": ("cuda_ipc",),
    "shared memory": ("cma", "sysv", "posix", "knem", "xpmem"),
    "TCP": ("tcp",),
}


def transport(target: ProbeTarget) -> ProbeResult:
    """The transport of KV transfers, from UCX's log lines: there is no metric."""
    expected = target.expected
    if expected is not None and not expected.disaggregated:
        return cannot_tell("the graph has one pool: no KV is transferred")
    if expected is not None and not expected.uses_ucx:
        return cannot_tell("llama.cpp's workers transfer KV in shared memory, not with UCX")
    names, kinds = _ucx_transports(target)
    if not names:
        return cannot_tell(
            "no log has UCX's lines about its connections",
            "Give the workers' logs (--log), with UCX_LOG_LEVEL=info in engine.env.",
        )
    used = f"{', '.join(kinds)}: {', '.join(names)}"
    if not kinds:
        return cannot_tell(f"UCX names no known transport: {', '.join(names)}")
    allowed = expected.transport if expected is not None else "auto"
    if allowed == "rdma" and ("TCP" in kinds or not {"RDMA", "NVLink or CUDA IPC"} & set(kinds)):
        return failed(
            f"the graph asks for RDMA, but KV moves over {used}",
            "Give the pods an RDMA device (kv_transfer.rdma_resource), and let UCX use it.",
        )
    if allowed == "tcp" and ("RDMA" in kinds or "TCP" not in kinds):
        return failed(f"the graph asks for TCP, but KV moves over {used}", "Set UCX_TLS.")
    return passed(f"{used} (the graph sets {allowed})")


def _ucx_transports(
    target: ProbeTarget, processes: Iterable[Process] | None = None
) -> tuple[list[str], list[str]]:
    """UCX's names of the transports that carry data, and their kinds, from the logs of these
    processes (default: all). `amo` and `ka` lanes carry atomics and keep-alive only."""
    lanes = (m["lanes"] for m in target.log_matches(UCX_LINE, processes))
    lists = (lane["transports"] for text in lanes for lane in UCX_LANE.finditer(text))
    names = sorted({name for listed in lists for name in listed.split()})
    begins = TRANSPORTS.items()
    return names, [kind for kind, prefixes in begins if any(n.startswith(prefixes) for n in names)]


def _path(target: ProbeTarget, processes: Sequence[Process]) -> str:
    """How KV moves between the processes (none: all), as far as their logs state it."""
    if target.expected is not None and not target.expected.uses_ucx:
        return "shared memory"
    backends = {m["name"] for m in target.log_matches(NIXL_LINE, processes or None)}
    nixl = f"NIXL ({', '.join(sorted(backends))}), " if backends else ""
    _, kinds = _ucx_transports(target, processes or None)
    return nixl + (", ".join(kinds) or "unknown transport")


ROUTED_PROMPT = 300  # tokens
ROUTED_REPEATS = 4


def kv_routing(target: ProbeTarget) -> ProbeResult:
    """The router chooses workers by cached prefix if and only if the graph's router mode is kv."""
    prompt = target.prompt(ROUTED_PROMPT)
    responses = [target.complete(prompt, 2)]
    target.wait_for(lambda: False, 0.5)  # KV events reach the router
    responses += [target.complete(prompt, 2) for _ in range(ROUTED_REPEATS - 1)]
    rates = [response.timing.get("kv_hit_rate") for response in responses]
    workers = {
        r.workers.get("prefill_worker_id") or r.workers.get("decode_worker_id") for r in responses
    }
    by_kv = any(rate is not None for rate in rates)
    observed = "the router reports KV hit rates" if by_kv else "the router reports no KV hit rate"
    if target.expected is None:
        return cannot_tell(f"no graph was given; {observed}")
    mode = target.expected.router_mode
    if by_kv != (mode == "kv"):
        return failed(
            f"the graph's router mode is {mode}, but {observed}",
            "Restart the frontend with the graph's flags; the first line of its log shows them.",
        )
    if not by_kv:
        return cannot_tell(f"{observed}, as in mode {mode}; no metric shows which mode it is")
    if len(workers) > 1:
        return failed(
            f"{ROUTED_REPEATS} equal prompts went to {len(workers)} workers; hit rates {rates}",
            "The router does not see cached prefixes: see `kv-events`.",
        )
    return passed(f"{ROUTED_REPEATS} equal prompts went to one worker; hit rate {rates[-1]:.2f}")


# A counter; the Prometheus parser appends the suffix that its name lacks.
APPLIED_EVENTS = ("dynamo_component_kv_cache_events_applied_total",)


def kv_events(target: ProbeTarget) -> ProbeResult:
    """The router receives the workers' KV events if the graph enables them, else it predicts."""
    expected = target.expected
    if expected is None:
        return cannot_tell("no graph was given")
    prompt = target.prompt(ROUTED_PROMPT)
    new = _applied_by(target, prompt, 3.0)
    # The least of three: other traffic counts too.
    again = min(_applied_by(target, prompt, 0.5) for _ in range(3)) if new else 0.0
    follows = new > 0 and again == 0
    counts = (
        f"a prompt of {ROUTED_PROMPT} tokens caused {new:.0f} stored events, its repetition "
        f"{again:.0f}"
    )
    if expected.router_mode != "kv" or not expected.kv_events:
        if follows:
            return failed(f"the router follows KV events, which the graph turns off ({counts})")
        return passed(f"no KV events, as the graph declares: {counts}")
    if new == 0:
        return failed(
            f"no KV event reached the router within 3 s of a new prompt of {ROUTED_PROMPT} tokens",
            "Enable KV events in the workers that prefill (kv-events-config, --publish-kv-events).",
        )
    if not follows:
        return failed(
            f"the router predicts from requests: {counts}",
            "Remove --no-router-kv-events from the frontend.",
        )
    return passed(counts)


def _applied_by(target: ProbeTarget, prompt: list[int], wait_s: float) -> float:
    """Stored events that the router counts for ``prompt``. Workers report a block once; a router
    that predicts counts each request."""
    before = _applied(target)
    target.complete(prompt, 2)
    target.wait_for(lambda: _applied(target) > before, wait_s)
    return _applied(target) - before


def _applied(target: ProbeTarget) -> float:
    return target.metrics().total(APPLIED_EVENTS, event_type="stored", status="ok") or 0.0


BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"
# Workers that export it as a label of an info metric.
BLOCK_SIZE_LABELS = {"vllm:cache_config_info": "block_size", "llamacpp_config_info": "block_size"}


def block_size(target: ProbeTarget) -> ProbeResult:
    """Router, workers and graph use the same block size: otherwise no prefix is ever found."""
    metrics = target.metrics()
    sizes = {"router": {int(s.value) for s in metrics.find(BLOCK_SIZE)}}
    sizes["workers"] = {
        int(sample.labels[label])
        for name, label in BLOCK_SIZE_LABELS.items()
        for sample in metrics.find(name)
        if sample.labels.get(label, "").isdigit()
    }
    if target.expected is not None and target.expected.block_size is not None:
        sizes["graph"] = {target.expected.block_size}
    known = {name: size for name, size in sizes.items() if size}
    listed = ", ".join(f"{name} {'/'.join(map(str, sorted(s)))}" for name, s in known.items())
    if "router" not in known:
        return cannot_tell(f"the frontend does not export {BLOCK_SIZE}")
    if len(set.union(*known.values())) > 1:
        return failed(
            f"tokens per block: {listed}",
            "Remove --kv-cache-block-size from frontend.args, or set one block size in all pools.",
        )
    if len(known) < 2:
        return cannot_tell(f"tokens per block: {listed}; no other component exports it")
    return passed(f"tokens per block: {listed}")


BLOCKS = 14
PARTIAL_BLOCK = 5  # tokens beyond full blocks, so that engines agree on the number of full ones


def prefix_cache(target: ProbeTarget) -> ProbeResult:
    """A repeated long prompt hits the prefix cache with all its full blocks.

    llama.cpp also finds the tokens after them, all but the last one.
    """
    size = target.metrics().gauge(BLOCK_SIZE, model=target.model)
    if not size:
        return cannot_tell("the frontend exports no block size")
    expected = BLOCKS * int(size)
    pair = _two_of_one_cache(target, target.prompt(expected + PARTIAL_BLOCK))
    if pair is None:
        return cannot_tell("equal requests went to different workers, with separate caches")
    before, after = pair
    first, second = before.cached_tokens, after.cached_tokens
    if first is None or second is None:
        return cannot_tell("usage has no cached_tokens")
    observed = (
        f"{second} of {expected + PARTIAL_BLOCK} tokens cached the second time, {first} the first "
        "time"
    )
    # Without a graph, the engine is not known.
    beyond = PARTIAL_BLOCK - 1 if target.caches_single_tokens or target.expected is None else 0
    if not expected <= second <= expected + beyond:
        most = f" to {expected + beyond}" if beyond else ""
        return failed(
            f"{observed}; expected {expected}{most} ({BLOCKS} blocks of {int(size)})",
            "Prefix caching is off in the workers that prefill, or another worker got the request.",
        )
    more = f" and {second - expected} more tokens" if second > expected else ""
    return passed(f"{observed}: {BLOCKS} blocks of {int(size)}{more}")


def _two_of_one_cache(
    target: ProbeTarget, prompt: list[int]
) -> tuple[ApiResponse, ApiResponse] | None:
    """The first and a later response to equal requests, both of the same cache.

    The router chooses the worker by prefix in mode kv. In the other modes the worker that
    prefills, and with a mocker the decode worker, which reports its own cache, may be any: one
    request more than there are workers uses a cache twice.
    """
    by_kv = target.expected is not None and target.expected.router_mode == "kv"
    role = Role.DECODE if target.is_mocked else Role.PREFILL
    is_routed = by_kv and not target.is_mocked
    first: dict[object, ApiResponse] = {}
    for _ in range(MOST_WORKERS + 1):
        response = target.complete(prompt, 2)
        cache = None if is_routed else _worker(response, role)
        if cache in first:
            return first[cache], response
        first[cache] = response
        target.wait_for(lambda: False, 0.5)  # KV events reach the router
    return None


def _worker(response: ApiResponse, role: Role) -> object:
    decode = response.workers.get("decode_worker_id")
    prefill = response.workers.get("prefill_worker_id")
    return decode if role is Role.DECODE else prefill or decode
