"""Cases of settings that vLLM, SGLang, LMCache and Dynamo refuse together."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.cases_versions_of_values import DENSE, HYBRID, drafting, worker
from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import OMIT, Case, Words, X, dump, trtllm_agg, vary

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
    vary("PS46601", pool, "prefill", "vllm", X)(
        Words(*section("NixlConnector", kv_buffer_device="tpu")),
        Words(*section("NixlConnector", kv_buffer_device="cpu")),
    ),
    vary("PS46603", vllm, X, *DCP, model=MLA, tp=8)(
        Words(*transfer("NixlPushConnector")), Words(*transfer("NixlConnector"))
    ),
    vary("PS46604", pool, "prefill", "vllm", X, *PCP, gpus=2)(
        Words(*transfer("NixlConnector")), Words(*section("NixlConnector", **PRODUCER))
    ),
    vary("PS46606", pool, X, "vllm", *section("MooncakeConnector", **PRODUCER))(
        "decode", "prefill"
    ),
    vary("PS46608", vllm, X, "--enable-return-routed-experts", model=EXPERTS)(
        Words(*transfer("NixlConnector")), OMIT
    ),
    vary("PS46602", pool, "prefill", "vllm", X)(
        Words(*transfer("NixlPushConnector", bidirectional_kv_xfer=True)),
        Words(*transfer("NixlConnector", bidirectional_kv_xfer=True)),
    ),
    vary(
        "PS46605",
        worker,
        *transfer("MooncakeConnector"),
        "--pipeline-parallel-size",
        "2",
        version=X,
        gpus=2,
    )("1.2.0", "1.4.0"),
    vary("PS46609", worker, X, "--use-replayssm")(
        Words(*transfer("OffloadingConnector", cpu_bytes_to_use=1)), OMIT
    ),
    vary("PS46607", worker)(
        Words(*transfer("HiSparseConnector")),
        Words(*transfer("HiSparseConnector", host_pool_gib=64)),
    ),
    vary("PS17301", worker)(
        Words(*drafting(num_speculative_tokens=3, prompt_lookup_min=5, prompt_lookup_max=2)),
        Words(*drafting(num_speculative_tokens=3, prompt_lookup_min=2, prompt_lookup_max=5)),
    ),
    vary("PS17302", worker, X, version="1.3.0")(
        Words(*drafting(method="eagle3", model="acme/draft")), Words(*EAGLE3)
    ),
    vary("PS17303", worker, *drafting(**{**DRAFT, "method": "draft_model"}), version=X)(
        "0.9.1", "1.0.0"
    ),
    # 0.16 knows no target of this type, 0.23 checks the class
    vary("PS17304", worker, *EAGLE3, model=MLA, version=X)("1.0.0", "1.3.0"),
    vary("PS17305", worker, *drafting(**DRAFT, disable_padded_drafter_batch=True), X)(
        "--async-scheduling", OMIT
    ),
    vary("PS17306", worker, X, "--kv-sharing-fast-prefill")(
        Words(*EAGLE3), Words(*drafting(num_speculative_tokens=2))
    ),
    vary("PS23403", eplb, X, tp=3, version="1.4.0")(OMIT, 1),
    Case("PS23402", eplb(), eplb(tp=2)),
    vary("PS23401", vllm, "--eplb-config", X, model=EXPERTS)(
        '{"num_redundant_experts": 2}', '{"num_redundant_experts": 0}'
    ),
    vary("PS23404", vllm, "--data-parallel-rank", X, dp=2, model=EXPERTS)("2", "1"),
    vary("PS23405", vllm, "--data-parallel-external-lb", dp=2, model=X)(OMIT, EXPERTS),
    vary("PS23411", vllm, "--load-format", X, model="s3://bucket/model")(
        "safetensors", "runai_streamer"
    ),
    vary("PS23413", vllm, "--kv-cache-dtype", "nvfp4", model=X, version="1.4.0")(MLA, OMIT),
    vary("PS23409", vllm, X, version="1.3.0")(
        Words("--max-long-partial-prefills", "4"),
        Words(*("--max-long-partial-prefills", "4", "--max-num-partial-prefills", "4")),
    ),
    vary("PS23406", vllm, "--nnodes", "2", "--data-parallel-backend", X, dp=2, model=EXPERTS)(
        "ray", "mp"
    ),
    vary("PS23407", worker, *PIPELINE, X, version="0.9.1", gpus=2)("--async-scheduling", OMIT),
    vary("PS23408", vllm, X, version="1.3.0")(
        Words(
            *("--max-num-partial-prefills", "2", "--no-enable-chunked-prefill"),
            *("--max-num-batched-tokens", "65536"),
        ),
        Words(*("--max-num-partial-prefills", "2", "--max-num-batched-tokens", "65536")),
    ),
    vary("PS23410", vllm, "--max-num-active-seqs", X, "--max-num-seqs", "32")("64", "32"),
    vary("PS23412", vllm, "--ec-transfer-config", X)(
        '{"ec_connector": "ECExampleConnector"}',
        '{"ec_connector": "ECExampleConnector", "ec_role": "ec_producer"}',
    ),
    vary("PS23414", vllm, "--mamba-block-size", "64", X, model=HYBRID)(
        "--no-enable-prefix-caching", "--enable-prefix-caching"
    ),
    vary("PS17503", vllm, "--enable-lora", "--max-loras", "4", "--max-cpu-loras", X)("2", "4"),
)
SGLANG = (
    vary("PS46701", pool, "decode", "sglang", RADIX, *NIXL, X, version="1.3.0")(
        Words(*EAGLE), OMIT
    ),
    vary("PS46703", pool, "decode", "sglang", RADIX, version=X)("1.2.0", "1.3.0"),
    vary("PS46711", pool, X, "sglang", OFFLOAD, version="1.3.0")(
        "prefill", "decode", fixed=pool("prefill", "sglang", version="1.3.0")
    ),
    vary("PS46708", pool, "prefill", "sglang", STRATEGY, X)(
        "extra_buffer_lazy", "extra_buffer", is_repaired_by_near=True
    ),
    vary("PS46702", pool, "decode", "sglang", RADIX, X)(Words(*FAKE), Words(*NIXL)),
    vary("PS46704", pool, "decode", "sglang", RADIX, *NIXL, "--dcp-size", X, version="1.5.1")(
        "2", "1"
    ),
    vary("PS46705", pool, "prefill", "sglang", X)(Words(*FAKE), Words(*NIXL)),
    Case(
        "PS46706",
        pool("decode", "sglang", *NIXL, "--enable-linear-replayssm"),
        sglang("--enable-linear-replayssm"),
        fixed=pool("decode", "sglang", *NIXL),
    ),
    Case(
        "PS46707",
        pool("decode", "sglang", *NIXL, "--enable-response-store"),
        sglang("--enable-response-store"),
        fixed=pool("decode", "sglang", *NIXL),
    ),
    vary("PS46710", pool, "prefill", "sglang", X, env=STAGING, version="1.2.1")(
        Words(*NIXL), Words(*MOONCAKE)
    ),
    vary("PS46712", pool, "decode", "sglang", *NIXL, OFFLOAD, X)(
        OMIT, Words("--hicache-storage-backend", "file")
    ),
    vary("PS17401", hybrid, "--disable-radix-cache", X, version="1.1.0")(
        Words(*BUFFER), Words(*NO_BUFFER)
    ),
    vary("PS17402", hybrid, "--disable-radix-cache", X, version="1.0.1")(
        Words(*BUFFER), Words(*NO_BUFFER)
    ),
    vary("PS17403", hybrid, STRATEGY, "extra_buffer", "--page-size", X)("48", "64"),
    vary("PS17404", hybrid, STRATEGY, "extra_buffer", *CHUNK, "--page-size", X)("96", "32"),
    vary("PS17405", hybrid, STRATEGY, "extra_buffer", *DRAFTS, "--mamba-track-interval", X)(
        "2", "4"
    ),
    vary("PS17406", hybrid, *EAGLE, version=X)("1.2.0", OMIT),
    vary("PS17407", hybrid, STRATEGY, "no_buffer", "--page-size", X, "--disable-overlap-schedule")(
        "64", "1"
    ),
    vary("PS17408", hybrid, STRATEGY, "no_buffer", "--attention-backend", X)("trtllm_mha", "fa3"),
    vary("PS17409", hybrid, *NO_BUFFER, "--linear-attn-decode-backend", X, version="1.1.0")(
        "flashinfer", "triton"
    ),
    vary("PS17410", hybrid, STRATEGY, "no_buffer", X)(OMIT, "--disable-overlap-schedule"),
    vary("PS17411", sglang, STRATEGY, "extra_buffer", model=X)(OMIT, HYBRID, fixed=sglang()),
    vary("PS23501", sglang, "--moe-dense-tp-size", X, model=EXPERTS, tp=4)("2", "1"),
    # until 0.5.14 only 1
    vary("PS23501", sglang, "--moe-dense-tp-size", "4", model=EXPERTS, tp=4, version=X)(
        "1.2.0", OMIT
    ),
    vary("PS23505", sglang, RUNNER, "flashinfer_cutlass", "--ep-size", X, model=EXPERTS, tp=4)(
        "2", "4"
    ),
    vary("PS23506", sglang, RUNNER, "cutlass", *FP8, "--ep-size", X, model=EXPERTS, tp=4)("4", "1"),
    vary("PS23507", sglang, *EAGLE, DRAFT_RUNNER, X, version="1.1.0")(
        "flashinfer_trtllm", "triton"
    ),
    vary("PS23510", sglang, "--kv-cache-dtype", X, model=V4, tp=8)("fp8_e5m2", "fp8_e4m3"),
    vary(
        "PS23511",
        sglang,
        "--moe-runner-backend",
        "flashinfer_mxfp4",
        model=V4,
        tp=X,
        gpu="h200",
        version="1.3.0",
    )(
        16,
        8,
        fixed=sglang(RUNNER, "marlin", model=V4, tp=16, gpu="h200", version="1.3.0"),
        also=("PS227",),
    ),
    vary("PS23503", sglang, "--enable-eplb", X, model=EXPERTS, tp=4)(
        OMIT, Words("--ep-size", "4"), is_repaired_by_near=True
    ),
    Case(
        "PS23502",
        worker("--enable-dp-lm-head", *COPIES, model=EXPERTS, kind="sglang", gpus=8),
        sglang("--enable-dp-lm-head", model=EXPERTS, tp=4),
        fixed=worker(*COPIES, model=EXPERTS, kind="sglang", gpus=8),
    ),
    vary("PS23509", sglang, "--kv-cache-dtype", X, model=SPARSE, tp=8)("fp8_e5m2", "fp8_e4m3"),
    vary("PS23504", sglang, "--moe-runner-backend", "flashinfer_cutlass", "--quantization", X)(
        "fp8", "modelopt_fp4"
    ),
    vary("PS23508", sglang, "--attention-backend", "trtllm_mha", gpu="h200", version=X)(
        "1.0.1", "1.1.0"
    ),
    vary("PS17201", sglang, X, "--enable-lora", version="1.4.0")(
        Words(*EAGLE), Words("--speculative-algorithm", "NGRAM")
    ),
    vary(
        "PS17202",
        sglang,
        *EAGLE,
        "--speculative-eagle-topk",
        "4",
        "--page-size",
        "64",
        "--attention-backend",
        X,
    )("flashmla", "fa3"),
    vary("PS17502", sglang, *LORA, "--max-loaded-loras", X)("4", "8"),
    vary("PS17501", sglang, "--enable-lora", X)(OMIT, Words("--lora-paths", "a=/models/a")),
    vary("PS236", sglang, model="nvidia/Qwen3-235B-A22B-NVFP4", tp=4, gpu="h200", version=X)(
        "1.2.0", "1.3.0"
    ),
    # a model that only its name describes
    vary("PS236", worker, model="acme/model-FP4", kind="trtllm", version="1.0.1", gpu=X)(
        "h200", "b200"
    ),
    # Dynamo sets it itself
    vary("PS611", sglang, "--skip-tokenizer-init", version=X)(OMIT, "1.0.1", fixed=sglang()),
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
    vary("PS178", sglang, "--disagg-config", "/c.yaml", X, version="1.3.0")(
        OMIT, Words("--disagg-config-key", "a")
    ),
    vary("PS178", sglang, X, version="1.6.1")("--dedicated-mm-encoder", "--enable-multimodal"),
    vary("PS178", sglang, X, "--enable-multimodal", version="1.6.1")(
        "--dedicated-mm-encoder", OMIT
    ),
    vary("PS178", worker, "--dyn-endpoint-types", X)("chat,embeddings", "chat,completions"),
    vary("PS176", trtllm_agg, {f"{CACHE}/disk_cache_size": 1 << 30, f"{CACHE}/disk_cache_path": X})(
        OMIT, "/tmp/kv"
    ),
    vary(
        "PS176",
        trtllm_agg,
        {
            "worker/config/mx_config": {"server_url": "http://mx"},
            "worker/config/checkpoint_format": X,
        },
    )(OMIT, "MX"),
    *(
        vary("PS176", trtllm_agg, {"worker/config/speculative_config": X})(
            {**method, **bad}, {**method, **near}
        )
        for method, bad, near in (
            (SUFFIX, {"global_pool_size": 4096}, {"max_matching_ngram_size": 65}),
            (
                {**SUFFIX, "enable_global_pool": True},
                {"max_matching_ngram_size": 65},
                {"max_matching_ngram_size": 64},
            ),
            ({"decoding_type": "DSpark", "max_draft_len": 3}, {"block_size": 4}, {"block_size": 3}),
            (EAGLE3, {"draft_len_schedule": {"4": 5}}, {"draft_len_schedule": {"4": 3}}),
            (
                {**EAGLE3, "use_dynamic_tree": True, "dynamic_tree_max_topK": 2},
                {"max_total_draft_tokens": 7},
                {"max_total_draft_tokens": 6},
            ),
        )
    ),
    vary("PS176", trtllm_agg, {GRAPHS: {"mode": X, "num_tokens": [3]}})("decode", "encode"),
    vary("PS177", worker, version=X, env={"VLLM_RPC_TIMEOUT": "1"})("1.3.0", "1.2.0"),
    vary("PS177", sglang, version="1.6.1", env=X)(
        {"SGLANG_CUTLASS_MOE": "1"}, {"SGLANG_OF_ACME": "1"}
    ),
    vary("PS170", worker, version="1.6.1", env=X)(
        {"VLLM_NIXL_SIDE_CHANEL_HOST": "10.0.0.1"}, {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}
    ),
    # a variable of one's own
    vary("PS170", worker, version="1.6.1", env=X)(
        {"DYN_SYSTEM_PROT": "9090"}, {"DYN_SYSTEM_OWNER": "team-a"}
    ),
    vary("PS612", worker, *PARSER, X, version="1.2.0")(OMIT, Words("--reasoning-parser", "glm45")),
    vary("PS782", claimed)(2, 1),
    vary("PS468", lmcache, remote_url="lm://server:1", local_cpu=False, max_local_cpu_size=X)(0, 5),
    vary("PS468", lmcache, local_disk="file:///cache", max_local_disk_size=X)(OMIT, 100),
    vary("PS468", lmcache, enable_pd=True, pd_role="sender", pd_buffer_size=1, pd_buffer_device=X)(
        OMIT, "cuda"
    ),
)
CASES = (*VLLM, *SGLANG, *OTHER)
