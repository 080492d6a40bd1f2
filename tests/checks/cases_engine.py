"""Cases of the files themselves, of TensorRT-LLM's file, and of lengths."""

from __future__ import annotations

from tests.checks.cases_engine_flags import CASES as FLAGS
from tests.checks.cases_speculation import CASES as SPECULATION
from tests.checks.support import (
    REMOVE,
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
)

CONTAINER = "dgd/spec/components/{}/podTemplate/spec/containers/main"
DECODE, PREFILL, WORKER = (CONTAINER.format(name) for name in ("decode", "prefill", "worker"))
IMAGE = "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime"
OVERRIDE = "--override-engine-args"
# A model whose shape nobody knows here, so that positions are not known either.
STRANGER = "example/unknown-7b"

FILES = (
    Case(
        rule="PS002",  # an unknown key
        bad=graph(TRTLLM_DISAGG, {"decode/replica": 2}),
        near=graph(TRTLLM_DISAGG, {"decode/replicas": 2}),
    ),
    Case(
        rule="PS002",  # a type
        bad=graph(TRTLLM_DISAGG, {"decode/gpus": "four"}),
        near=graph(TRTLLM_DISAGG, {"decode/gpus": 4}),
    ),
    Case(
        rule="PS002",  # a key twice
        bad=f"{graph(TRTLLM_DISAGG)}drain_timeout_s: 60\ndrain_timeout_s: 90\n",
        near=f"{graph(TRTLLM_DISAGG)}drain_timeout_s: 60\n",
    ),
    Case(
        rule="PS002",  # two fields that contradict
        bad=graph(TRTLLM_AGG, {"kv_transfer": {"transport": "rdma"}}),
        near=graph(TRTLLM_DISAGG, {"kv_transfer": {"transport": "rdma"}}),
    ),
    Case(
        rule="PS002",  # half of a disaggregated graph
        bad=graph(TRTLLM_DISAGG, {"prefill": REMOVE}),
        near=graph(TRTLLM_DISAGG, {"prefill/replicas": 0}),
    ),
    Case(
        rule="PS003",
        bad=graph(TRTLLM_DISAGG, {"kv_transfer/buffer_tokens": 32769}),
        near=graph(TRTLLM_DISAGG, {"kv_transfer/buffer_tokens": 32768}),
    ),
    Case(
        rule="PS003",  # more GPUs than a node has
        bad=graph(TRTLLM_DISAGG, {"decode/gpus": 9}),
        near=graph(TRTLLM_DISAGG, {"decode/gpus": 8}),
    ),
    Case(
        rule="PS003",  # a flag that the chart's file outvotes
        bad=graph(TRTLLM_DISAGG, {"decode/args": ["--max-seq-len", "8192"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--max-beam-width", "1"]}),
    ),
    Case(
        rule="PS004",  # no YAML
        bad=manifest(TRTLLM_DISAGG).replace("kind: ", "kind: {", 1),
        near=manifest(TRTLLM_DISAGG),
    ),
    Case(
        rule="PS004",  # a placeholder; in a program's arguments `<think>` is text
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/image": "<your-image>"}),
        near=manifest(TRTLLM_DISAGG, {f"{DECODE}/env/MARK": {"name": "MARK", "value": "<think>"}}),
    ),
    Case(
        rule="PS004",  # a container without command and arguments
        bad=manifest(TRTLLM_DISAGG, {f"{DECODE}/command": REMOVE, f"{DECODE}/args": REMOVE}),
        near=manifest(
            TRTLLM_DISAGG,
            {  # the operator gives the frontend its command
                f"{CONTAINER.format('frontend')}/command": REMOVE,
                f"{CONTAINER.format('frontend')}/args": REMOVE,
            },
        ),
    ),
    Case(
        rule="PS004",  # no deployment in it
        bad="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {}\n",
        near=f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n"
        f"data: {{}}\n---\n{manifest(VLLM_AGG)}",
    ),
)

TRTLLM_FILE = (
    Case(
        rule="PS101",
        bad=graph(TRTLLM_DISAGG, {"decode/config/max_batchsize": 64}),
        near=graph(TRTLLM_DISAGG, {"decode/config/max_beam_width": 1}),
    ),
    Case(
        rule="PS101",  # in a section
        bad=graph(TRTLLM_DISAGG, {"decode/config/kv_cache_config": {"free_memory_fraction": 0.8}}),
        near=graph(TRTLLM_DISAGG, {"decode/config/kv_cache_config": {"use_uvm": False}}),
    ),
    Case(
        rule="PS101",  # of one way to draft, not of the other
        bad=graph(
            TRTLLM_AGG,
            {"worker/config/speculative_config": {"decoding_type": "MTP", "is_keep_all": True}},
        ),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/config/speculative_config": {
                    "decoding_type": "NGram",
                    "max_draft_len": 3,
                    "is_keep_all": True,
                }
            },
        ),
    ),
    Case(
        rule="PS101",  # a key of 1.6 in an image of 1.5
        bad=graph(
            TRTLLM_AGG,
            {
                "worker/config/prefill_cuda_graph_backend": "breakable",
                "engine/image": f"{IMAGE}:1.5.0",
            },
        ),
        near=graph(TRTLLM_AGG, {"worker/config/prefill_cuda_graph_backend": "breakable"}),
    ),
    Case(
        rule="PS101",  # a key of 1.7 in an image of 1.6
        bad=graph(
            TRTLLM_DISAGG,
            {"engine/config/cache_transceiver_config": {"agent_bounce_buffer_enable": True}},
        ),
        near=graph(
            TRTLLM_DISAGG,
            {
                "engine/config/cache_transceiver_config": {"agent_bounce_buffer_enable": True},
                "engine/image": f"{IMAGE}:1.7.0",
            },
        ),
    ),
    Case(
        rule="PS102",
        bad=graph(TRTLLM_DISAGG, {"decode/config/max_batch_size": "many"}),
        near=graph(TRTLLM_DISAGG, {"decode/config/max_batch_size": "256"}),
    ),
    Case(
        rule="PS102",  # out of range
        bad=graph(TRTLLM_AGG, {"engine/config/kv_cache_config": {"free_gpu_memory_fraction": 1.1}}),
        near=graph(
            TRTLLM_AGG, {"engine/config/kv_cache_config": {"free_gpu_memory_fraction": 1.0}}
        ),
    ),
    Case(
        rule="PS102",  # another word
        bad=graph(TRTLLM_AGG, {"engine/config/moe_config": {"backend": "trtllm"}}),
        near=graph(TRTLLM_AGG, {"engine/config/moe_config": {"backend": "TRTLLM"}}),
    ),
    Case(
        rule="PS102",  # a draft model is missing
        bad=graph(
            TRTLLM_AGG,
            {"worker/config/speculative_config": {"decoding_type": "Eagle3", "max_draft_len": 3}},
        ),
        near=graph(
            TRTLLM_AGG,
            {"worker/config/speculative_config": {"decoding_type": "NGram", "max_draft_len": 3}},
        ),
    ),
    Case(
        rule="PS103",
        bad=graph(TRTLLM_AGG, {"worker/config/use_cuda_graph": True}),
        near=graph(TRTLLM_AGG, {"worker/config/cuda_graph_config": {"max_batch_size": 64}}),
    ),
    Case(
        rule="PS103",  # a value; as a note where the image still takes it
        bad=graph(
            TRTLLM_AGG,
            {"engine/config/moe_config/backend": "WIDEEP", "engine/image": f"{IMAGE}:1.4.0"},
        ),
        near=graph(TRTLLM_AGG, {"engine/config/moe_config/backend": "CUTEDSL"}),
    ),
    Case(
        rule="PS104",
        bad=graph(
            TRTLLM_AGG, {"worker/config/torch_compile_config": {"capture_num_tokens": [1024]}}
        ),
        near=graph(TRTLLM_AGG, {"worker/config/prefill_capture_num_tokens": [1024]}),
    ),
    Case(
        rule="PS104",  # a value
        bad=graph(TRTLLM_AGG, {"worker/config/speculative_config": {"decoding_type": "Eagle"}}),
        near=graph(TRTLLM_AGG, {"worker/config/speculative_config": {"decoding_type": "Eagle3"}}),
    ),
    Case(
        rule="PS105",
        bad=graph(TRTLLM_AGG, {"worker/config/num_postprocess_workers": 4}),
        near=graph(TRTLLM_AGG, {"worker/config/postprocess_tokenizer_dir": "/m"}),
    ),
    Case(
        rule="PS105",  # the file wins in the engine, not in Dynamo
        bad=graph(TRTLLM_AGG, {"worker/config/model": "openai/gpt-oss-20b"}),
        near=graph(TRTLLM_AGG, {"worker/config/model": "openai/gpt-oss-120b"}),
    ),
    Case(
        rule="PS106",
        bad=manifest(
            TRTLLM_AGG,
            {f"{WORKER}/args/0": OVERRIDE, f"{WORKER}/args/1": '{"kv_cache_config": {}}'},
        ),
        near=manifest(
            TRTLLM_AGG,
            {  # a mapping still, which merges
                f"{WORKER}/args/0": OVERRIDE,
                f"{WORKER}/args/1": '{"cuda_graph_config": {"max_batch_size": 64}}',
                "worker/cuda_graph_config": {"enable_padding": True},
            },
        ),
    ),
    Case(
        rule="PS106",  # `dtype` of another section does not keep this one's
        bad=graph(
            TRTLLM_AGG,
            {
                "worker/env/DYN_TRTLLM_OVERRIDE_ENGINE_ARGS": '{"dtype": "auto", '
                '"kv_cache_config": {"free_gpu_memory_fraction": 0.8}}'
            },
        ),
        near=graph(
            TRTLLM_AGG,
            {
                "worker/env/DYN_TRTLLM_OVERRIDE_ENGINE_ARGS": '{"kv_cache_config": '
                '{"free_gpu_memory_fraction": 0.8, "dtype": "fp8"}}'
            },
        ),
    ),
    Case(
        rule="PS106",  # dotted flags are an override too
        bad=graph(TRTLLM_AGG, {"worker/args": ["--trtllm.kv_cache_config.dtype", "auto"]}),
        near=graph(TRTLLM_AGG, {"worker/args": ["--trtllm.moe_config.backend", "CUTLASS"]}),
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
        rule="PS108",
        bad=manifest(TRTLLM_AGG, {f"{WORKER}/volumeMounts/engine-config": REMOVE_MOUNT}),
        near=manifest(TRTLLM_AGG),
    ),
)
