"""Which environment variables of a manifest may reach a process: an allow-list of names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.local.untrusted.reasons import (
    NAMES_A_FILE,
    NOT_ALLOWED,
    READS,
    RECORDS,
    RUNS_CODE,
    SENDS,
    WRITES,
)

# Dynamo's and the engines' own settings, and those of the libraries that they communicate with.
_PREFIXES = (
    *("DYN_", "DYNAMO_", "ETCD_", "NATS_", "OTEL_", "POD_"),
    *("VLLM_", "SGLANG_", "SGL_", "TRTLLM_", "TLLM_", "TRT_LLM_"),
    *("NIXL_", "UCX_", "NCCL_", "GLOO_", "OMP_", "MKL_", "TORCH_NCCL_", "FI_"),
)
_NAMES = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET", "HF_TOKEN"),
        *("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
        *("RUST_BACKTRACE", "RUST_LOG", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_OFFLINE"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        *("FLASHINFER_DISABLE_VERSION_CHECK", "MC_FORCE_MNNVL"),
    }
)
_LIBRARIES = "(UCX|NIXL|NCCL|GLOO|OMP|MKL|TORCH_NCCL|FI|VLLM|SGLANG|SGL|TRTLLM|TLLM|TRT_LLM)"
# Python, the dynamic linker and bash run code from these.
_INTERPRETERS = r"PYTHON\w*|LD_\w+|BASH_ENV|ENV"
# Names under an allowed prefix that the patterns below would match, and that do none of it.
_SAFE_VARIABLES = frozenset({"DYN_KVBM_NIXL_BACKEND_LIBFABRIC", "VLLM_RPC_BASE_PATH"})
# Variables with an allowed prefix. Each pattern matches a whole name.
_UNSAFE_VARIABLES = {
    r"DYN_FRONTEND_(ROUTE_EXTENSIONS|JEMALLOC)|DYN_CUSTOM_ENCODER_CLASS|DYN_TRUST_REMOTE_CODE|"
    r"DYN_SGLANG_ENGINE_ROUTES|\w+_PLUGINS?|\w+_PLUGIN_\w+|DYN_TRITON_\w+|"
    r"\w+_(MODULE|MODULES|LIB|LIBRARY|LIBRARIES)(_\w+)?|"
    r"(VLLM|SGLANG)_(LOGGING_CONFIG_PATH|\w*_SO_PATH)|NIXL_TELEMETRY_EXPORTER|NCCL_\w*_PATH|"
    r"UCX_(GDB_COMMAND|HANDLE_ERRORS|ERROR_\w+|CONFIG_DIR)|NCCL_CONF_FILE|OTEL_CONFIG_FILE|DYN_OMNI_STAGE_CONFIGS_PATH|"
    r"VLLM_(CACHE_ROOT|CONFIG_ROOT|ALLOW_INSECURE_SERIALIZATION)": RUNS_CODE,
    r"DYN_DUMP_CONFIG_TO|DYN_\w*(OUTPUT|TRACE_FILE)_PATH|DYN_TRITON_LOG_FILE|\w+_DUMP_\w+|"
    r"DYN_BENCH(MARK)?_\w+|DYN_SNAPSHOT_CONTROL_DIR|DYN_MEDIA_OUTPUT_FS_URL|\w+_LOG_FILE|"
    r"\w+_(DEBUG_FILE|TRACE_DIR|PROFILER_DIR|TELEMETRY_DIR)|"
    rf"{_LIBRARIES}_(\w+_)?(FILE|FILENAME|DIR|DEST|PATH|FOLDER|COMMAND)|VLLM_ASSETS_CACHE|"
    r"DYN_LORA_PATH": WRITES,
    r"DYN_REQUEST_TRACE_(RECORDS|HTTP_HEADER_CAPTURE_LIST)": RECORDS,
    r"DYN_(REQUEST_TRACE|AUDIT)_\w+|OTEL_EXPORTER_\w+|DYN_MEDIA_OUTPUT_HTTP_URL|"
    rf"{_LIBRARIES}_(\w+_)?(URL|SERVER|ENDPOINTS?|ADDR|IP)|"
    r"DYN_\w*_URL|NCCL_COMM_ID": SENDS,
    r"DYN_MM_(LOCAL_PATH|ALLOW_INTERNAL)|DYN_TRTLLM_ALLOWED_LOCAL_MEDIA_PATH": READS,
    # Dynamo opens the file, and ends if it is not what it expects. Paths of URLs and models do not
    # name a file.
    r"(?!DYN_(HTTP_SVC_\w+|SYSTEM_(HEALTH|LIVE)|(\w+_)?MODEL)_PATH)"
    r"(DYN|DYNAMO|ETCD|NATS|OTEL|POD)_(\w+_)?(FILE|FILENAME|DIR|DIRECTORY|DEST|PATH|FOLDER)|"
    r"ETCD_AUTH_(CA|CLIENT_CERT|CLIENT_KEY)": NAMES_A_FILE,
}


def safe_variables(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that may be set, and for each other name the reason."""
    reasons = {name: reason for name in env if (reason := _reason_for_variable(name))}
    return {name: value for name, value in env.items() if name not in reasons}, reasons


def _reason_for_variable(name: str) -> str:
    if name in _SAFE_VARIABLES:
        return ""
    for pattern, reason in _UNSAFE_VARIABLES.items():
        if re.fullmatch(pattern, name):
            return reason
    if name.startswith(_PREFIXES) or name in _NAMES:
        return ""
    return RUNS_CODE if re.fullmatch(_INTERPRETERS, name) else NOT_ALLOWED
