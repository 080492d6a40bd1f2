"""Which settings of a manifest may reach a process on this machine.

In a pod, a manifest can set any variable and any flag: the container is the boundary. Here the
processes run as the user, so settings that run code, write files or send data elsewhere are left
out: variables by an allow-list, flags by a deny-list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from penstock.manifests.flags import by_flag
from penstock.strict_yaml.loader import load

# Why settings are left out, for the note.
NOT_ALLOWED = "not on the list of allowed variables"
RUNS_CODE = "can run code on this machine"
WRITES = "writes files on this machine"
RECORDS = "records prompts, outputs or headers in files on this machine"
SENDS = "sends data to another machine"
NAMES_A_FILE = "names a file on this machine"
READS = "lets clients read files on this machine"
SETS_ANY_FLAG = "reads more settings from a file that is not checked"
UNREADABLE = "cannot be parsed"

# --- flags: all, except those that run code or move data -----------------------------------
# vLLM takes most settings in three ways: as a flag, as a key in the JSON of a flag, and as a key in
# the file of `--config`. So every key is treated in the same way, wherever it is.

_UNSAFE_NAMES = {
    RUNS_CODE: (
        "frontend_route_extension custom_encoder_class io_processor_plugin log_config_file "
        "logging_config logits_processors model_class_overrides reasoning_parser_plugin "
        "scheduler_cls tool_parser_plugin trust_remote_code worker_cls worker_extension_cls"
    ),
    SETS_ANY_FLAG: "stage_configs_path",
    WRITES: (
        "benchmark_output_path download_dir dump_config_to media_output_fs_url "
        "mm_encoder_fp8_scale_save_path profiler_config"
    ),
    SENDS: "media_output_http_url otlp_traces_endpoint",
    READS: "allowed_local_media_path",
}
_UNSAFE = {name: reason for reason, names in _UNSAFE_NAMES.items() for name in names.split()}
# Complete flags that are the beginning of an unsafe one; argparse accepts such abbreviations.
_COMPLETE = frozenset({"model", "reasoning", "reasoning_parser"})
_RUNS_CODE_KEY = re.compile(
    r"\w*plugins?(_\w+)?|\w*module_path|\w*_(cls|class)|"
    r"logits_processors|inductor_passes|inductor_compile_config"
)
_WRITES_KEY = re.compile(
    r"debug_dump_path|cache_dir|\w*_(profiler|dump|log)_dir|\w*(storage|disk)_path"
)
_SENDS_KEY = re.compile(r"\w*_url|\w*(proxy|master|parallel)_(ip|addr|address)")
# Modules that the environments of Dynamo and vLLM contain.
_KNOWN_MODULES = ("vllm.", "dynamo.", "lmcache.", "kvbm.")
# Each names an implementation: one of the engine's words, or a dotted name of Python code.
_IMPLEMENTATIONS = frozenset({"backend", "distributed_executor_backend"})
# Addresses of this machine, on which the process listens.
_OWN_ENDPOINT = re.compile(
    r"(tcp://)?(\*|0\.0\.0\.0|\[::\]|localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
)
_NAME = re.compile(r"[\w.-]+")
_KEY = re.compile(r"""["']?([\w.-]+)["']?\s*[:=]""")


def safe_arguments(
    arguments: Iterable[str], files: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments that may be passed, and for each other flag the reason.

    ``files``: path → text of the files that the manifest brings; `--config` may name one.
    """
    kept: list[str] = []
    reasons: dict[str, str] = {}
    for flag, values in by_flag(arguments):
        reason = _reason(flag, values, files) if flag else ""
        if reason:
            reasons[flag] = reason
        else:
            kept += values
    return tuple(kept), reasons


def _reason(flag: str, values: list[str], files: Mapping[str, str]) -> str:
    """Why the flag is left out; empty when it is not."""
    if flag == "-m":  # the module that the launch runs
        return ""
    values = [word for word in (values[0].partition("=")[2], *values[1:]) if word]
    long = re.sub("^(-cc|-O)(?![a-z])", "--compilation-config", flag)
    if "." in long and not long.startswith("--"):
        return RUNS_CODE  # argparse expands `-c.key` to `-cc.key`
    try:
        if long == "--config":
            return _reason_of_config(values, files)
        key = long.lstrip("-").replace("-", "_")
        name = key.partition(".")[0] if long.startswith("--") else ""
        return _abbreviated(name) or _reason_of_settings(key, [_parsed(v) for v in values])
    except (yaml.YAMLError, ValueError, RecursionError):
        return UNREADABLE


def _reason_of_config(paths: list[str], files: Mapping[str, str]) -> str:
    """vLLM makes a flag of each key of the file, and arguments of its value."""
    if len(paths) != 1 or paths[0] not in files:
        return SETS_ANY_FLAG
    content = load(files[paths[0]])
    if not isinstance(content, Mapping):
        return UNREADABLE
    for key, setting in content.items():
        name = str(key).replace("-", "_")
        values = setting if isinstance(setting, list) else [setting]
        if not _NAME.fullmatch(name) or any(
            isinstance(item, str) and item.startswith("-") for item in values
        ):
            return SETS_ANY_FLAG
        parsed = [_parsed(item) if isinstance(item, str) else item for item in values]
        reason = "" if setting is False else _abbreviated(name.partition(".")[0])
        if reason := reason or _reason_of_settings(name, setting if setting is False else parsed):
            return reason
    return ""


def _abbreviated(name: str) -> str:
    if name in _COMPLETE or not name:
        return ""
    return next((reason for key, reason in _UNSAFE.items() if key.startswith(name)), "")


def _parsed(text: str) -> Any:
    """A value in JSON, or its keys in an unusual spelling of it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        is_mapping = text.lstrip().startswith(("{", "["))
        return dict.fromkeys(_KEY.findall(text), "") if is_mapping else text


def _reason_of_settings(key: str, setting: Any) -> str:
    return next(filter(None, (_reason_of(k, v) for k, v in _settings(key, setting))), "")


def _settings(key: str, setting: Any) -> Iterator[tuple[str, Any]]:
    """Each key with its value, at any depth."""
    seen: set[int] = set()  # a YAML alias can repeat a part without end
    rest = [(key, setting)]
    while rest:
        key, setting = rest.pop()
        *parents, name = key.replace("-", "_").split(".")
        yield from ((parent, None) for parent in parents)
        yield name, setting
        if id(setting) in seen:
            continue
        if isinstance(setting, Mapping):
            seen.add(id(setting))
            rest += [(str(k), v) for k, v in setting.items()]
        elif isinstance(setting, list):
            seen.add(id(setting))
            rest += [(name, item) for item in setting]


def _reason_of(key: str, setting: Any) -> str:
    if setting is False:
        return ""
    if reason := _UNSAFE.get(key):
        return reason
    is_known = isinstance(setting, str) and setting.startswith(_KNOWN_MODULES)
    if _RUNS_CODE_KEY.fullmatch(key):
        return "" if is_known or isinstance(setting, list | None) else RUNS_CODE
    if key == "method" and setting == "custom_class":
        return RUNS_CODE
    if key in _IMPLEMENTATIONS and isinstance(setting, str) and "." in setting:
        return "" if is_known else RUNS_CODE
    if _WRITES_KEY.fullmatch(key):
        return WRITES
    is_remote = key == "endpoint" and str(setting).startswith("tcp://")
    if _SENDS_KEY.fullmatch(key) or is_remote:
        is_own = isinstance(setting, list | None) or _OWN_ENDPOINT.fullmatch(str(setting))
        return "" if is_own else SENDS
    return ""


# --- environment variables: an allow-list of names -------------------------------------------

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
