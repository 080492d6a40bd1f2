"""Writes a candidate as graph YAML, which `plan` replays and prints.

Other values than the candidate's are those of the graphs in `dynamo_graphs/`, which give their
sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.plan.request import ENGINE, PlanRequest
from penstock.plan.space import Candidate, PoolCandidate
from penstock.text.numbers import plain_number
from penstock.tune.settings import shown

FABRIC = "ib"
# Names of objects that must exist in the cluster.
CLAIM, TOKEN_SECRET = "model-cache", "hf-token-secret"
# Of the memory that the weights leave free, as in `dynamo_graphs/`.
FRACTIONS = {"prefill": 0.8, "decode": 0.85, "worker": 0.85}
GPT_OSS_REVISION = {"openai/gpt-oss-120b": "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"}
INACTIVITY_S = 300  # of a request that hangs; longer than a TTFT with queues
MAX_GRAPH_BATCH = 1024  # larger CUDA graphs take long to capture and are seldom used
PREFILL_GRAPHS = 30
TRANSFER = {
    "backend": "nixl  # DEFAULT failed with 4 + 4 workers on one host",
    "timeout_ms": "600000  # 60 s is too short for long inputs (dynamo#10671)",
}


def graph_text(
    request: PlanRequest, candidate: Candidate, header: Sequence[str] = (), frontends: int = 2
) -> str:
    """A complete graph for `check`, `up --engine mocker`, `simulate` and `helm install -f`."""
    draft = request.draft if candidate.drafts else None
    sections = {
        "model": _model(request),
        "hardware": _hardware(request, candidate),
        "slo": _flow({key: ms and plain_number(ms) for key, ms in request.slo}),
        "engine": _engine(request, candidate),
        "speculation": {
            "method": "eagle3" if draft else None,
            "draft_model": draft and draft.model,
            "draft_tokens": draft and draft.tokens,
        },
        "frontend": f"{{replicas: {frontends}, inactivity_timeout_s: {INACTIVITY_S}}}  # one "
        "serves while another is replaced",
        "router": _router(candidate),
        **{name: _pool(name, pool) for name, pool in _named_pools(candidate)},
        "kv_transfer": TRANSFER if candidate.is_disaggregated else None,
        "checks": {"suppress": _suppressions(request, candidate)},
    }
    blocks = (_block(name, value) for name, value in sections.items())
    comment = "".join(f"{f'# {line}'.rstrip()}\n" for line in header)
    return comment + "\n\n".join(block for block in blocks if block) + "\n"


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


def _block(key: str, value: object, indent: str = "") -> str:
    """YAML of a key and its value, which is YAML or a mapping; empty for None, and for a mapping in
    which no key has a value."""
    if not isinstance(value, Mapping):
        return "" if value is None else f"{indent}{key}: {value}"
    blocks = [_block(name, inner, f"{indent}  ") for name, inner in value.items()]
    return "\n".join([f"{indent}{key}:", *filter(None, blocks)]) if any(blocks) else ""


def _flow(keys: Mapping[str, object]) -> str | None:
    """A mapping on one line, with the keys that have a value."""
    entries = [f"{key}: {value}" for key, value in keys.items() if value is not None]
    return f"{{{', '.join(entries)}}}" if entries else None


def _model(request: PlanRequest) -> Mapping[str, object]:
    is_gpt_oss = request.shape.is_gpt_oss
    return {
        "id": request.model,
        "revision": GPT_OSS_REVISION.get(request.model),
        "context_length": request.context,
        "reasoning_parser": "gpt_oss" if is_gpt_oss else None,
        "tool_call_parser": "harmony" if is_gpt_oss else None,
        "cache": f"{{pvc: {CLAIM}}}",
        "token_secret": TOKEN_SECRET,
    }


def _hardware(request: PlanRequest, candidate: Candidate) -> str | None:
    price = request.gpu_hour_price
    return _flow(
        {
            "gpu": request.gpu.name,
            "gpus_per_node": request.gpu.gpus_per_node,
            "nodes": request.nodes,
            "fabric": _fabric(request) if candidate.is_disaggregated else None,
            "gpu_hour_price": plain_number(price) if price else None,
        }
    )


def _fabric(request: PlanRequest) -> str:
    return "mnnvl" if request.gpu.is_grace else FABRIC


def _engine(request: PlanRequest, candidate: Candidate) -> Mapping[str, object]:
    is_gpt_oss = request.shape.is_gpt_oss
    is_mxfp8 = is_gpt_oss and request.gpu.is_blackwell
    backend = "TRTLLM" if request.gpu.is_blackwell else "TRITON"
    activations = "W4A8_MXFP4_MXFP8  # MXFP8 activations, Blackwell only"
    cache = "{dtype: fp8}  # 36 KiB per token instead of 72; equal in all pools"
    transfer = "{transceiver_runtime: PYTHON}  # equal in both pools; each server decides `auto`"
    return {
        "kind": ENGINE,
        "env": {
            "OVERRIDE_QUANT_ALGO": activations if is_mxfp8 else None,
            "TRTLLM_ENABLE_PDL": '"1"  # programmatic dependent launch',
        },
        "config": {
            "moe_config": f"{{backend: {backend}}}" if is_gpt_oss else None,
            "stream_interval": "1  # higher values lose tool calls (dynamo#6664)",
            "enable_chunked_prefill": "true  # inputs may be longer than max_num_tokens",
            "kv_cache_config": cache if is_mxfp8 else None,
            "cache_transceiver_config": transfer if candidate.is_disaggregated else None,
        },
    }


def _router(candidate: Candidate) -> str | None:
    mode = None if candidate.router == "kv" else candidate.router
    changes = {key: shown(value) for key, value in candidate.settings.changes.items()}
    return _flow({"mode": mode, **changes})


def _named_pools(candidate: Candidate) -> Iterator[tuple[str, PoolCandidate]]:
    yield from (("prefill", pool) for pool in candidate.prefill)
    yield "decode" if candidate.is_disaggregated else "worker", candidate.worker


def _pool(name: str, pool: PoolCandidate) -> Mapping[str, object]:
    layout, is_prefill = pool.layout, name == "prefill"
    has_ranks = layout.gpus > 1 and layout.attention_dp
    graphs = PREFILL_GRAPHS if is_prefill else min(pool.batch, MAX_GRAPH_BATCH)
    return {
        "replicas": pool.replicas,
        "gpus": layout.gpus,
        "shared_memory": "80Gi",
        "config": {
            "moe_expert_parallel_size": layout.ep if layout.ep > 1 else None,
            "enable_attention_dp": "true  # each GPU has its own sequences" if has_ranks else None,
            "max_batch_size": pool.batch,
            "max_num_tokens": pool.step,
            "kv_cache_config": f"{{free_gpu_memory_fraction: {FRACTIONS[name]}}}",
            "cuda_graph_config": f"{{enable_padding: true, max_batch_size: {graphs}}}",
            # The drain of prefill workers reads these metrics.
            "enable_iter_perf_stats": None if is_prefill else "false",
        },
    }


def _suppressions(request: PlanRequest, candidate: Candidate) -> Mapping[str, object]:
    """Suppresses what `check` would find in the choice itself."""
    is_other_mode = candidate.router != "kv" and candidate.pools[0].replicas > 1
    better = f"{candidate.router} was better in the replays of the plan"
    too_few = "add a node before an update, or stop the graph; too few GPUs are free"
    return {
        "PS504": better if is_other_mode else None,
        "PS803": None if can_roll(request, candidate) else too_few,
    }
