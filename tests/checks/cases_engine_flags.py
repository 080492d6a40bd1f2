"""Cases of command-line flags and environment variables."""

from __future__ import annotations

from tests.checks.support import (
    OMIT,
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    Words,
    X,
    graph,
    sglang_agg,
    trtllm_agg,
    vary,
    vllm_agg,
    vllm_agg_dgd,
    vllm_disagg,
)

MAIN = "dgd/spec/components/worker/podTemplate/spec/containers/main"


def trtllm(*args: str) -> str:
    return trtllm_agg({"worker/args": list(args)})


def vllm(*args: str) -> str:
    return vllm_agg({"worker/args": list(args)})


def sglang(*args: str) -> str:
    return sglang_agg({"worker/args": list(args)})


def frontend(*args: str, **env: str) -> str:
    return vllm_agg({"frontend/args": list(args), "frontend/env": env})


def revised(text: str) -> str:
    """A manifest with --revision and the variable REVISION."""
    variable = {"name": "REVISION", "value": "main"}
    args = {f"{MAIN}/args/1": "--revision", f"{MAIN}/args/2": text}
    return vllm_agg_dgd({f"{MAIN}/env/REVISION": variable, **args})


def script(text: str) -> str:
    return vllm_agg_dgd({f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [text]})


def with_secret(name: str) -> str:
    """A frontend with a certificate's path as a flag and a variable from a Secret."""
    main = MAIN.replace("worker", "frontend")
    source = {"secretKeyRef": {"name": "tls", "key": "path"}}
    args = {f"{main}/args/1": "--tls-cert-path", f"{main}/args/2": "/tls.crt"}
    variable = {f"{main}/env/{name}": {"name": name, "valueFrom": source}}
    return vllm_agg_dgd({**args, **variable})


CASES: tuple[Case, ...] = (
    # argparse accepts a unique prefix of a flag
    vary("PS141", trtllm, X, "64")("--max-batchsize", "--max-batch"),
    # vLLM accepts `_` for `-`, TensorRT-LLM does not
    Case("PS141", trtllm("--max_beam_width", "1"), vllm("--max_num_seqs", "256")),
    # engine keys as flags, only with TensorRT-LLM
    Case("PS141", vllm("--max-sequences", "64"), trtllm("--trtllm.max_batch_size", "64")),
    # a flag of another program in Dynamo's wheel; the other one is of an earlier release: PS144
    Case("PS141", vllm("--pip-args", "--no-deps"), vllm("--swap-space", "4")),
    # shared flags, of the frontend only
    Case("PS141", vllm("--aic-backend", "sglang"), frontend("--aic-backend", "sglang")),
    # with vLLM's chat processor the frontend accepts vLLM's flags
    vary("PS141", frontend, "--enable-auto-tool-choice", X)(
        OMIT, Words("--dyn-chat-processor", "vllm")
    ),
    vary("PS142", vllm_agg)(
        {"worker/config/max-sequences": 64},
        {"worker/config/max_num_seqs": 64},
        is_repaired_by_near=True,
    ),
    # a flag of another engine
    vary("PS142", sglang_agg)(
        {"worker/config/max-num-seqs": 64}, {"worker/config/max-running-requests": 64}
    ),
    # a key of TensorRT-LLM's file
    vary("PS142", vllm_agg)(
        {"worker/config/moe_config": {"backend": "CUTLASS"}},
        {"worker/config/moe-backend": "flashinfer_cutlass"},
    ),
    vary("PS143", trtllm, "--guided-decoding-backend", X)(
        "outlines", "llguidance", is_repaired_by_near=True
    ),
    # vLLM takes the text for a second argument
    vary("PS143", vllm_agg, {"worker/config/enable-chunked-prefill": X})("yes", True),
    # vLLM reads `-` in a choice as `_`
    vary("PS143", vllm, "--moe-backend", X)("flashinfer-trt", "FlashInfer-TRTLLM"),
    vary("PS143", vllm, X, "8k")("--max-num-seqs", "--max-num-batched-tokens"),
    vary("PS143", vllm, "--max-num-seqs", X)("0", "1"),
    vary("PS143", vllm, "--max-model-len", X)("0", "-1"),  # the longest that fits
    vary("PS143", vllm, "--max-model-len", X)("-5", "auto"),
    # in the engine file
    vary("PS143", vllm_agg, {"worker/config/max_num_batched_tokens": X})(-1, 2048),
    vary("PS143", vllm_agg, {"worker/config/tensor-parallel-size": X})(0, 4),
    vary("PS143", sglang, "--max-running-requests", X)("0", "1"),
    vary("PS143", vllm, "--max-num-batched-tokens", X)("1.5K", "1.5k"),
    vary("PS143", sglang, "--context-length", X)("32K", "32Ki"),
    vary("PS143", frontend, "--router-prefill-load-model", X)("roofline", "aic"),
    # in the engine file
    vary("PS143", vllm_agg, {"worker/config/moe-backend": X})(
        "flashinfer-trt", "flashinfer-trtllm"
    ),
    # a list, parsed by an action of SGLang
    vary("PS143", sglang_agg)(
        {"worker/config/enable-lora": ["a=/adapters/a"]},
        {"worker/config/lora-paths": ["a=/adapters/a"]},
    ),
    # null becomes the string None
    vary("PS143", vllm_agg_dgd)(
        {"worker/gpu-memory-utilization": None}, {"worker/num-gpu-blocks-override": None}
    ),
    # in the engine file
    vary("PS144", vllm_agg)(
        {"worker/config/swap_space": 4}, {"worker/config/disable_log_stats": True}
    ),
    Case("PS144", vllm("--swap-space", "4"), vllm("--disable-log-stats")),
    # only vLLM's worker rejects --connector
    vary("PS144", graph, X, {"decode/args": ["--connector", "none"]})(VLLM_DISAGG, TRTLLM_DISAGG),
    vary("PS144", sglang, X, "64")("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"),
    vary("PS145", trtllm)(
        "--publish-events-and-metrics",
        "--publish-metrics",
        fixed=trtllm("--publish-kv-events", "--publish-metrics"),
    ),
    vary("PS145", sglang)("--disable-cuda-graph", "--disable-decode-cuda-graph"),
    # --kv-events is the former name of the flag
    vary("PS145", frontend)("--kv-events", "--router-kv-events"),
    # "deprecated for vLLM"
    Case(
        "PS145",
        vllm_agg({"frontend/args": ["--router-temperature", "0.1"]}),
        sglang("--connector", "none"),
    ),
    vary("PS146", graph, X, {"worker/env/VLLM_ATTENTION_BACKEND": "FLASHINFER"})(
        VLLM_AGG, SGLANG_AGG
    ),
    vary("PS146", vllm_disagg)(
        {"prefill/env/DYN_VLLM_IS_PREFILL_WORKER": "true"},
        {"prefill/env/DYN_VLLM_DISAGGREGATION_MODE": "prefill"},
    ),
    # for every engine
    vary("PS146", trtllm_agg)(
        {"frontend/env/DYN_USE_KV_EVENTS": "true"},
        {"frontend/env/DYN_ROUTER_USE_KV_EVENTS": "true"},
    ),
    vary("PS147", vllm_agg, {"worker/env/DYN_VLLM_MULTIMODAL_WORKER": X})("true", "false"),
    vary("PS147", graph, X, {"worker/env/DYN_SGL_MULTIMODAL_WORKER": "1"})(SGLANG_AGG, VLLM_AGG),
    vary("PS147", graph, X, {"worker/env/DYN_CONNECTOR": "none"})(VLLM_AGG, TRTLLM_AGG),
    vary("PS148", trtllm_agg)(
        {"worker/env/DYN_COMPONENT": "backend"}, {"worker/env/DYN_LOG": "info"}
    ),
    vary("PS149", revised)("$REVISION", "$(REVISION)", is_repaired_by_near=True),
    vary("PS149", revised)("${REVISION}", "main"),
    # upper case only: `$ref` and the like are plain text
    vary("PS149", trtllm)("--revision=$REVISION", "--revision=$revision"),
    vary("PS150", trtllm, "--max-beam-width", "1", "--max-beam-width", X)(
        "2", "1", fixed=trtllm("--max-beam-width", "2")
    ),
    # another spelling of the flag; a flag that appends is allowed
    vary("PS150", sglang)(
        Words("--ep", "1", "--ep-size", "2"), Words("--engine-route", "a", "--engine-route", "b")
    ),
    vary("PS151", frontend, "--tls-cert-path", "/tls.crt", X)(
        OMIT, Words("--tls-key-path", "/tls.key"), also=("PS724",)
    ),
    # the certificate, set twice, is not a key
    Case(
        "PS151",
        frontend("--tls-cert-path", "/tls.crt", DYN_TLS_CERT_PATH="/tls.crt"),
        frontend("--tls-cert-path", "/tls.crt", DYN_TLS_KEY_PATH="/tls.key"),
    ),
    # a variable from a Secret counts as set
    vary("PS151", with_secret)("DYN_TLS_CERT_PATH", "DYN_TLS_KEY_PATH"),
    vary("PS153", vllm_agg, {"worker/config/all2all-backend": X})(
        "naive", "allgather_reducescatter"
    ),
    vary("PS153", vllm, "--all2all-backend", X)("pplx", "deepep_low_latency"),
    # in the engine file
    vary("PS143", vllm_agg, {"worker/config/max-num-seqs": X})("many", "256"),
    vary("PS143", vllm_agg, {"worker/config/enforce-eager": X})("false", False),
    vary("PS143", sglang_agg, {"worker/config/context-length": X})(True, "32Ki"),
    vary("PS143", vllm, "--block-size", X, "--enforce-eager")(OMIT, "64"),
    # a switch is disabled with its own name
    vary("PS142", vllm_agg)(
        {"worker/config/no-enable-prefix-cache": True},
        {"worker/config/no-enable-prefix-caching": True},
    ),
    vary("PS182", vllm)(
        "--max-num-batched-tokens 8192", "--max-num-batched-tokens=8192", is_repaired_by_near=True
    ),
    # nothing removes the space of a flag without a value
    vary("PS182", vllm)("--enforce-eager ", "--enforce-eager"),
    # a shell would remove the quotes
    vary("PS182", sglang)(
        "--json-model-override-args '{}'", Words("--json-model-override-args", '{"a": "--b c"}')
    ),
    # the spaces around an equal sign
    vary("PS182", frontend)("--router-mode = kv", Words("--router-mode", "kv")),
    # the value of another flag
    vary("PS182", trtllm)(
        "--model-name --revision main", Words("--served-model-name", "--revision main")
    ),
    # in a `>` block, a backslash no longer ends its line
    vary("PS182", script)(
        "python3 -m dynamo.vllm \\ --model m \\ --enforce-eager",
        "python3 -m dynamo.vllm \\\n --model m \\\n --enforce-eager",
    ),
)
