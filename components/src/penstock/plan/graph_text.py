"""Writes a candidate as graph YAML, which `plan` replays and prints.

Other values than the candidate's are those of the graphs in `dynamo_graphs/`, which give their
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.plan.request import ENGINE, PlanRequest
from penstock.plan.space import Candidate, Layout, PoolCandidate
from penstock.text.numbers import plain_number
from penstock.tune.settings import shown

FABRIC = "ib"
# Names of objects that must exist in the cluster.
CLAIM, TOKEN_SECRET = "model-cache", "hf-token-secret"
# Of the memory that the weights leave free, as in `dynamo_graphs/`.
FRACTIONS = {"prefill": 0.8, "decode": 0.85, "worker": 0.85}
GPT_OSS_REVISION = {"openai/gpt-oss-120b": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"}
MAX_GRAPH_BATCH = 1024  # larger CUDA graphs take long to capture and are seldom used
PREFILL_GRAPHS = 30


def graph_text(
    request: PlanRequest, candidate: Candidate, header: Sequence[str] = (), frontends: int = 2
) -> str:
    """A complete graph for `check`, `up --engine mocker`, `simulate` and `helm install -f`."""
    lines = [
        *(f"# {line}".rstrip() for line in header),
        *_model(request),
        "",
        _hardware(request, candidate),
        "",
        *_slo(request),
        "engine:",
        f"  kind: {ENGINE}",
        *_environment(request),
        "  config:",
        *(f"    {line}" for line in _engine(request, candidate)),
        "",
        *_speculation(request, candidate),
        f"frontend: {{replicas: {frontends}}}  # one serves while another is replaced",
        "",
        *_router(candidate),
        *_pools(candidate),
        *_transfer(candidate),
        *_suppressions(request, candidate),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def prerequisites(request: PlanRequest, candidate: Candidate) -> Iterator[str]:
    """What the graph assumes of the cluster: objects that it names, and the network."""
    yield f"set model.cache.pvc to a PersistentVolumeClaim of your namespace (now: {CLAIM})"
    yield f"set model.token_secret to a Secret with HF_TOKEN (now: {TOKEN_SECRET})"
    if candidate.is_disaggregated:
        fabric = _fabric(request)
        yield f"set hardware.fabric to the network between your nodes (now: {fabric})"


def can_roll(request: PlanRequest, candidate: Candidate) -> bool:
    """Whether one more worker of each pool fits on the nodes, which a rolling update starts."""
    return free_gpus(request, candidate) >= gpus_of_update(candidate)


def free_gpus(request: PlanRequest, candidate: Candidate) -> int:
    return request.nodes * request.gpu.gpus_per_node - candidate.gpus


def gpus_of_update(candidate: Candidate) -> int:
    return sum(pool.layout.gpus for pool in candidate.pools)


def _model(request: PlanRequest) -> Iterator[str]:
    yield "model:"
    yield f"  id: {request.model}"
    if revision := GPT_OSS_REVISION.get(request.model):
        yield f"  revision: {revision}"
    yield f"  context_length: {request.context}"
    if request.shape.is_gpt_oss:
        yield "  reasoning_parser: gpt_oss"
        yield "  tool_call_parser: harmony"
    yield f"  cache: {{pvc: {CLAIM}}}"
    yield f"  token_secret: {TOKEN_SECRET}"


def _hardware(request: PlanRequest, candidate: Candidate) -> str:
    gpu = request.gpu
    fields = [f"gpu: {gpu.name}", f"gpus_per_node: {gpu.gpus_per_node}", f"nodes: {request.nodes}"]
    if candidate.is_disaggregated:
        fields.append(f"fabric: {_fabric(request)}")
    if request.gpu_hour_price:
        fields.append(f"gpu_hour_price: {plain_number(request.gpu_hour_price)}")
    return f"hardware: {{{', '.join(fields)}}}"


def _fabric(request: PlanRequest) -> str:
    return "mnnvl" if request.gpu.is_grace else FABRIC


def _slo(request: PlanRequest) -> Iterator[str]:
    limits = {k: v for k, v in request.slo.model_dump().items() if v is not None}
    if limits:
        entries = (f"{key}: {plain_number(value)}" for key, value in limits.items())
        yield f"slo: {{{', '.join(entries)}}}"
        yield ""


def _environment(request: PlanRequest) -> Iterator[str]:
    yield "  env:"
    if request.shape.is_gpt_oss and request.gpu.is_blackwell:
        yield "    OVERRIDE_QUANT_ALGO: W4A8_MXFP4_MXFP8  # MXFP8 activations, Blackwell only"
    yield '    TRTLLM_ENABLE_PDL: "1"  # programmatic dependent launch'


def _engine(request: PlanRequest, candidate: Candidate) -> Iterator[str]:
    if request.shape.is_gpt_oss:
        backend = "TRTLLM" if request.gpu.is_blackwell else "TRITON"
        yield f"moe_config: {{backend: {backend}}}"
    yield "stream_interval: 1  # higher values lose tool calls (dynamo#6664)"
    yield "enable_chunked_prefill: true  # inputs may be longer than max_num_tokens"
    if request.shape.is_gpt_oss and request.gpu.is_blackwell:
        yield "kv_cache_config: {dtype: fp8}  # 36 KiB per token instead of 72; equal in all pools"
    if candidate.is_disaggregated:
        yield "# Equal in both pools; `auto` decides in each server separately."
        yield "cache_transceiver_config: {transceiver_runtime: PYTHON}"


def _speculation(request: PlanRequest, candidate: Candidate) -> Iterator[str]:
    if candidate.drafts and (draft := request.draft):
        yield "speculation:"
        yield "  method: eagle3"
        yield f"  draft_model: {draft.model}"
        yield f"  draft_tokens: {draft.tokens}"
        yield ""


def _router(candidate: Candidate) -> Iterator[str]:
    fields = [] if candidate.router == "kv" else [f"mode: {candidate.router}"]
    fields += [f"{key}: {shown(value)}" for key, value in candidate.settings.changes.items()]
    if fields:
        yield f"router: {{{', '.join(fields)}}}"
        yield ""


def _pools(candidate: Candidate) -> Iterator[str]:
    if not candidate.is_disaggregated:
        yield from _pool("worker", candidate.worker)
        return
    yield from _pool("prefill", candidate.prefill[0])
    yield from _pool("decode", candidate.worker)


def _pool(name: str, pool: PoolCandidate) -> Iterator[str]:
    yield f"{name}:"
    yield f"  replicas: {pool.replicas}"
    yield f"  gpus: {pool.layout.gpus}"
    yield "  shared_memory: 80Gi"
    yield "  config:"
    for line in _parallel(pool.layout):
        yield f"    {line}"
    graphs = PREFILL_GRAPHS if name == "prefill" else min(pool.batch, MAX_GRAPH_BATCH)
    yield f"    max_batch_size: {pool.batch}"
    yield f"    max_num_tokens: {pool.step}"
    yield f"    kv_cache_config: {{free_gpu_memory_fraction: {FRACTIONS[name]}}}"
    yield f"    cuda_graph_config: {{enable_padding: true, max_batch_size: {graphs}}}"
    if name != "prefill":  # the drain of prefill workers reads these metrics
        yield "    enable_iter_perf_stats: false"
    yield ""


def _parallel(layout: Layout) -> Iterator[str]:
    if layout.gpus == 1:
        return
    if layout.ep > 1:
        yield f"moe_expert_parallel_size: {layout.ep}"
    if layout.attention_dp:
        yield "enable_attention_dp: true  # each GPU has its own sequences"


def _transfer(candidate: Candidate) -> Iterator[str]:
    if candidate.is_disaggregated:
        yield "kv_transfer:"
        yield "  backend: nixl  # DEFAULT failed with 4 + 4 workers on one host"
        yield "  timeout_ms: 600000  # 60 s is too short for long inputs (dynamo#10671)"
        yield ""


def _suppressions(request: PlanRequest, candidate: Candidate) -> Iterator[str]:
    """Suppresses what `check` would find in the choice itself."""
    suppressed = {}
    if candidate.router != "kv" and candidate.pools[0].replicas > 1:
        suppressed["PS504"] = f"{candidate.router} was better in the replays of the plan"
    if not can_roll(request, candidate):
        suppressed["PS803"] = (
            "add a node before an update, or stop the graph; too few GPUs are free"
        )
    if suppressed:
        yield "checks:"
        yield "  suppress:"
        yield from (f"    {rule}: {why}" for rule, why in suppressed.items())
