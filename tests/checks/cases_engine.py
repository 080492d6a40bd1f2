"""Cases of the files themselves, and of TensorRT-LLM's engine file."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from tests.checks.cases_engine_flags import CASES as FLAGS
from tests.checks.cases_engine_lengths import CASES as LENGTHS
from tests.checks.cases_engine_speculation import CASES as SPECULATION
from tests.checks.support import (
    REMOVE,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    Case,
    graph,
    manifest,
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
    return graph(TRTLLM_AGG, {f"worker/config/{key}": value, **(more or {})})


FILES = (
    Case(
        rule="PS002",  # an unknown key
        bad=graph(TRTLLM_DISAGG, {"decode/replica": 2}),
        near=graph(TRTLLM_DISAGG, {"decode/replicas": 2}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS002",  # a wrong type
        bad=graph(TRTLLM_DISAGG, {"decode/gpus": "four"}),
        near=graph(TRTLLM_DISAGG, {"decode/gpus": 4}),
    ),
    Case(
        rule="PS002",  # a duplicate key
        bad=f"{graph(TRTLLM_DISAGG)}drain_timeout_s: 60\ndrain_timeout_s: 90\n",
        near=f"{graph(TRTLLM_DISAGG)}drain_timeout_s: 60\n",
    ),
    Case(
        rule="PS002",  # two contradicting fields
        bad=graph(TRTLLM_AGG, {"kv_transfer": {"transport": "rdma"}}),
        near=graph(TRTLLM_DISAGG, {"kv_transfer": {"transport": "rdma"}}),
    ),
    Case(
        rule="PS002",  # half of a disaggregated graph
        bad=graph(TRTLLM_DISAGG, {"prefill": REMOVE}),
        near=graph(TRTLLM_DISAGG, {"prefill/replicas": 0}),
    ),
    Case(  # an unknown option
        rule="PS160",
        bad=graph(LLAMACPP, {"engine/config/n_paralel": 4}),
        near=graph(LLAMACPP, {"engine/config/n_parallel": 4}),
    ),
    Case(  # an invalid value
        rule="PS160",
        bad=graph(LLAMACPP, {"engine/config/sampling/top_p": 1.1}),
        near=graph(LLAMACPP, {"engine/config/sampling/top_p": 1.0}),
    ),
    Case(  # two options
        rule="PS160",
        bad=graph(LLAMACPP, {"engine/config/n_ctx_seq": 16}),
        near=graph(LLAMACPP, {"engine/config/n_ctx_seq": 512}),
    ),
    Case(  # more slots than llama.cpp can have
        rule="PS160",
        bad=graph(LLAMACPP, {"engine/config/n_parallel": 257}),
        near=graph(LLAMACPP, {"engine/config/n_parallel": 256}),
    ),
    Case(  # a missing file; in a cluster's image it may exist
        rule="PS179",
        bad=graph(LLAMACPP, {"model/path": "/models/missing.gguf"}),
        near=graph(
            LLAMACPP, {"model/path": "/models/missing.gguf", "engine/image": "registry/llama:1"}
        ),
    ),
    Case(  # a file of another kind; a packaged model needs no file
        rule="PS179",
        bad=graph(LLAMACPP, {"model/path": str(ROOT / "pyproject.toml")}),
        near=graph(LLAMACPP),
    ),
    Case(  # neither a file nor a packaged model
        rule="PS179",
        bad=graph(LLAMACPP, {"model/id": "my/model"}),
        near=graph(LLAMACPP, {"model/id": "my/model", "engine/image": "registry/llama:1"}),
    ),
    Case(
        rule="PS003",
        bad=graph(TRTLLM_DISAGG, {"kv_transfer/buffer_tokens": 32769}),
        near=graph(TRTLLM_DISAGG, {"kv_transfer/buffer_tokens": 32768}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS003",  # more GPUs than a node has
        bad=graph(TRTLLM_DISAGG, {"decode/gpus": 9}),
        near=graph(TRTLLM_DISAGG, {"decode/gpus": 8}),
    ),
    Case(
        rule="PS003",  # a flag that the rendered engine file overrides
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--max-seq-len", "8192"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--max-beam-width", "1"]}),
    ),
    Case(
        rule="PS004",  # not YAML
        bad=manifest(TRTLLM_DISAGG).replace("kind: ", "kind: {", 1),
        near=manifest(TRTLLM_DISAGG),
    ),
    Case(
        rule="PS004",  # a placeholder; in a program's arguments `<think>` is plain text
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/workingDir": "<your-folder>"}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/env/MARK": {"name": "MARK", "value": "<think>"}}),
    ),
    Case(
        rule="PS004",
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/image": REMOVE}),
        near=manifest(TRTLLM_DISAGG),
        is_example=True,
    ),
    Case(
        rule="PS004",  # a container without a command and arguments
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/command": REMOVE, f"{DECODE}/args": REMOVE}),
        near=manifest(
            TRTLLM_DISAGG,
            {  # the operator adds the frontend's command
                f"{FRONTEND}/command": REMOVE,
                f"{FRONTEND}/args": REMOVE,
            },
        ),
    ),
)

TRTLLM_FILE = (
    Case(
        rule="PS101",
        bad=config("max_batchsize", 64),
        near=config("max_beam_width", 1),
    ),
    Case(
        rule="PS101",  # in a section
        bad=config("kv_cache_config", {"free_memory_fraction": 0.8}),
        near=config("kv_cache_config", {"use_uvm": False}),
    ),
    Case(
        rule="PS101",  # a key of another drafting method
        bad=config("speculative_config", {"decoding_type": "MTP", "is_keep_all": True}),
        near=config(
            "speculative_config",
            {"decoding_type": "NGram", "max_draft_len": 3, "is_keep_all": True},
        ),
    ),
    Case(
        rule="PS101",  # a key of 1.6 in an image of 1.5
        bad=config("prefill_cuda_graph_backend", "breakable", {"engine/image": f"{IMAGE}:1.5.0"}),
        near=config("prefill_cuda_graph_backend", "breakable", {"engine/image": f"{IMAGE}:1.6.0"}),
    ),
    Case(
        rule="PS101",  # a key of 1.7 in an image of 1.6
        bad=config("speculative_config", VARIANT),
        near=config("speculative_config", VARIANT, {"engine/image": f"{IMAGE}:1.7.0"}),
    ),
    Case(
        rule="PS102",
        bad=config("max_batch_size", "many"),
        near=config("max_batch_size", "64"),
    ),
    Case(
        rule="PS102",  # out of range
        bad=config("kv_cache_config", {"free_gpu_memory_fraction": 1.1}),
        near=config("kv_cache_config", {"free_gpu_memory_fraction": 1.0}),
    ),
    Case(
        rule="PS102",  # not one of the allowed values
        bad=config("moe_config", {"backend": "trtllm"}),
        near=config("moe_config", {"backend": "TRTLLM"}),
    ),
    Case(
        rule="PS102",  # EAGLE-3 without a draft model; NGram needs none
        bad=config("speculative_config", {"decoding_type": "Eagle3", "max_draft_len": 3}),
        near=config("speculative_config", {"decoding_type": "NGram", "max_draft_len": 3}),
    ),
    Case(
        rule="PS103",
        bad=config("use_cuda_graph", True),
        near=config("cuda_graph_config", {"max_batch_size": 64}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS103",  # a value, which the image of 1.4 still accepts
        bad=config("moe_config", {"backend": "WIDEEP"}, {"engine/image": f"{IMAGE}:1.5.0"}),
        near=config("moe_config", {"backend": "WIDEEP"}, {"engine/image": f"{IMAGE}:1.4.0"}),
    ),
    Case(
        rule="PS104",
        bad=config("torch_compile_config", {"capture_num_tokens": [1024]}),
        near=config("prefill_capture_num_tokens", [1024]),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS104",  # removed and ignored; its replacement is an error
        bad=config("sampler_type", "TorchSampler"),
        near=config("sampler_type", "TRTLLMSampler"),
    ),
    Case(
        rule="PS103",
        bad=config("sampler_type", "TRTLLMSampler"),
        near=config("sampler_type", "TorchSampler"),
    ),
    Case(
        rule="PS104",  # a value
        bad=config("speculative_config", {"decoding_type": "Eagle"}),
        near=config("speculative_config", {"decoding_type": "Eagle3"}),
    ),
    Case(
        rule="PS105",
        bad=config("num_postprocess_workers", 4),
        near=config("postprocess_tokenizer_dir", "/opt/model-cache"),
    ),
    Case(
        rule="PS105",  # the engine loads the file's model, Dynamo registers the flag's model
        bad=config("model", "openai/gpt-oss-20b"),
        near=config("model", "openai/gpt-oss-120b"),
    ),
    Case(
        rule="PS106",
        bad=manifest(
            TRTLLM_AGG,
            {f"{WORKER}/args/1": OVERRIDE, f"{WORKER}/args/2": '{"kv_cache_config": {}}'},
        ),
        near=manifest(
            TRTLLM_AGG,
            {  # a mapping, which is merged
                "worker/cuda_graph_config": {"enable_padding": True},
                f"{WORKER}/args/1": OVERRIDE,
                f"{WORKER}/args/2": '{"cuda_graph_config": {"max_batch_size": 64}}',
            },
        ),
    ),
    Case(
        rule="PS106",  # `dtype` at the top does not keep the one of kv_cache_config
        bad=graph(
            TRTLLM_AGG,
            {VARIABLE: '{"dtype": "auto", "kv_cache_config": {"enable_block_reuse": true}}', **ONE},
        ),
        near=graph(
            TRTLLM_AGG,
            {VARIABLE: '{"kv_cache_config": {"enable_block_reuse": true, "dtype": "auto"}}', **ONE},
        ),
    ),
    Case(
        rule="PS106",  # dotted flags are an override too; this moe_config loses no setting
        bad=graph(TRTLLM_AGG, {"worker/args": ["--trtllm.kv_cache_config.dtype", "auto"]}),
        near=graph(TRTLLM_AGG, {"worker/args": ["--trtllm.moe_config.backend", "CUTLASS"]}),
    ),
    Case(
        rule="PS109",
        bad=manifest(TRTLLM_AGG, {**DOTTED, f"{WORKER}/args/3": f"{OVERRIDE}={{}}"}),
        near=manifest(TRTLLM_AGG, DOTTED),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS107",
        bad=graph(TRTLLM_AGG, {"worker/args": ["--max-batch-size", "128"]}),
        near=graph(TRTLLM_AGG, {"worker/args": ["--max-batch-size", "64"]}),
    ),
    Case(
        rule="PS107",  # in a section of the file
        bad=graph(TRTLLM_AGG, {"worker/args": ["--free-gpu-memory-fraction", "0.8"]}),
        near=graph(TRTLLM_AGG, {"worker/args": ["--free-gpu-memory-fraction", "0.850"]}),
    ),
    Case(
        rule="PS108",  # a ConfigMap that is not in the manifest
        bad=manifest(TRTLLM_AGG, {VOLUME: {"configMap": {"name": "b"}, "name": "engine-config"}}),
        near=manifest(TRTLLM_AGG),
    ),
)
LIMITS = (
    Case(
        rule="PS110",  # quoted, which the engine accepts
        bad=config("cuda_graph_config", {"batch_sizes": [8, "64"], "max_batch_size": 32}),
        near=config("cuda_graph_config", {"batch_sizes": [8, "64"], "max_batch_size": 64}),
    ),
    Case(
        rule="PS111",
        bad=config("cuda_graph_config", {"max_batch_size": 65}),
        near=config("cuda_graph_config", {"max_batch_size": 64}),
    ),
    Case(
        rule="PS111",  # a list of sizes
        bad=config("cuda_graph_config", {"batch_sizes": [1, 128, 8]}),
        near=config("cuda_graph_config", {"batch_sizes": [1, 64, 8]}),
    ),
    Case(  # both rules apply; one fix solves both
        rule="PS110",
        bad=config("cuda_graph_config", {"batch_sizes": [8, 128], "max_batch_size": 32}),
        near=config("cuda_graph_config", {"batch_sizes": [8, 32], "max_batch_size": 32}),
    ),
    Case(
        rule="PS111",
        bad=config("cuda_graph_config", {"batch_sizes": [8, 128], "max_batch_size": 128}),
        near=config("cuda_graph_config", {"batch_sizes": [8, 128], "max_batch_size": 32}),
    ),
    Case(
        rule="PS112",
        bad=config("max_batch_size", 8193),
        near=config("max_batch_size", 8192),
    ),
    Case(
        rule="PS112",  # max_num_tokens may be set in the unreadable file
        bad=manifest(
            TRTLLM_AGG,
            {"worker/max_num_tokens": REMOVE, "worker/max_batch_size": 9000},
        ),
        near=manifest(
            TRTLLM_AGG,
            {
                VOLUME: {"configMap": {"name": "b"}, "name": "engine-config"},
                f"{WORKER}/args/1": "--max-batch-size",
                f"{WORKER}/args/2": "9000",
            },
        ),
    ),
    Case(
        rule="PS113",
        bad=config("kv_cache_config", {"dtype": "bfloat16"}),
        near=config("kv_cache_config", {"dtype": "nvfp4"}),
    ),
    Case(  # the strings are compared exactly
        rule="PS113",
        bad=config("kv_cache_config", {"dtype": "FP8"}),
        near=config("kv_cache_config", {"dtype": "fp8"}),
    ),
    Case(
        rule="PS119",
        bad=graph(VLLM_AGG, {"worker/config/kv-cache-dtype": "float16"}),
        near=graph(VLLM_AGG, {"worker/config/kv-cache-dtype": "bfloat16"}),
    ),
    Case(
        rule="PS114",
        bad=config("attention_dp_config", {"enable_balance": True}),
        near=config("attention_dp_config", {"enable_balance": True}, {ADP: "1"}),
    ),
    Case(
        rule="PS115",
        bad=config(
            "torch_compile_config",
            {"enable_piecewise_cuda_graph": True},
            {"worker/config/prefill_cuda_graph_backend": "disabled"},
        ),
        near=config(
            "torch_compile_config",
            {"enable_piecewise_cuda_graph": True},
            {"worker/config/prefill_cuda_graph_backend": "piecewise"},
        ),
        fixed=config("prefill_cuda_graph_backend", "disabled"),
    ),
    Case(
        rule="PS115",
        bad=config("torch_compile_config", {}, {BACKEND: "breakable"}),
        near=config("torch_compile_config", {}, {BACKEND: "piecewise"}),
    ),
    Case(
        rule="PS116",
        bad=config("load_format", "GMS", {BALANCER: {"num_slots": 128}}),
        near=config("load_format", "AUTO", {BALANCER: {"num_slots": 128}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS117",  # draining a prefill worker reads them
        bad=graph(TRTLLM_DISAGG, {"decode/config/enable_iter_perf_stats": True}),
        near=graph(TRTLLM_DISAGG, {"prefill/config/enable_iter_perf_stats": True}),
    ),
    Case(
        rule="PS117",  # unset in the file; a flag also counts
        bad=graph(TRTLLM_AGG, {"engine/config/enable_iter_perf_stats": REMOVE}),
        near=graph(
            TRTLLM_AGG,
            {
                "engine/config/enable_iter_perf_stats": REMOVE,
                "worker/args": ["--trtllm.enable_iter_perf_stats", "False"],
            },
        ),
    ),
    Case(
        rule="PS118",
        bad=config("max_batch_size", "64"),
        near=config("max_batch_size", 64),
    ),
)
CASES: tuple[Case, ...] = (*FILES, *TRTLLM_FILE, *LIMITS, *LENGTHS, *SPECULATION, *FLAGS)
