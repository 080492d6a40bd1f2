"""Which settings of a manifest may reach a process on this machine.

In a pod, a manifest can set any variable and any flag: the container is the boundary. Here the
processes run as the user, so settings that run code, write files or send data elsewhere are left
out. Variables are allowed by name. Flags are those of Dynamo and vLLM, except for those below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

# Dynamo's and the engines' own settings, and those of the libraries that they communicate with.
_PREFIXES = (
    *("DYN_", "DYNAMO_", "ETCD_", "NATS_", "OTEL_", "POD_"),
    *("VLLM_", "SGLANG_", "SGL_", "TRTLLM_", "TLLM_"),
    *("NIXL_", "UCX_", "NCCL_", "GLOO_", "OMP_", "MKL_", "TORCH_NCCL_"),
)
_NAMES = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET", "HF_TOKEN"),
        *("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
        *("RUST_BACKTRACE", "RUST_LOG", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_OFFLINE"),
        "PYTORCH_CUDA_ALLOC_CONF",
    }
)
_RUNS_CODE = "it can run code on this machine"
_WRITES = "it writes to a path of this machine"
_SENDS = "it sends data to another machine"
_READS = "it lets clients read files of this machine"
# Variables with an allowed prefix. Each pattern matches a whole name.
_UNSAFE_VARIABLES = {
    r"DYN_FRONTEND_(ROUTE_EXTENSIONS|JEMALLOC)|DYN_CUSTOM_ENCODER_CLASS|DYN_TRUST_REMOTE_CODE|"
    r"DYN_SGLANG_ENGINE_ROUTES|\w+_PLUGINS?|\w+_PLUGIN_\w+|\w+_(MODULE|LIB|LIBRARY)\w*|"
    r"(VLLM|SGLANG)_(LOGGING_CONFIG_PATH|\w*_SO_PATH)|NIXL_TELEMETRY_EXPORTER|NCCL_\w*_PATH|"
    r"VLLM_(CACHE_ROOT|CONFIG_ROOT|ALLOW_INSECURE_SERIALIZATION)|DYN_TRITON_\w+": _RUNS_CODE,
    r"DYN_DUMP_CONFIG_TO|DYN_\w*(OUTPUT|TRACE_FILE)_PATH|DYN_TRITON_LOG_FILE|\w+_DUMP_\w+|"
    r"\w+_LOG_FILE|\w+_(DEBUG_FILE|TOPO_DUMP_FILE|TRACE_DIR|PROFILER_DIR|TELEMETRY_DIR)|"
    r"DYN_SNAPSHOT_CONTROL_DIR|DYN_MEDIA_OUTPUT_FS_URL|NIXL_TELEMETRY_DIR": _WRITES,
    r"DYN_(REQUEST_TRACE|AUDIT)_\w+|OTEL_EXPORTER_\w+|DYN_MEDIA_OUTPUT_HTTP_URL": _SENDS,
    r"DYN_MM_(LOCAL_PATH|ALLOW_INTERNAL)|DYN_TRTLLM_ALLOWED_LOCAL_MEDIA_PATH": _READS,
}
_UNSAFE_FLAGS = {
    "--config": "the file can set any flag",
    "--frontend-route-extension": _RUNS_CODE,
    "--custom-encoder-class": _RUNS_CODE,
    "--io-processor-plugin": _RUNS_CODE,
    "--log-config-file": _RUNS_CODE,
    "--logging-config": _RUNS_CODE,
    "--logits-processors": _RUNS_CODE,
    "--model-class-overrides": _RUNS_CODE,
    "--reasoning-parser-plugin": _RUNS_CODE,
    "--scheduler-cls": _RUNS_CODE,
    "--tool-parser-plugin": _RUNS_CODE,
    "--trust-remote-code": _RUNS_CODE,
    "--worker-cls": _RUNS_CODE,
    "--worker-extension-cls": _RUNS_CODE,
    "--benchmark-output-path": _WRITES,
    "--download-dir": _WRITES,
    "--dump-config-to": _WRITES,
    "--media-output-fs-url": _WRITES,
    "--mm-encoder-fp8-scale-save-path": _WRITES,
    "--profiler-config": _WRITES,
    "--media-output-http-url": _SENDS,
    "--otlp-traces-endpoint": _SENDS,
    "--allowed-local-media-path": _READS,
}
# Complete flags that are the beginning of an unsafe one; argparse accepts such abbreviations.
_COMPLETE = frozenset({"--model", "--reasoning", "--reasoning-parser"})
# A connector or processor that is loaded from a module of the manifest's choice.
_MODULE_IN_VALUE = re.compile(r"""\w*(module_path|_cls|_class)["']?\s*:""")


def safe_variables(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that may be set, and for each other name the reason."""
    reasons = {name: reason for name in env if (reason := _reason_for_variable(name))}
    return {name: value for name, value in env.items() if name not in reasons}, reasons


def _reason_for_variable(name: str) -> str:
    for pattern, reason in _UNSAFE_VARIABLES.items():
        if re.fullmatch(pattern, name):
            return reason
    if name.startswith(_PREFIXES) or name in _NAMES:
        return ""
    return "it is not a setting of Dynamo or the engine"


def safe_arguments(arguments: Iterable[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments that may be passed, and for each other flag the reason."""
    kept: list[str] = []
    reasons: dict[str, str] = {}
    for flag, given in _by_flag(arguments):
        reason = _reason_for_flag(flag)
        if not reason and any(_MODULE_IN_VALUE.search(part) for part in given):
            reason = _RUNS_CODE
        if reason:
            reasons[flag] = reason
        else:
            kept += given
    return tuple(kept), reasons


def _by_flag(arguments: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with the arguments that belong to it, itself first."""
    flag, given = "", list[str]()
    for argument in arguments:
        if argument.startswith("--"):
            if given:
                yield flag, given
            flag, given = argument.partition("=")[0], []
        given.append(argument)
    if given:
        yield flag, given


def _reason_for_flag(flag: str) -> str:
    """vLLM accepts underscores and `--flag.key`; argparse accepts unique abbreviations."""
    name = flag.replace("_", "-").partition(".")[0]
    if name in _COMPLETE:
        return ""
    if "-module-path" in flag.replace("_", "-"):
        return _RUNS_CODE
    matches = (reason for unsafe, reason in _UNSAFE_FLAGS.items() if unsafe.startswith(name))
    return next(matches, "") if len(name) > len("--") else ""
