"""Rules of moving KV with vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.transfer import moving_kv
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment


@rule(
    id="PS416",
    title="a connector without a role",
    level=Level.ERROR,
    cause="kv-transfer-config names a connector and no kv_role.",
    effect="vLLM ends at its start.",
    remedy="kv_producer, kv_consumer or kv_both.",
    source="vllm/config/kv_transfer.py 0.31.0; modelexpress#245",
)
def no_kv_role(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        config = worker.get("kv-transfer-config")
        if worker.engine is not Engine.VLLM or not isinstance(config, Mapping):
            continue
        role = worker.get("kv-transfer-config.kv_role")
        if config.get("kv_connector") and role not in ("kv_producer", "kv_consumer", "kv_both"):
            yield RuleResult(
                location=worker.config(
                    "kv-transfer-config.kv_role" if role else "kv-transfer-config"
                ),
                message=f"kv_role is {role!r}" if role else "no kv_role",
                fix=Fix(text="say it", config={"kv-transfer-config.kv_role": "kv_both"}),
            )


@rule(
    id="PS417",
    title="expandable segments beside a KV connector",
    level=Level.ERROR,
    cause="PyTorch moves memory that NIXL has registered.",
    effect="vLLM refuses, or NIXL_ERR_REMOTE_DISCONNECT in the middle of a transfer. The "
    "spelling PYTORCH_ALLOC_CONF slips past vLLM's own check.",
    remedy="Remove the variable.",
    source="vllm#41237, vllm#54351",
)
def expandable_segments(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.VLLM or worker.get("kv-transfer-config") is None:
            continue
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            text = (worker.env(name) or "").replace(" ", "").lower()
            if "expandable_segments:true" in text and not (
                worker.get("enable-sleep-mode") or worker.get("enable-cumem-allocator")
            ):
                yield RuleResult(
                    location=worker.location("env", name),
                    message=f"{name}={worker.env(name)} beside a KV connector",
                    fix=Fix(text="remove it"),
                )


@rule(
    id="PS418",
    title="a side channel that only its own pod reaches",
    level=Level.ERROR,
    cause="VLLM_NIXL_SIDE_CHANNEL_HOST is a loopback address.",
    effect="Decode connects to itself, and every transfer times out.",
    remedy="Leave it out, or take status.podIP.",
    source="srt-slurm#158",
)
def loopback_side_channel(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        host = worker.env("VLLM_NIXL_SIDE_CHANNEL_HOST")
        if worker.engine is Engine.VLLM and host in ("localhost", "127.0.0.1", "0.0.0.0", "::1"):
            yield RuleResult(
                location=worker.location("env", "VLLM_NIXL_SIDE_CHANNEL_HOST"),
                message=f"VLLM_NIXL_SIDE_CHANNEL_HOST={host}: the other pod cannot reach it",
                fix=Fix(text="leave it out: Dynamo sets the pod's address"),
            )


@rule(
    id="PS419",
    title="NIXL with pipeline parallelism and sliding windows",
    level=Level.ERROR,
    cause="vLLM's pulling connector does not support PP with a hybrid KV layout such as gpt-oss's.",
    effect="NotImplementedError at the start.",
    remedy="Use tensor parallelism.",
    source="vllm#52913",
)
def pipeline_with_nixl(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in moving_kv(deployment):
        connector = str(worker.get("kv-transfer-config.kv_connector") or "")
        hybrid = deployment.model is not None and any(deployment.model.windows)
        hybrid = hybrid and worker.get("disable-hybrid-kv-cache-manager") is not True
        if worker.engine is Engine.VLLM and worker.pp > 1 and "Nixl" in connector and hybrid:
            yield RuleResult(
                location=worker.settings.location("pipeline_parallel"),
                message=f"pipeline parallelism {worker.pp} with NIXL and a model of sliding "
                "windows",
                fix=Fix(text="use tensor parallelism", config={"pipeline-parallel-size": 1}),
            )


@rule(
    id="PS421",
    title="SGLang chunks that end inside a page",
    level=Level.ERROR,
    cause="chunked-prefill-size is no multiple of page-size.",
    effect="An assertion at the start.",
    remedy="Round it up.",
    source="sglang#8973; sglang/srt/server_args.py 0.5.21",
)
def sglang_chunk(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.pool(Role.PREFILL, Role.WORKER):
        chunk, page = worker.count("max_batch_tokens"), worker.count("block_size")
        ranks = worker.count("data_parallel") or 1 if worker.has_attention_dp else 1
        if worker.engine is Engine.SGLANG and chunk and page and (chunk // ranks) % page:
            share = f", shared by {ranks} ranks," if ranks > 1 else ""
            rounded = -(-chunk // (page * ranks)) * page * ranks
            yield RuleResult(
                location=worker.settings.location("max_batch_tokens"),
                message=f"chunked-prefill-size {chunk}{share} is no multiple of page-size {page}",
                fix=Fix(text="round it up", config={"chunked-prefill-size": rounded}),
            )


@rule(
    id="PS422",
    title="cache tiers without the radix cache",
    level=Level.ERROR,
    cause="SGLang's hierarchical cache extends the radix cache, which is off.",
    effect="ValueError at the start.",
    remedy="Leave the radix cache on.",
    source="sglang#9452",
)
def tiers_without_tree(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        tiers = worker.get("enable-hierarchical-cache") is True
        if worker.engine is Engine.SGLANG and tiers and worker.get("disable-radix-cache") is True:
            yield RuleResult(
                location=worker.config("enable-hierarchical-cache"),
                message="enable-hierarchical-cache with disable-radix-cache",
                fix=Fix(text="keep the radix cache", config={"disable-radix-cache": False}),
            )
