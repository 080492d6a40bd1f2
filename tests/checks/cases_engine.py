"""Cases of the files themselves, and of TensorRT-LLM's engine file."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from tests.checks.cases_engine_flags import CASES as FLAGS
from tests.checks.cases_engine_lengths import CASES as LENGTHS
from tests.checks.cases_engine_speculation import CASES as SPECULATION
from tests.checks.support import (
    OMIT,
    REMOVE,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    Case,
    Words,
    X,
    graph,
    trtllm_agg,
    trtllm_agg_dgd,
    trtllm_disagg,
    trtllm_disagg_dgd,
    vary,
    vllm_agg,
)
from tests.support.local_graphs import ROOT

LLAMACPP = yaml.safe_load((ROOT / "dynamo_graphs" / "quickstart.yaml").read_text("utf-8"))
CONTAINER = "dgd/spec/components/{}/podTemplate/spec/containers/main"
DECODE, FRONTEND, WORKER = (CONTAINER.format(name) for name in ("decode", "frontend", "worker"))
IMAGE = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"
OVERRIDE = "--override-engine-args"
VARIABLE = "worker/env/DYN_TRTLLM_OVERRIDE_ENGINE_ARGS"
ONE = {"engine/config/kv_cache_config": {"dtype": "fp8"}}
ADP = "worker/env/DYN_TRTLLM_ENABLE_ATTENTION_DP"
DOTTED = {f"{WORKER}/args/1": "--trtllm.max_beam_width", f"{WORKER}/args/2": "1"}
VOLUME = "dgd/spec/components/worker/podTemplate/spec/volumes/engine-config"
VARIANT = {"decoding_type": "MTP", "max_draft_len": 1, "spec_dec_variant": "linear"}
BACKEND = "worker/config/prefill_cuda_graph_backend"
BALANCER = "worker/config/moe_config/load_balancer"


def config(key: str, value: object, more: Mapping[str, object] | None = None) -> str:
    """An aggregated TensorRT-LLM graph with one engine key set, and further changes."""
    return trtllm_agg({f"worker/config/{key}": value, **(more or {})})


FILES = (
    # an unknown key
    vary("PS002", trtllm_disagg)(
        {"decode/replica": 2}, {"decode/replicas": 2}, is_repaired_by_near=True
    ),
    vary("PS002", trtllm_disagg, {"decode/gpus": X})("four", 4),  # a wrong type
    # a duplicate key
    Case(
        "PS002",
        f"{trtllm_disagg()}drain_timeout_s: 60\ndrain_timeout_s: 90\n",
        f"{trtllm_disagg()}drain_timeout_s: 60\n",
    ),
    # two contradicting fields
    vary("PS002", graph, X, {"kv_transfer": {"transport": "rdma"}})(TRTLLM_AGG, TRTLLM_DISAGG),
    # half of a disaggregated graph
    vary("PS002", trtllm_disagg)({"prefill": REMOVE}, {"prefill/replicas": 0}),
    # an unknown option
    vary("PS160", graph, LLAMACPP, X)(
        {"engine/config/n_paralel": 4}, {"engine/config/n_parallel": 4}
    ),
    # an invalid value
    vary("PS160", graph, LLAMACPP, {"engine/config/sampling/top_p": X})(1.1, 1.0),
    vary("PS160", graph, LLAMACPP, {"engine/config/n_ctx_seq": X})(16, 512),  # two options
    # more slots than llama.cpp can have
    vary("PS160", graph, LLAMACPP, {"engine/config/n_parallel": X})(257, 256),
    # a missing file; in a cluster's image it may exist
    vary("PS179", graph, LLAMACPP, {"model/path": "/models/missing.gguf", "engine/image": X})(
        OMIT, "registry/llama:1"
    ),
    # a file of another kind; a packaged model needs no file
    vary("PS179", graph, LLAMACPP, X)({"model/path": str(ROOT / "pyproject.toml")}, OMIT),
    # neither a file nor a packaged model
    vary("PS179", graph, LLAMACPP, {"model/id": "my/model", "engine/image": X})(
        OMIT, "registry/llama:1"
    ),
    vary("PS003", trtllm_disagg, {"kv_transfer/buffer_tokens": X})(
        32769, 32768, is_repaired_by_near=True
    ),
    vary("PS003", trtllm_disagg, {"decode/gpus": X})(9, 8),  # more GPUs than a node has
    # a flag that the rendered engine file overrides
    vary("PS003", trtllm_disagg, {"decode/args": X})(
        ["--max-seq-len", "8192"], ["--max-beam-width", "1"]
    ),
    # not YAML
    Case("PS004", trtllm_disagg_dgd().replace("kind: ", "kind: {", 1), trtllm_disagg_dgd()),
    # a placeholder; in a program's arguments `<think>` is plain text
    vary("PS004", trtllm_disagg_dgd)(
        {f"{DECODE}/workingDir": "<your-folder>"},
        {f"{DECODE}/env/MARK": {"name": "MARK", "value": "<think>"}},
    ),
    vary("PS004", trtllm_disagg_dgd)({f"{DECODE}/image": REMOVE}, OMIT, is_example=True),
    # a container without a command and arguments
    Case(
        "PS004",
        trtllm_disagg_dgd({f"{DECODE}/command": REMOVE, f"{DECODE}/args": REMOVE}),
        trtllm_disagg_dgd(
            {  # the operator adds the frontend's command
                f"{FRONTEND}/command": REMOVE,
                f"{FRONTEND}/args": REMOVE,
            }
        ),
    ),
)

TRTLLM_FILE = (
    Case("PS101", config("max_batchsize", 64), config("max_beam_width", 1)),
    # in a section
    vary("PS101", config, "kv_cache_config", X)({"free_memory_fraction": 0.8}, {"use_uvm": False}),
    # a key of another drafting method
    vary("PS101", config, "speculative_config", X)(
        {"decoding_type": "MTP", "is_keep_all": True},
        {"decoding_type": "NGram", "max_draft_len": 3, "is_keep_all": True},
    ),
    # a key of 1.6 in an image of 1.5
    vary("PS101", config, "prefill_cuda_graph_backend", "breakable", {"engine/image": X})(
        f"{IMAGE}:1.5.0", f"{IMAGE}:1.6.0"
    ),
    # a key of 1.7 in an image of 1.6
    vary("PS101", config, "speculative_config", VARIANT, X)(
        OMIT, {"engine/image": f"{IMAGE}:1.7.0"}
    ),
    vary("PS102", config, "max_batch_size", X)("many", "64"),
    # out of range
    vary("PS102", config, "kv_cache_config", {"free_gpu_memory_fraction": X})(1.1, 1.0),
    # not one of the allowed values
    vary("PS102", config, "moe_config", {"backend": X})("trtllm", "TRTLLM"),
    # EAGLE-3 without a draft model; NGram needs none
    vary("PS102", config, "speculative_config", {"decoding_type": X, "max_draft_len": 3})(
        "Eagle3", "NGram"
    ),
    vary("PS103", config)(
        Words("use_cuda_graph", True),
        Words("cuda_graph_config", {"max_batch_size": 64}),
        is_repaired_by_near=True,
    ),
    # a value, which the image of 1.4 still accepts
    vary("PS103", config, "moe_config", {"backend": "WIDEEP"}, {"engine/image": X})(
        f"{IMAGE}:1.5.0", f"{IMAGE}:1.4.0"
    ),
    vary("PS104", config)(
        Words("torch_compile_config", {"capture_num_tokens": [1024]}),
        Words("prefill_capture_num_tokens", [1024]),
        is_repaired_by_near=True,
    ),
    # removed and ignored; its replacement is an error
    vary("PS104", config, "sampler_type", X)("TorchSampler", "TRTLLMSampler"),
    vary("PS103", config, "sampler_type", X)("TRTLLMSampler", "TorchSampler"),
    vary("PS104", config, "speculative_config", {"decoding_type": X})("Eagle", "Eagle3"),  # a value
    vary("PS105", config)(
        Words("num_postprocess_workers", 4), Words("postprocess_tokenizer_dir", "/opt/model-cache")
    ),
    # the engine loads the file's model, Dynamo registers the flag's model
    vary("PS105", config, "model", X)("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
    Case(
        "PS106",
        trtllm_agg_dgd(
            {f"{WORKER}/args/1": OVERRIDE, f"{WORKER}/args/2": '{"kv_cache_config": {}}'}
        ),
        trtllm_agg_dgd(
            {  # a mapping, which is merged
                "worker/cuda_graph_config": {"enable_padding": True},
                f"{WORKER}/args/1": OVERRIDE,
                f"{WORKER}/args/2": '{"cuda_graph_config": {"max_batch_size": 64}}',
            }
        ),
    ),
    # `dtype` at the top does not keep the one of kv_cache_config
    vary("PS106", trtllm_agg, {VARIABLE: X, **ONE})(
        '{"dtype": "auto", "kv_cache_config": {"enable_block_reuse": true}}',
        '{"kv_cache_config": {"enable_block_reuse": true, "dtype": "auto"}}',
    ),
    # dotted flags are an override too; this moe_config loses no setting
    vary("PS106", trtllm_agg, {"worker/args": X})(
        ["--trtllm.kv_cache_config.dtype", "auto"], ["--trtllm.moe_config.backend", "CUTLASS"]
    ),
    vary("PS109", trtllm_agg_dgd)(
        {**DOTTED, f"{WORKER}/args/3": f"{OVERRIDE}={{}}"}, DOTTED, is_repaired_by_near=True
    ),
    vary("PS107", trtllm_agg, {"worker/args": X})(
        ["--max-batch-size", "128"], ["--max-batch-size", "64"]
    ),
    # in a section of the file
    vary("PS107", trtllm_agg, {"worker/args": X})(
        ["--free-gpu-memory-fraction", "0.8"], ["--free-gpu-memory-fraction", "0.850"]
    ),
    # a ConfigMap that is not in the manifest
    vary("PS108", trtllm_agg_dgd)(
        {VOLUME: {"configMap": {"name": "b"}, "name": "engine-config"}}, OMIT
    ),
)
LIMITS = (
    # quoted, which the engine accepts
    vary("PS110", config, "cuda_graph_config", {"batch_sizes": [8, "64"], "max_batch_size": X})(
        32, 64
    ),
    vary("PS111", config, "cuda_graph_config", {"max_batch_size": X})(65, 64),
    # a list of sizes
    vary("PS111", config, "cuda_graph_config", {"batch_sizes": X})([1, 128, 8], [1, 64, 8]),
    # both rules apply; one fix solves both
    vary("PS110", config, "cuda_graph_config", {"batch_sizes": X, "max_batch_size": 32})(
        [8, 128], [8, 32]
    ),
    vary("PS111", config, "cuda_graph_config", {"batch_sizes": [8, 128], "max_batch_size": X})(
        128, 32
    ),
    vary("PS112", config, "max_batch_size", X)(8193, 8192),
    # max_num_tokens may be set in the unreadable file
    vary("PS112", trtllm_agg_dgd)(
        {"worker/max_num_tokens": REMOVE, "worker/max_batch_size": 9000},
        {
            VOLUME: {"configMap": {"name": "b"}, "name": "engine-config"},
            f"{WORKER}/args/1": "--max-batch-size",
            f"{WORKER}/args/2": "9000",
        },
    ),
    vary("PS113", config, "kv_cache_config", {"dtype": X})("bfloat16", "nvfp4"),
    # the strings are compared exactly
    vary("PS113", config, "kv_cache_config", {"dtype": X})("FP8", "fp8"),
    vary("PS119", vllm_agg, {"worker/config/kv-cache-dtype": X})("float16", "bfloat16"),
    vary("PS114", config, "attention_dp_config", {"enable_balance": True}, X)(OMIT, {ADP: "1"}),
    vary(
        "PS115",
        config,
        "torch_compile_config",
        {"enable_piecewise_cuda_graph": True},
        {"worker/config/prefill_cuda_graph_backend": X},
    )("disabled", "piecewise", fixed=config("prefill_cuda_graph_backend", "disabled")),
    vary("PS115", config, "torch_compile_config", {}, {BACKEND: X})("breakable", "piecewise"),
    vary("PS116", config, "load_format", X, {BALANCER: {"num_slots": 128}})(
        "GMS", "AUTO", is_repaired_by_near=True
    ),
    # draining a prefill worker reads them
    vary("PS117", trtllm_disagg)(
        {"decode/config/enable_iter_perf_stats": True},
        {"prefill/config/enable_iter_perf_stats": True},
    ),
    # unset in the file; a flag also counts
    vary("PS117", trtllm_agg, {"engine/config/enable_iter_perf_stats": REMOVE, "worker/args": X})(
        OMIT, ["--trtllm.enable_iter_perf_stats", "False"]
    ),
    vary("PS118", config, "max_batch_size", X)("64", 64),
)
CASES: tuple[Case, ...] = (*FILES, *TRTLLM_FILE, *LIMITS, *LENGTHS, *SPECULATION, *FLAGS)
