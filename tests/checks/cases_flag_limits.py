"""Cases of limits of vLLM and SGLang (PS155 to PS157, PS221 to PS223)."""

from __future__ import annotations

from tests.checks.cases_parallelism import H100, sglang, vllm
from tests.checks.model_folders import LATENT
from tests.checks.support import OMIT, Case, X, vary, vllm_agg_dgd, vllm_disagg

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
    vary("PS155", vllm, {"worker/config/compilation-config": X})(
        {"cudagraph_mod": "FULL"}, {"cudagraph_mode": "full"}
    ),
    vary("PS155", vllm, {"worker/config/compilation-config": X})(
        {"cudagraph_mode": "FULL_PIECEWIS"}, {"cudagraph_mode": "PIECEWISE", "mode": 3}
    ),
    # not a section
    vary("PS155", vllm, {"worker/args": X})(
        ["--compilation-config", "3"], ["--compilation-config.mode", "3"]
    ),
    # nested keys and lists
    vary("PS155", vllm, {"worker/args": X})(
        ["--compilation-config.pass_config.fuse_allreduce", "true"],
        [
            *("--compilation-config.pass_config.fuse_allreduce_rms", "true"),
            *("--compilation-config.cudagraph_capture_sizes+", "1,2,4"),
        ],
    ),
    # in a file that also sets single keys of the section
    vary("PS155", vllm)(
        {"worker/config/attention-config.backend": "FLASH_ATN"},
        {"worker/config/attention_config.backend": "FLASH_ATTN"},
    ),
    vary("PS155", vllm, {"worker/config/kernel-config": X})(
        {"moe_backnd": "triton"}, {"moe_backend": "flashinfer-TRTLLM"}
    ),
    # a nested section
    vary("PS155", vllm, {GRAPHS: {"pass_config": X}})(
        {"fuse_allreduce_rm": True}, {"fuse_allreduce_rms": True}
    ),
    # single keys, on the command line
    vary("PS155", vllm, {"worker/args": X})(
        ["--kv-events-config.publishr", "zmq"], ["--kv-events-config.publisher", "zmq"]
    ),
    # which replaces the section of the file
    vary("PS158", vllm, {"worker/args": X})(
        ["--kv-events-config.publisher", "zmq"], ["--compilation-config.mode", "3"], also=("PS501",)
    ),
    vary("PS155", vllm, {"worker/args": X})(
        ["--attention-backend", "FLASH_ATN"], ["--attention-backend", "flash_attn"]
    ),
    vary("PS155", vllm, {"worker/config/attention-config": {"backend": X}})("FLASHINFERR", "auto"),
    vary("PS155", vllm, {"worker/config/speculative-config": X})(
        {"method": "ngram", "num_spec_tokens": 3}, {"method": "ngram", "num-speculative-tokens": 3}
    ),
    # a bound, set by an alias flag
    vary("PS155", vllm, {"worker/args": X})(
        ["--spec-method", "ngram", "--spec-tokens", "0"],
        ["--spec-method", "ngram", "--spec-tokens", "1"],
    ),
    vary("PS155", vllm_agg_dgd, {"worker/kv-events-config/publisher": X})("zmqq", "zmq"),
    # set by --spec-method
    vary("PS154", vllm, {"worker/args": X})(
        ["--spec-method", "eagle3", "--spec-tokens", "3"],
        ["--spec-method", "ngram", "--spec-tokens", "3"],
    ),
    vary(
        "PS156",
        vllm,
        {
            "worker/config/cudagraph-capture-sizes": [1, 64, 8],
            "worker/config/max-cudagraph-capture-size": X,
        },
    )(128, 64),
    vary("PS156", vllm, {GRAPHS: X})(
        {"cudagraph_capture_sizes": [8], "max_cudagraph_capture_size": 16},
        {"cudagraph_capture_sizes": [8, 16]},
    ),
    # sizes above the tokens of a step do not count
    vary("PS156", vllm)(
        SIZES | {"worker/config/max-num-batched-tokens": 32, "worker/config/max-num-seqs": 32},
        SIZES | {"worker/config/enforce-eager": True},
    ),
    # on the command line
    vary("PS156", vllm, {"worker/args": X})(
        [*CAPTURE, "8", "64", "--max-cudagraph-capture-size", "8"],
        [*CAPTURE, "8", "64", "--max-cudagraph-capture-size", "64"],
    ),
    # one as a flag, one in the section
    vary("PS156", vllm, {"worker/args": X, GRAPHS: {"max_cudagraph_capture_size": 16}})(
        [*CAPTURE, "8"], [*CAPTURE, "16"]
    ),
    vary("PS159", vllm, {"worker/args": [*CAPTURE, "8"], GRAPHS: X})(
        {"cudagraph_capture_sizes": [8]}, {"cudagraph_mode": "FULL"}, is_repaired_by_near=True
    ),
    vary("PS159", vllm)(
        {"worker/args": ["--spec-tokens", "2"], SPECULATION: {**NGRAM}},
        {"worker/args": ["--spec-method", "ngram", "--spec-tokens", "2"]},
    ),
    vary("PS157", vllm, {"worker/config/long-prefill-token-threshold": X})(32769, 32768),
    # it must divide the tensor parallelism
    vary("PS221", vllm)(MINE | {"worker/gpus": 4, DCP: 3}, MINE | {"worker/gpus": 4, DCP: 4}),
    # and needs more tensor parallelism than KV heads
    vary("PS221", vllm)({"worker/gpus": 8, DCP: 2}, SIXTEEN | {DCP: 2}),
    # KV transfer allows all ranks or one
    vary("PS221", vllm_disagg)(POOLS | {DECODE_DCP: 4}, POOLS | {DECODE_DCP: 8}),
    vary("PS222", sglang, {"worker/config/attention-backend": "fa3", "hardware": X})(OMIT, H100),
    vary(
        "PS223",
        sglang,
        {"worker/config/moe-runner-backend": "triton_kernel", "worker/config/ep": X},
    )(2, OMIT),
    # the all-to-all backend decides it
    vary(
        "PS223",
        sglang,
        {"worker/config/moe-runner-backend": "triton_kernel", "worker/config/moe-a2a-backend": X},
    )("deepep", OMIT),
    # also for the draft model
    vary("PS222", sglang)(
        {"worker/config/speculative-draft-attention-backend": "fa3"},
        {
            "worker/config/attention-backend": "fa3",
            "worker/config/prefill-attention-backend": "trtllm_mha",
            "worker/config/decode-attention-backend": "trtllm_mha",
        },
    ),
    vary("PS223", sglang)(
        {"worker/config/enable-two-batch-overlap": True},
        {
            "worker/config/enable-two-batch-overlap": True,
            "worker/config/enable-dp-attention": True,
            "worker/config/dp-size": 2,
        },
    ),
)
