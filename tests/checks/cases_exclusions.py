"""Cases of settings that vLLM, SGLang, LMCache and Dynamo refuse together."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.cases_versions_of_values import DENSE, HYBRID, drafting, worker
from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import TRTLLM_AGG, Case, dump, graph

MLA, EXPERTS = "deepseek-ai/DeepSeek-V3.1", "Qwen/Qwen3-30B-A3B"
V4 = "deepseek-ai/DeepSeek-V4-Pro"
SPARSE = "deepseek-ai/DeepSeek-V3.2"
RADIX = "--disaggregation-decode-enable-radix-cache"
EAGLE = ("--speculative-algorithm", "EAGLE")
NIXL = ("--disaggregation-transfer-backend", "nixl")
FAKE = ("--disaggregation-transfer-backend", "fake")
MOONCAKE = ("--disaggregation-transfer-backend", "mooncake")
STAGING = {"SGLANG_DISAGG_STAGING_BUFFER": "1"}
OFFLOAD = "--disaggregation-decode-enable-offload-kvcache"
STRATEGY = "--mamba-radix-cache-strategy"
RUNNER, DRAFT_RUNNER = "--moe-runner-backend", "--speculative-moe-runner-backend"
FP8 = ("--quantization", "fp8")
LORA = ("--enable-lora", "--lora-paths", "a=/models/a")
COPIES = ("--tp-size", "4", "--dp-size", "2")
PIPELINE = ("--pipeline-parallel-size", "2")
PCP = ("--prefill-context-parallel-size", "2")
DCP = ("--decode-context-parallel-size", "2")
PRODUCER = {"kv_role": "kv_producer"}
# The flag's name before SGLang 0.5.14.
BUFFER = ("--mamba-scheduler-strategy", "extra_buffer")
NO_BUFFER = ("--mamba-scheduler-strategy", "no_buffer")
CHUNK = ("--mamba-track-interval", "96")
DRAFTS = ("--speculative-num-draft-tokens", "4")
DRAFT = {"method": "eagle3", "model": "acme/draft", "num_speculative_tokens": 2}
EAGLE3 = drafting(**DRAFT)
LMCACHE = (*flags(DENSE), *transfer("LMCacheConnectorV1"))


def sglang(*args: str, model: str = DENSE, tp: int = 1, **settings: Any) -> str:
    return worker("--tp-size", str(tp), *args, model=model, kind="sglang", gpus=tp, **settings)


def vllm(*args: str, model: str = DENSE, tp: int = 1, dp: int = 1, **settings: Any) -> str:
    sizes = ("--tensor-parallel-size", str(tp), "--data-parallel-size", str(dp))
    return worker(*sizes, *args, model=model, gpus=tp * dp, **settings)


def pool(name: str, kind: str, *args: str, version: str = "1.6.1", **settings: Any) -> str:
    """One worker of a disaggregated deployment."""
    model = ("--model-path", DENSE) if kind == "sglang" else flags(DENSE)
    arguments = (*model, "--disaggregation-mode", name, *args)
    return deployment(component(kind, *arguments, name=name, version=version, **settings))


def section(name: str, **values: Any) -> tuple[str, str]:
    """A KV connector with keys of its section."""
    return "--kv-transfer-config", json.dumps({**connector(name), **values})


def lmcache(**values: Any) -> str:
    env = {f"LMCACHE_{key.upper()}": str(value) for key, value in values.items()}
    return deployment(component("vllm", *LMCACHE, env=env))


def hybrid(*args: str, version: str = "1.3.0") -> str:
    return sglang(*args, model=HYBRID, version=version)


def eplb(extra: int = 0, **settings: Any) -> str:
    config = ("--eplb-config", json.dumps({"num_redundant_experts": extra})) if extra else ()
    args = ("--enable-expert-parallel", "--enable-eplb", *config)
    return vllm(*args, model=EXPERTS, **settings)


VLLM = (
    Case(
        rule="PS46601",
        bad=pool("prefill", "vllm", *section("NixlConnector", kv_buffer_device="tpu")),
        near=pool("prefill", "vllm", *section("NixlConnector", kv_buffer_device="cpu")),
    ),
    Case(
        rule="PS46603",
        bad=vllm(*transfer("NixlPushConnector"), *DCP, model=MLA, tp=8),
        near=vllm(*transfer("NixlConnector"), *DCP, model=MLA, tp=8),
    ),
    Case(
        rule="PS46604",
        bad=pool("prefill", "vllm", *transfer("NixlConnector"), *PCP, gpus=2),
        near=pool("prefill", "vllm", *section("NixlConnector", **PRODUCER), *PCP, gpus=2),
    ),
    Case(
        rule="PS46606",
        bad=pool("decode", "vllm", *section("MooncakeConnector", **PRODUCER)),
        near=pool("prefill", "vllm", *section("MooncakeConnector", **PRODUCER)),
    ),
    Case(
        rule="PS46608",
        bad=vllm(*transfer("NixlConnector"), "--enable-return-routed-experts", model=EXPERTS),
        near=vllm("--enable-return-routed-experts", model=EXPERTS),
    ),
    Case(
        rule="PS46602",
        bad=pool("prefill", "vllm", *transfer("NixlPushConnector", bidirectional_kv_xfer=True)),
        near=pool("prefill", "vllm", *transfer("NixlConnector", bidirectional_kv_xfer=True)),
    ),
    Case(
        rule="PS46605",
        bad=worker(
            *transfer("MooncakeConnector"), "--pipeline-parallel-size", "2", version="1.2.0", gpus=2
        ),
        near=worker(
            *transfer("MooncakeConnector"), "--pipeline-parallel-size", "2", version="1.4.0", gpus=2
        ),
    ),
    Case(
        rule="PS46609",
        bad=worker(*transfer("OffloadingConnector", cpu_bytes_to_use=1), "--use-replayssm"),
        near=worker("--use-replayssm"),
    ),
    Case(
        rule="PS46607",
        bad=worker(*transfer("HiSparseConnector")),
        near=worker(*transfer("HiSparseConnector", host_pool_gib=64)),
    ),
    Case(
        rule="PS17301",
        bad=worker(*drafting(num_speculative_tokens=3, prompt_lookup_min=5, prompt_lookup_max=2)),
        near=worker(*drafting(num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=5)),
    ),
    Case(
        rule="PS17302",
        bad=worker(*drafting(method="eagle3", model="acme/draft"), version="1.3.0"),
        near=worker(*EAGLE3, version="1.3.0"),
    ),
    Case(
        rule="PS17303",
        bad=worker(*drafting(**{**DRAFT, "method": "draft_model"}), version="0.9.1"),
        near=worker(*drafting(**{**DRAFT, "method": "draft_model"}), version="1.0.0"),
    ),
    Case(  # 0.16 knows no target of this type, 0.23 checks the class
        rule="PS17304",
        bad=worker(*EAGLE3, model=MLA, version="1.0.0"),
        near=worker(*EAGLE3, model=MLA, version="1.3.0"),
    ),
    Case(
        rule="PS17305",
        bad=worker(*drafting(**DRAFT, disable_padded_drafter_batch=True), "--async-scheduling"),
        near=worker(*drafting(**DRAFT, disable_padded_drafter_batch=True)),
    ),
    Case(
        rule="PS17306",
        bad=worker(*EAGLE3, "--kv-sharing-fast-prefill"),
        near=worker(*drafting(num_speculative_tokens=2), "--kv-sharing-fast-prefill"),
    ),
    Case(rule="PS23403", bad=eplb(tp=3, version="1.4.0"), near=eplb(1, tp=3, version="1.4.0")),
    Case(rule="PS23402", bad=eplb(), near=eplb(tp=2)),
    Case(
        rule="PS23401",
        bad=vllm("--eplb-config", '{"num_redundant_experts": 2}', model=EXPERTS),
        near=vllm("--eplb-config", '{"num_redundant_experts": 0}', model=EXPERTS),
    ),
    Case(
        rule="PS23404",
        bad=vllm("--data-parallel-rank", "2", dp=2, model=EXPERTS),
        near=vllm("--data-parallel-rank", "1", dp=2, model=EXPERTS),
    ),
    Case(
        rule="PS23405",
        bad=vllm("--data-parallel-external-lb", dp=2),
        near=vllm("--data-parallel-external-lb", dp=2, model=EXPERTS),
    ),
    Case(
        rule="PS23411",
        bad=vllm("--load-format", "safetensors", model="s3://bucket/model"),
        near=vllm("--load-format", "runai_streamer", model="s3://bucket/model"),
    ),
    Case(
        rule="PS23413",
        bad=vllm("--kv-cache-dtype", "nvfp4", model=MLA, version="1.4.0"),
        near=vllm("--kv-cache-dtype", "nvfp4", version="1.4.0"),
    ),
    Case(
        rule="PS23409",
        bad=vllm("--max-long-partial-prefills", "4", version="1.3.0"),
        near=vllm(
            *("--max-long-partial-prefills", "4", "--max-num-partial-prefills", "4"),
            version="1.3.0",
        ),
    ),
    Case(
        rule="PS23406",
        bad=vllm("--nnodes", "2", "--data-parallel-backend", "ray", dp=2, model=EXPERTS),
        near=vllm("--nnodes", "2", "--data-parallel-backend", "mp", dp=2, model=EXPERTS),
    ),
    Case(
        rule="PS23407",
        bad=worker(*PIPELINE, "--async-scheduling", version="0.9.1", gpus=2),
        near=worker(*PIPELINE, version="0.9.1", gpus=2),
    ),
    Case(
        rule="PS23408",
        bad=vllm(
            *("--max-num-partial-prefills", "2", "--no-enable-chunked-prefill"),
            *("--max-num-batched-tokens", "65536"),
            version="1.3.0",
        ),
        near=vllm(
            *("--max-num-partial-prefills", "2", "--max-num-batched-tokens", "65536"),
            version="1.3.0",
        ),
    ),
    Case(
        rule="PS23410",
        bad=vllm("--max-num-active-seqs", "64", "--max-num-seqs", "32"),
        near=vllm("--max-num-active-seqs", "32", "--max-num-seqs", "32"),
    ),
    Case(
        rule="PS23412",
        bad=vllm("--ec-transfer-config", '{"ec_connector": "ECExampleConnector"}'),
        near=vllm(
            "--ec-transfer-config",
            '{"ec_connector": "ECExampleConnector", "ec_role": "ec_producer"}',
        ),
    ),
    Case(
        rule="PS23414",
        bad=vllm("--mamba-block-size", "64", "--no-enable-prefix-caching", model=HYBRID),
        near=vllm("--mamba-block-size", "64", "--enable-prefix-caching", model=HYBRID),
    ),
    Case(
        rule="PS17503",
        bad=vllm("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "2"),
        near=vllm("--enable-lora", "--max-loras", "4", "--max-cpu-loras", "4"),
    ),
)
SGLANG = (
    Case(
        rule="PS46701",
        bad=pool("decode", "sglang", RADIX, *NIXL, *EAGLE, version="1.3.0"),
        near=pool("decode", "sglang", RADIX, *NIXL, version="1.3.0"),
    ),
    Case(
        rule="PS46703",
        bad=pool("decode", "sglang", RADIX, version="1.2.0"),
        near=pool("decode", "sglang", RADIX, version="1.3.0"),
    ),
    Case(
        rule="PS46711",
        bad=pool("prefill", "sglang", OFFLOAD, version="1.3.0"),
        near=pool("decode", "sglang", OFFLOAD, version="1.3.0"),
        fixed=pool("prefill", "sglang", version="1.3.0"),
    ),
    Case(
        rule="PS46708",
        bad=pool("prefill", "sglang", STRATEGY, "extra_buffer_lazy"),
        near=pool("prefill", "sglang", STRATEGY, "extra_buffer"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS46702",
        bad=pool("decode", "sglang", RADIX, *FAKE),
        near=pool("decode", "sglang", RADIX, *NIXL),
    ),
    Case(
        rule="PS46704",
        bad=pool("decode", "sglang", RADIX, *NIXL, "--dcp-size", "2", version="1.5.1"),
        near=pool("decode", "sglang", RADIX, *NIXL, "--dcp-size", "1", version="1.5.1"),
    ),
    Case(
        rule="PS46705",
        bad=pool("prefill", "sglang", *FAKE),
        near=pool("prefill", "sglang", *NIXL),
    ),
    Case(
        rule="PS46706",
        bad=pool("decode", "sglang", *NIXL, "--enable-linear-replayssm"),
        near=sglang("--enable-linear-replayssm"),
        fixed=pool("decode", "sglang", *NIXL),
    ),
    Case(
        rule="PS46707",
        bad=pool("decode", "sglang", *NIXL, "--enable-response-store"),
        near=sglang("--enable-response-store"),
        fixed=pool("decode", "sglang", *NIXL),
    ),
    Case(
        rule="PS46710",
        bad=pool("prefill", "sglang", *NIXL, env=STAGING, version="1.2.1"),
        near=pool("prefill", "sglang", *MOONCAKE, env=STAGING, version="1.2.1"),
    ),
    Case(
        rule="PS46712",
        bad=pool("decode", "sglang", *NIXL, OFFLOAD),
        near=pool("decode", "sglang", *NIXL, OFFLOAD, "--hicache-storage-backend", "file"),
    ),
    Case(
        rule="PS17401",
        bad=hybrid("--disable-radix-cache", *BUFFER, version="1.1.0"),
        near=hybrid("--disable-radix-cache", *NO_BUFFER, version="1.1.0"),
    ),
    Case(
        rule="PS17402",
        bad=hybrid("--disable-radix-cache", *BUFFER, version="1.0.1"),
        near=hybrid("--disable-radix-cache", *NO_BUFFER, version="1.0.1"),
    ),
    Case(
        rule="PS17403",
        bad=hybrid(STRATEGY, "extra_buffer", "--page-size", "48"),
        near=hybrid(STRATEGY, "extra_buffer", "--page-size", "64"),
    ),
    Case(
        rule="PS17404",
        bad=hybrid(STRATEGY, "extra_buffer", *CHUNK, "--page-size", "96"),
        near=hybrid(STRATEGY, "extra_buffer", *CHUNK, "--page-size", "32"),
    ),
    Case(
        rule="PS17405",
        bad=hybrid(STRATEGY, "extra_buffer", *DRAFTS, "--mamba-track-interval", "2"),
        near=hybrid(STRATEGY, "extra_buffer", *DRAFTS, "--mamba-track-interval", "4"),
    ),
    Case(rule="PS17406", bad=hybrid(*EAGLE, version="1.2.0"), near=hybrid(*EAGLE)),
    Case(
        rule="PS17407",
        bad=hybrid(STRATEGY, "no_buffer", "--page-size", "64", "--disable-overlap-schedule"),
        near=hybrid(STRATEGY, "no_buffer", "--page-size", "1", "--disable-overlap-schedule"),
    ),
    Case(
        rule="PS17408",
        bad=hybrid(STRATEGY, "no_buffer", "--attention-backend", "trtllm_mha"),
        near=hybrid(STRATEGY, "no_buffer", "--attention-backend", "fa3"),
    ),
    Case(
        rule="PS17409",
        bad=hybrid(*NO_BUFFER, "--linear-attn-decode-backend", "flashinfer", version="1.1.0"),
        near=hybrid(*NO_BUFFER, "--linear-attn-decode-backend", "triton", version="1.1.0"),
    ),
    Case(
        rule="PS17410",
        bad=hybrid(STRATEGY, "no_buffer"),
        near=hybrid(STRATEGY, "no_buffer", "--disable-overlap-schedule"),
    ),
    Case(
        rule="PS17411",
        bad=sglang(STRATEGY, "extra_buffer"),
        near=sglang(STRATEGY, "extra_buffer", model=HYBRID),
        fixed=sglang(),
    ),
    Case(
        rule="PS23501",
        bad=sglang("--moe-dense-tp-size", "2", model=EXPERTS, tp=4),
        near=sglang("--moe-dense-tp-size", "1", model=EXPERTS, tp=4),
    ),
    Case(  # until 0.5.14 only 1
        rule="PS23501",
        bad=sglang("--moe-dense-tp-size", "4", model=EXPERTS, tp=4, version="1.2.0"),
        near=sglang("--moe-dense-tp-size", "4", model=EXPERTS, tp=4),
    ),
    Case(
        rule="PS23505",
        bad=sglang(RUNNER, "flashinfer_cutlass", "--ep-size", "2", model=EXPERTS, tp=4),
        near=sglang(RUNNER, "flashinfer_cutlass", "--ep-size", "4", model=EXPERTS, tp=4),
    ),
    Case(
        rule="PS23506",
        bad=sglang(RUNNER, "cutlass", *FP8, "--ep-size", "4", model=EXPERTS, tp=4),
        near=sglang(RUNNER, "cutlass", *FP8, "--ep-size", "1", model=EXPERTS, tp=4),
    ),
    Case(
        rule="PS23507",
        bad=sglang(*EAGLE, DRAFT_RUNNER, "flashinfer_trtllm", version="1.1.0"),
        near=sglang(*EAGLE, DRAFT_RUNNER, "triton", version="1.1.0"),
    ),
    Case(
        rule="PS23510",
        bad=sglang("--kv-cache-dtype", "fp8_e5m2", model=V4, tp=8),
        near=sglang("--kv-cache-dtype", "fp8_e4m3", model=V4, tp=8),
    ),
    Case(
        rule="PS23511",
        bad=sglang(
            "--moe-runner-backend", "flashinfer_mxfp4", model=V4, tp=16, gpu="h200", version="1.3.0"
        ),
        near=sglang(
            "--moe-runner-backend", "flashinfer_mxfp4", model=V4, tp=8, gpu="h200", version="1.3.0"
        ),
        fixed=sglang(RUNNER, "marlin", model=V4, tp=16, gpu="h200", version="1.3.0"),
        also=("PS227",),
    ),
    Case(
        rule="PS23503",
        bad=sglang("--enable-eplb", model=EXPERTS, tp=4),
        near=sglang("--enable-eplb", "--ep-size", "4", model=EXPERTS, tp=4),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS23502",
        bad=worker("--enable-dp-lm-head", *COPIES, model=EXPERTS, kind="sglang", gpus=8),
        near=sglang("--enable-dp-lm-head", model=EXPERTS, tp=4),
        fixed=worker(*COPIES, model=EXPERTS, kind="sglang", gpus=8),
    ),
    Case(
        rule="PS23509",
        bad=sglang("--kv-cache-dtype", "fp8_e5m2", model=SPARSE, tp=8),
        near=sglang("--kv-cache-dtype", "fp8_e4m3", model=SPARSE, tp=8),
    ),
    Case(
        rule="PS23504",
        bad=sglang("--moe-runner-backend", "flashinfer_cutlass", "--quantization", "fp8"),
        near=sglang("--moe-runner-backend", "flashinfer_cutlass", "--quantization", "modelopt_fp4"),
    ),
    Case(
        rule="PS23508",
        bad=sglang("--attention-backend", "trtllm_mha", gpu="h200", version="1.0.1"),
        near=sglang("--attention-backend", "trtllm_mha", gpu="h200", version="1.1.0"),
    ),
    Case(
        rule="PS17201",
        bad=sglang(*EAGLE, "--enable-lora", version="1.4.0"),
        near=sglang("--speculative-algorithm", "NGRAM", "--enable-lora", version="1.4.0"),
    ),
    Case(
        rule="PS17202",
        bad=sglang(
            *EAGLE,
            "--speculative-eagle-topk",
            "4",
            "--page-size",
            "64",
            "--attention-backend",
            "flashmla",
        ),
        near=sglang(
            *EAGLE,
            "--speculative-eagle-topk",
            "4",
            "--page-size",
            "64",
            "--attention-backend",
            "fa3",
        ),
    ),
    Case(
        rule="PS17502",
        bad=sglang(*LORA, "--max-loaded-loras", "4"),
        near=sglang(*LORA, "--max-loaded-loras", "8"),
    ),
    Case(
        rule="PS17501",
        bad=sglang("--enable-lora"),
        near=sglang("--enable-lora", "--lora-paths", "a=/models/a"),
    ),
    Case(
        rule="PS236",
        bad=sglang(model="nvidia/Qwen3-235B-A22B-NVFP4", tp=4, gpu="h200", version="1.2.0"),
        near=sglang(model="nvidia/Qwen3-235B-A22B-NVFP4", tp=4, gpu="h200", version="1.3.0"),
    ),
    Case(  # a model that only its name describes
        rule="PS236",
        bad=worker(model="acme/model-FP4", kind="trtllm", version="1.0.1", gpu="h200"),
        near=worker(model="acme/model-FP4", kind="trtllm", version="1.0.1", gpu="b200"),
    ),
    Case(
        rule="PS611",
        bad=sglang("--skip-tokenizer-init"),
        near=sglang("--skip-tokenizer-init", version="1.0.1"),  # Dynamo sets it itself
        fixed=sglang(),
    ),
)
PARSER = ("--dyn-reasoning-parser", "glm45")
CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "four"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}}
                ]
            }
        }
    },
}


def claimed(nodes: int) -> str:
    container = component("vllm", *flags(DENSE, tensor_parallel_size=4 * nodes), version="1.3.0")
    container["podTemplate"]["spec"] |= CLAIMS
    main = container["podTemplate"]["spec"]["containers"][0]
    main["resources"] = {"limits": {}, "claims": [{"name": "gpus"}]}
    if nodes > 1:
        container["multinode"] = {"nodeCount": nodes}
    return dump(TEMPLATE) + "---\n" + deployment(container, version="1.3.0")


GRAPHS = "worker/config/cuda_graph_config"
SUFFIX = {"decoding_type": "SA", "max_draft_len": 3}
EAGLE3 = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "m"}
CACHE = "worker/config/kv_cache_config"
OTHER = (
    Case(
        rule="PS178",
        bad=sglang("--disagg-config", "/c.yaml", version="1.3.0"),
        near=sglang("--disagg-config", "/c.yaml", "--disagg-config-key", "a", version="1.3.0"),
    ),
    Case(
        rule="PS178",
        bad=sglang("--dedicated-mm-encoder", version="1.6.1"),
        near=sglang("--enable-multimodal", version="1.6.1"),
    ),
    Case(
        rule="PS178",
        bad=sglang("--dedicated-mm-encoder", "--enable-multimodal", version="1.6.1"),
        near=sglang("--enable-multimodal", version="1.6.1"),
    ),
    Case(
        rule="PS178",
        bad=worker("--dyn-endpoint-types", "chat,embeddings"),
        near=worker("--dyn-endpoint-types", "chat,completions"),
    ),
    Case(
        rule="PS176",
        bad=graph(TRTLLM_AGG, {f"{CACHE}/disk_cache_size": 1 << 30}),
        near=graph(
            TRTLLM_AGG,
            {f"{CACHE}/disk_cache_size": 1 << 30, f"{CACHE}/disk_cache_path": "/tmp/kv"},
        ),
    ),
    Case(
        rule="PS176",
        bad=graph(TRTLLM_AGG, {"worker/config/mx_config": {"server_url": "http://mx"}}),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/config/mx_config": {"server_url": "http://mx"},
                "worker/config/checkpoint_format": "MX",
            },
        ),
    ),
    *(
        Case(
            rule="PS176",
            bad=graph(TRTLLM_AGG, {"worker/config/speculative_config": {**method, **bad}}),
            near=graph(TRTLLM_AGG, {"worker/config/speculative_config": {**method, **near}}),
        )
        for method, bad, near in (
            (SUFFIX, {"global_pool_size": 4096}, {"max_matching_ngram_size": 65}),
            (
                {**SUFFIX, "enable_global_pool": True},
                {"max_matching_ngram_size": 65},
                {"max_matching_ngram_size": 64},
            ),
            (
                {"decoding_type": "DSpark", "max_draft_len": 3},
                {"block_size": 4},
                {"block_size": 3},
            ),
            (EAGLE3, {"draft_len_schedule": {"4": 5}}, {"draft_len_schedule": {"4": 3}}),
            (
                {**EAGLE3, "use_dynamic_tree": True, "dynamic_tree_max_topK": 2},
                {"max_total_draft_tokens": 7},
                {"max_total_draft_tokens": 6},
            ),
        )
    ),
    Case(
        rule="PS176",
        bad=graph(TRTLLM_AGG, {GRAPHS: {"mode": "decode", "num_tokens": [3]}}),
        near=graph(TRTLLM_AGG, {GRAPHS: {"mode": "encode", "num_tokens": [3]}}),
    ),
    Case(
        rule="PS177",
        bad=worker(version="1.3.0", env={"VLLM_RPC_TIMEOUT": "1"}),
        near=worker(version="1.2.0", env={"VLLM_RPC_TIMEOUT": "1"}),
    ),
    Case(
        rule="PS177",
        bad=sglang(version="1.6.1", env={"SGLANG_CUTLASS_MOE": "1"}),
        near=sglang(version="1.6.1", env={"SGLANG_OF_ACME": "1"}),
    ),
    Case(
        rule="PS170",
        bad=worker(version="1.6.1", env={"VLLM_NIXL_SIDE_CHANEL_HOST": "10.0.0.1"}),
        near=worker(version="1.6.1", env={"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}),
    ),
    Case(  # a variable of one's own
        rule="PS170",
        bad=worker(version="1.6.1", env={"DYN_SYSTEM_PROT": "9090"}),
        near=worker(version="1.6.1", env={"DYN_SYSTEM_OWNER": "team-a"}),
    ),
    Case(
        rule="PS612",
        bad=worker(*PARSER, version="1.2.0"),
        near=worker(*PARSER, "--reasoning-parser", "glm45", version="1.2.0"),
    ),
    Case(rule="PS782", bad=claimed(2), near=claimed(1)),
    Case(
        rule="PS468",
        bad=lmcache(remote_url="lm://server:1", local_cpu=False, max_local_cpu_size=0),
        near=lmcache(remote_url="lm://server:1", local_cpu=False, max_local_cpu_size=5),
    ),
    Case(
        rule="PS468",
        bad=lmcache(local_disk="file:///cache"),
        near=lmcache(local_disk="file:///cache", max_local_disk_size=100),
    ),
    Case(
        rule="PS468",
        bad=lmcache(enable_pd=True, pd_role="sender", pd_buffer_size=1),
        near=lmcache(enable_pd=True, pd_role="sender", pd_buffer_size=1, pd_buffer_device="cuda"),
    ),
)
CASES = (*VLLM, *SGLANG, *OTHER)
