"""Cases of command-line flags and environment variables."""

from __future__ import annotations

from tests.checks.support import (
    SGLANG_AGG,
    TRTLLM_AGG,
    TRTLLM_DISAGG,
    VLLM_AGG,
    VLLM_DISAGG,
    Case,
    graph,
    manifest,
)

MAIN = "dgd/spec/components/worker/podTemplate/spec/containers/main"


def trtllm(*args: str) -> str:
    return graph(TRTLLM_AGG, {"worker/args": list(args)})


def vllm(*args: str) -> str:
    return graph(VLLM_AGG, {"worker/args": list(args)})


def sglang(*args: str) -> str:
    return graph(SGLANG_AGG, {"worker/args": list(args)})


def frontend(*args: str, **env: str) -> str:
    return graph(VLLM_AGG, {"frontend/args": list(args), "frontend/env": env})


def revised(text: str) -> str:
    """A manifest with --revision and the variable REVISION."""
    variable = {"name": "REVISION", "value": "main"}
    args = {f"{MAIN}/args/1": "--revision", f"{MAIN}/args/2": text}
    return manifest(VLLM_AGG, {f"{MAIN}/env/REVISION": variable, **args})


def script(text: str) -> str:
    return manifest(VLLM_AGG, {f"{MAIN}/command": ["bash", "-c"], f"{MAIN}/args": [text]})


def with_secret(name: str) -> str:
    """A frontend with a certificate's path as a flag and a variable from a Secret."""
    main = MAIN.replace("worker", "frontend")
    source = {"secretKeyRef": {"name": "tls", "key": "path"}}
    args = {f"{main}/args/1": "--tls-cert-path", f"{main}/args/2": "/tls.crt"}
    variable = {f"{main}/env/{name}": {"name": name, "valueFrom": source}}
    return manifest(VLLM_AGG, {**args, **variable})


CASES: tuple[Case, ...] = (
    Case(
        rule="PS141",  # argparse accepts a unique prefix of a flag
        bad=trtllm("--max-batchsize", "64"),
        near=trtllm("--max-batch", "64"),
    ),
    Case(
        rule="PS141",  # vLLM accepts `_` for `-`, TensorRT-LLM does not
        bad=trtllm("--max_beam_width", "1"),
        near=vllm("--max_num_seqs", "256"),
    ),
    Case(
        rule="PS141",  # engine keys as flags, only with TensorRT-LLM
        bad=vllm("--max-sequences", "64"),
        near=trtllm("--trtllm.max_batch_size", "64"),
    ),
    Case(
        rule="PS141",  # a flag of another program in Dynamo's wheel
        bad=vllm("--pip-args", "--no-deps"),
        near=vllm("--swap-space", "4"),  # of an earlier release: PS144
    ),
    Case(
        rule="PS141",  # shared flags, of the frontend only
        bad=vllm("--aic-backend", "sglang"),
        near=frontend("--aic-backend", "sglang"),
    ),
    Case(
        rule="PS141",  # with vLLM's chat processor the frontend accepts vLLM's flags
        bad=frontend("--enable-auto-tool-choice"),
        near=frontend("--enable-auto-tool-choice", "--dyn-chat-processor", "vllm"),
    ),
    Case(
        rule="PS142",
        bad=graph(VLLM_AGG, {"worker/config/max-sequences": 64}),
        near=graph(VLLM_AGG, {"worker/config/max_num_seqs": 64}),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS142",  # a flag of another engine
        bad=graph(SGLANG_AGG, {"worker/config/max-num-seqs": 64}),
        near=graph(SGLANG_AGG, {"worker/config/max-running-requests": 64}),
    ),
    Case(
        rule="PS142",  # a key of TensorRT-LLM's file
        bad=graph(VLLM_AGG, {"worker/config/moe_config": {"backend": "CUTLASS"}}),
        near=graph(VLLM_AGG, {"worker/config/moe-backend": "flashinfer_cutlass"}),
    ),
    Case(
        rule="PS143",
        bad=trtllm("--guided-decoding-backend", "outlines"),
        near=trtllm("--guided-decoding-backend", "llguidance"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS143",  # vLLM takes the text for a second argument
        bad=graph(VLLM_AGG, {"worker/config/enable-chunked-prefill": "yes"}),
        near=graph(VLLM_AGG, {"worker/config/enable-chunked-prefill": True}),
    ),
    Case(
        rule="PS143",  # vLLM reads `-` in a choice as `_`
        bad=vllm("--moe-backend", "flashinfer-trt"),
        near=vllm("--moe-backend", "FlashInfer-TRTLLM"),
    ),
    Case(
        rule="PS143",
        bad=vllm("--max-num-seqs", "8k"),
        near=vllm("--max-num-batched-tokens", "8k"),
    ),
    Case(
        rule="PS143",
        bad=vllm("--max-num-seqs", "0"),
        near=vllm("--max-num-seqs", "1"),
    ),
    Case(
        rule="PS143",
        bad=vllm("--max-model-len", "0"),
        near=vllm("--max-model-len", "-1"),  # the longest that fits
    ),
    Case(
        rule="PS143",
        bad=vllm("--max-model-len", "-5"),
        near=vllm("--max-model-len", "auto"),
    ),
    Case(  # in the engine file
        rule="PS143",
        bad=graph(VLLM_AGG, {"worker/config/max_num_batched_tokens": -1}),
        near=graph(VLLM_AGG, {"worker/config/max_num_batched_tokens": 2048}),
    ),
    Case(
        rule="PS143",
        bad=graph(VLLM_AGG, {"worker/config/tensor-parallel-size": 0}),
        near=graph(VLLM_AGG, {"worker/config/tensor-parallel-size": 4}),
    ),
    Case(
        rule="PS143",
        bad=sglang("--max-running-requests", "0"),
        near=sglang("--max-running-requests", "1"),
    ),
    Case(
        rule="PS143",
        bad=vllm("--max-num-batched-tokens", "1.5K"),
        near=vllm("--max-num-batched-tokens", "1.5k"),
    ),
    Case(
        rule="PS143",
        bad=sglang("--context-length", "32K"),
        near=sglang("--context-length", "32Ki"),
    ),
    Case(
        rule="PS143",
        bad=frontend("--router-prefill-load-model", "roofline"),
        near=frontend("--router-prefill-load-model", "aic"),
    ),
    Case(
        rule="PS143",  # in the engine file
        bad=graph(VLLM_AGG, {"worker/config/moe-backend": "flashinfer-trt"}),
        near=graph(VLLM_AGG, {"worker/config/moe-backend": "flashinfer-trtllm"}),
    ),
    Case(  # a list, parsed by an action of SGLang
        rule="PS143",
        bad=graph(SGLANG_AGG, {"worker/config/enable-lora": ["a=/adapters/a"]}),
        near=graph(SGLANG_AGG, {"worker/config/lora-paths": ["a=/adapters/a"]}),
    ),
    Case(  # null becomes the string None
        rule="PS143",
        bad=manifest(VLLM_AGG, {"worker/gpu-memory-utilization": None}),
        near=manifest(VLLM_AGG, {"worker/num-gpu-blocks-override": None}),
    ),
    Case(  # in the engine file
        rule="PS144",
        bad=graph(VLLM_AGG, {"worker/config/swap_space": 4}),
        near=graph(VLLM_AGG, {"worker/config/disable_log_stats": True}),
    ),
    Case(
        rule="PS144",
        bad=vllm("--swap-space", "4"),
        near=vllm("--disable-log-stats"),
    ),
    Case(
        rule="PS144",  # only vLLM's worker rejects --connector
        bad=graph(VLLM_DISAGG, {"decode/args": ["--connector", "none"]}),
        near=graph(TRTLLM_DISAGG, {"decode/args": ["--connector", "none"]}),
    ),
    Case(
        rule="PS144",
        bad=sglang("--cuda-graph-max-bs", "64"),
        near=sglang("--cuda-graph-max-bs-decode", "64"),
    ),
    Case(
        rule="PS145",
        bad=trtllm("--publish-events-and-metrics"),
        near=trtllm("--publish-metrics"),
        fixed=trtllm("--publish-kv-events", "--publish-metrics"),
    ),
    Case(
        rule="PS145",
        bad=sglang("--disable-cuda-graph"),
        near=sglang("--disable-decode-cuda-graph"),
    ),
    Case(
        rule="PS145",  # --kv-events is the former name of the flag
        bad=frontend("--kv-events"),
        near=frontend("--router-kv-events"),
    ),
    Case(
        rule="PS145",  # "deprecated for vLLM"
        bad=graph(VLLM_AGG, {"frontend/args": ["--router-temperature", "0.1"]}),
        near=sglang("--connector", "none"),
    ),
    Case(
        rule="PS146",
        bad=graph(VLLM_AGG, {"worker/env/VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
        near=graph(SGLANG_AGG, {"worker/env/VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
    ),
    Case(
        rule="PS146",
        bad=graph(VLLM_DISAGG, {"prefill/env/DYN_VLLM_IS_PREFILL_WORKER": "true"}),
        near=graph(VLLM_DISAGG, {"prefill/env/DYN_VLLM_DISAGGREGATION_MODE": "prefill"}),
    ),
    Case(
        rule="PS146",  # for every engine
        bad=graph(TRTLLM_AGG, {"frontend/env/DYN_USE_KV_EVENTS": "true"}),
        near=graph(TRTLLM_AGG, {"frontend/env/DYN_ROUTER_USE_KV_EVENTS": "true"}),
    ),
    Case(
        rule="PS147",
        bad=graph(VLLM_AGG, {"worker/env/DYN_VLLM_MULTIMODAL_WORKER": "true"}),
        near=graph(VLLM_AGG, {"worker/env/DYN_VLLM_MULTIMODAL_WORKER": "false"}),
    ),
    Case(
        rule="PS147",
        bad=graph(SGLANG_AGG, {"worker/env/DYN_SGL_MULTIMODAL_WORKER": "1"}),
        near=graph(VLLM_AGG, {"worker/env/DYN_SGL_MULTIMODAL_WORKER": "1"}),
    ),
    Case(
        rule="PS147",
        bad=graph(VLLM_AGG, {"worker/env/DYN_CONNECTOR": "none"}),
        near=graph(TRTLLM_AGG, {"worker/env/DYN_CONNECTOR": "none"}),
    ),
    Case(
        rule="PS148",
        bad=graph(TRTLLM_AGG, {"worker/env/DYN_COMPONENT": "backend"}),
        near=graph(TRTLLM_AGG, {"worker/env/DYN_LOG": "info"}),
    ),
    Case(
        rule="PS149",
        bad=revised("$REVISION"),
        near=revised("$(REVISION)"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS149",
        bad=revised("${REVISION}"),
        near=revised("main"),
    ),
    Case(
        rule="PS149",  # upper case only: `$ref` and the like are plain text
        bad=trtllm("--revision=$REVISION"),
        near=trtllm("--revision=$revision"),
    ),
    Case(
        rule="PS150",
        bad=trtllm("--max-beam-width", "1", "--max-beam-width", "2"),
        near=trtllm("--max-beam-width", "1", "--max-beam-width", "1"),
        fixed=trtllm("--max-beam-width", "2"),
    ),
    Case(
        rule="PS150",  # another spelling of the flag; a flag that appends is allowed
        bad=sglang("--ep", "1", "--ep-size", "2"),
        near=sglang("--engine-route", "a", "--engine-route", "b"),
    ),
    Case(
        rule="PS151",
        bad=frontend("--tls-cert-path", "/tls.crt"),
        near=frontend("--tls-cert-path", "/tls.crt", "--tls-key-path", "/tls.key"),
        also=("PS724",),
    ),
    Case(
        rule="PS151",  # the certificate, set twice, is not a key
        bad=frontend("--tls-cert-path", "/tls.crt", DYN_TLS_CERT_PATH="/tls.crt"),
        near=frontend("--tls-cert-path", "/tls.crt", DYN_TLS_KEY_PATH="/tls.key"),
    ),
    Case(
        rule="PS151",  # a variable from a Secret counts as set
        bad=with_secret("DYN_TLS_CERT_PATH"),
        near=with_secret("DYN_TLS_KEY_PATH"),
    ),
    Case(
        rule="PS153",
        bad=graph(VLLM_AGG, {"worker/config/all2all-backend": "naive"}),
        near=graph(VLLM_AGG, {"worker/config/all2all-backend": "allgather_reducescatter"}),
    ),
    Case(
        rule="PS153",
        bad=vllm("--all2all-backend", "pplx"),
        near=vllm("--all2all-backend", "deepep_low_latency"),
    ),
    Case(
        rule="PS143",  # in the engine file
        bad=graph(VLLM_AGG, {"worker/config/max-num-seqs": "many"}),
        near=graph(VLLM_AGG, {"worker/config/max-num-seqs": "256"}),
    ),
    Case(
        rule="PS143",
        bad=graph(VLLM_AGG, {"worker/config/enforce-eager": "false"}),
        near=graph(VLLM_AGG, {"worker/config/enforce-eager": False}),
    ),
    Case(
        rule="PS143",
        bad=graph(SGLANG_AGG, {"worker/config/context-length": True}),
        near=graph(SGLANG_AGG, {"worker/config/context-length": "32Ki"}),
    ),
    Case(
        rule="PS143",
        bad=vllm("--block-size", "--enforce-eager"),
        near=vllm("--block-size", "64", "--enforce-eager"),
    ),
    Case(
        rule="PS142",  # a switch is disabled with its own name
        bad=graph(VLLM_AGG, {"worker/config/no-enable-prefix-cache": True}),
        near=graph(VLLM_AGG, {"worker/config/no-enable-prefix-caching": True}),
    ),
    Case(
        rule="PS182",
        bad=vllm("--max-num-batched-tokens 8192"),
        near=vllm("--max-num-batched-tokens=8192"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS182",  # nothing removes the space of a flag without a value
        bad=vllm("--enforce-eager "),
        near=vllm("--enforce-eager"),
    ),
    Case(
        rule="PS182",  # a shell would remove the quotes
        bad=sglang("--json-model-override-args '{}'"),
        near=sglang("--json-model-override-args", '{"a": "--b c"}'),
    ),
    Case(
        rule="PS182",  # the spaces around an equal sign
        bad=frontend("--router-mode = kv"),
        near=frontend("--router-mode", "kv"),
    ),
    Case(
        rule="PS182",  # the value of another flag
        bad=trtllm("--model-name --revision main"),
        near=trtllm("--served-model-name", "--revision main"),
    ),
    Case(
        rule="PS182",  # in a `>` block, a backslash no longer ends its line
        bad=script("python3 -m dynamo.vllm \\ --model m \\ --enforce-eager"),
        near=script("python3 -m dynamo.vllm \\\n --model m \\\n --enforce-eager"),
    ),
)
