"""Cases of limits of vLLM and SGLang (PS155 to PS157, PS221 to PS223)."""

from __future__ import annotations

from tests.checks.cases_parallelism import H100, sglang, vllm
from tests.checks.model_folders import LATENT
from tests.checks.support import VLLM_AGG, VLLM_DISAGG, Case, graph, manifest

DCP = "worker/config/decode-context-parallel-size"
MINE = {"model/id": "acme/latent", "model/path": LATENT}
SIXTEEN = {"worker/gpus": 8, "worker/nodes": 2}

GRAPHS = "worker/config/compilation-config"
SPECULATION = "worker/config/speculative-config"
NGRAM = {"method": "ngram", "num_speculative_tokens": 3}
CAPTURE = ("--cudagraph-capture-sizes", "1")
SIZES = {
    "worker/config/cudagraph-capture-sizes": [1, 64],
    "worker/config/max-cudagraph-capture-size": 64,
}
POOLS = {"model/id": "acme/latent", "model/path": LATENT, "prefill/gpus": 8, "decode/gpus": 8}
DECODE_DCP = "decode/config/decode-context-parallel-size"

CASES: tuple[Case, ...] = (
    Case(
        rule="PS155",
        bad=vllm({"worker/config/compilation-config": {"cudagraph_mod": "FULL"}}),
        near=vllm({"worker/config/compilation-config": {"cudagraph_mode": "full"}}),
    ),
    Case(
        rule="PS155",
        bad=vllm({"worker/config/compilation-config": {"cudagraph_mode": "FULL_PIECEWIS"}}),
        near=vllm({"worker/config/compilation-config": {"cudagraph_mode": "PIECEWISE", "mode": 3}}),
    ),
    Case(  # not a section
        rule="PS155",
        bad=vllm({"worker/args": ["--compilation-config", "3"]}),
        near=vllm({"worker/args": ["--compilation-config.mode", "3"]}),
    ),
    Case(  # nested keys and lists
        rule="PS155",
        bad=vllm({"worker/args": ["--compilation-config.pass_config.fuse_allreduce", "true"]}),
        near=vllm(
            {
                "worker/args": [
                    *("--compilation-config.pass_config.fuse_allreduce_rms", "true"),
                    *("--compilation-config.cudagraph_capture_sizes+", "1,2,4"),
                ]
            }
        ),
    ),
    Case(  # in a file that also sets single keys of the section
        rule="PS155",
        bad=vllm({"worker/config/attention-config.backend": "FLASH_ATN"}),
        near=vllm({"worker/config/attention_config.backend": "FLASH_ATTN"}),
    ),
    Case(
        rule="PS155",
        bad=vllm({"worker/config/kernel-config": {"moe_backnd": "triton"}}),
        near=vllm({"worker/config/kernel-config": {"moe_backend": "flashinfer-TRTLLM"}}),
    ),
    Case(  # a nested section
        rule="PS155",
        bad=vllm({GRAPHS: {"pass_config": {"fuse_allreduce_rm": True}}}),
        near=vllm({GRAPHS: {"pass_config": {"fuse_allreduce_rms": True}}}),
    ),
    Case(  # single keys, on the command line
        rule="PS155",
        bad=vllm({"worker/args": ["--kv-events-config.publishr", "zmq"]}),
        near=vllm({"worker/args": ["--kv-events-config.publisher", "zmq"]}),
    ),
    Case(  # which replaces the section of the file
        rule="PS158",
        bad=vllm({"worker/args": ["--kv-events-config.publisher", "zmq"]}),
        near=vllm({"worker/args": ["--compilation-config.mode", "3"]}),
        also=("PS501",),
    ),
    Case(
        rule="PS155",
        bad=vllm({"worker/args": ["--attention-backend", "FLASH_ATN"]}),
        near=vllm({"worker/args": ["--attention-backend", "flash_attn"]}),
    ),
    Case(
        rule="PS155",
        bad=vllm({"worker/config/attention-config": {"backend": "FLASHINFERR"}}),
        near=vllm({"worker/config/attention-config": {"backend": "auto"}}),
    ),
    Case(
        rule="PS155",
        bad=vllm({"worker/config/speculative-config": {"method": "ngram", "num_spec_tokens": 3}}),
        near=vllm(
            {"worker/config/speculative-config": {"method": "ngram", "num-speculative-tokens": 3}}
        ),
    ),
    Case(  # a bound, set by an alias flag
        rule="PS155",
        bad=vllm({"worker/args": ["--spec-method", "ngram", "--spec-tokens", "0"]}),
        near=vllm({"worker/args": ["--spec-method", "ngram", "--spec-tokens", "1"]}),
    ),
    Case(
        rule="PS155",
        bad=manifest(VLLM_AGG, {"worker/kv-events-config/publisher": "zmqq"}),
        near=manifest(VLLM_AGG, {"worker/kv-events-config/publisher": "zmq"}),
    ),
    Case(
        rule="PS154",  # set by --spec-method
        bad=vllm({"worker/args": ["--spec-method", "eagle3", "--spec-tokens", "3"]}),
        near=vllm({"worker/args": ["--spec-method", "ngram", "--spec-tokens", "3"]}),
    ),
    Case(
        rule="PS156",
        bad=vllm(
            {
                "worker/config/cudagraph-capture-sizes": [1, 64, 8],
                "worker/config/max-cudagraph-capture-size": 128,
            }
        ),
        near=vllm(
            {
                "worker/config/cudagraph-capture-sizes": [1, 64, 8],
                "worker/config/max-cudagraph-capture-size": 64,
            }
        ),
    ),
    Case(
        rule="PS156",
        bad=vllm({GRAPHS: {"cudagraph_capture_sizes": [8], "max_cudagraph_capture_size": 16}}),
        near=vllm({GRAPHS: {"cudagraph_capture_sizes": [8, 16]}}),
    ),
    Case(  # sizes above the tokens of a step do not count
        rule="PS156",
        bad=vllm(
            SIZES | {"worker/config/max-num-batched-tokens": 32, "worker/config/max-num-seqs": 32}
        ),
        near=vllm(SIZES | {"worker/config/enforce-eager": True}),
    ),
    Case(  # on the command line
        rule="PS156",
        bad=vllm({"worker/args": [*CAPTURE, "8", "64", "--max-cudagraph-capture-size", "8"]}),
        near=vllm({"worker/args": [*CAPTURE, "8", "64", "--max-cudagraph-capture-size", "64"]}),
    ),
    Case(  # one as a flag, one in the section
        rule="PS156",
        bad=vllm({"worker/args": [*CAPTURE, "8"], GRAPHS: {"max_cudagraph_capture_size": 16}}),
        near=vllm({"worker/args": [*CAPTURE, "16"], GRAPHS: {"max_cudagraph_capture_size": 16}}),
    ),
    Case(
        rule="PS159",
        bad=vllm({"worker/args": [*CAPTURE, "8"], GRAPHS: {"cudagraph_capture_sizes": [8]}}),
        near=vllm({"worker/args": [*CAPTURE, "8"], GRAPHS: {"cudagraph_mode": "FULL"}}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS159",
        bad=vllm({"worker/args": ["--spec-tokens", "2"], SPECULATION: {**NGRAM}}),
        near=vllm({"worker/args": ["--spec-method", "ngram", "--spec-tokens", "2"]}),
    ),
    Case(
        rule="PS157",
        bad=vllm({"worker/config/long-prefill-token-threshold": 32769}),
        near=vllm({"worker/config/long-prefill-token-threshold": 32768}),
    ),
    Case(  # it must divide the tensor parallelism
        rule="PS221",
        bad=vllm(MINE | {"worker/gpus": 4, DCP: 3}),
        near=vllm(MINE | {"worker/gpus": 4, DCP: 4}),
    ),
    Case(  # and needs more tensor parallelism than KV heads
        rule="PS221",
        bad=vllm({"worker/gpus": 8, DCP: 2}),
        near=vllm(SIXTEEN | {DCP: 2}),
    ),
    Case(  # KV transfer allows all ranks or one
        rule="PS221",
        bad=graph(VLLM_DISAGG, POOLS | {DECODE_DCP: 4}),
        near=graph(VLLM_DISAGG, POOLS | {DECODE_DCP: 8}),
    ),
    Case(
        rule="PS222",
        bad=sglang({"worker/config/attention-backend": "fa3"}),
        near=sglang({"worker/config/attention-backend": "fa3", "hardware": H100}),
    ),
    Case(
        rule="PS223",
        bad=sglang({"worker/config/moe-runner-backend": "triton_kernel", "worker/config/ep": 2}),
        near=sglang({"worker/config/moe-runner-backend": "triton_kernel"}),
    ),
    Case(  # the all-to-all backend decides it
        rule="PS223",
        bad=sglang(
            {
                "worker/config/moe-runner-backend": "triton_kernel",
                "worker/config/moe-a2a-backend": "deepep",
            }
        ),
        near=sglang({"worker/config/moe-runner-backend": "triton_kernel"}),
    ),
    Case(  # also for the draft model
        rule="PS222",
        bad=sglang({"worker/config/speculative-draft-attention-backend": "fa3"}),
        near=sglang(
            {
                "worker/config/attention-backend": "fa3",
                "worker/config/prefill-attention-backend": "trtllm_mha",
                "worker/config/decode-attention-backend": "trtllm_mha",
            }
        ),
    ),
    Case(
        rule="PS223",
        bad=sglang({"worker/config/enable-two-batch-overlap": True}),
        near=sglang(
            {
                "worker/config/enable-two-batch-overlap": True,
                "worker/config/enable-dp-attention": True,
                "worker/config/dp-size": 2,
            }
        ),
    ),
)
