"""A vLLM worker that computes on this machine's CPU: what it needs here beside its manifest.

On a cluster each worker is alone in its pod and may bind every address; here a distinct set of
loopback ports each (`{port:NAME}`, filled in at start), and threads that share the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.engines.engine import as_mapping
from penstock.errors import InputError, MissingToolError, Problem
from penstock.local.ports import LOOPBACK
from penstock.manifests import flags
from penstock.manifests.deployment import Component, Engine

ENVIRONMENT = "vllm-cpu"
PORTS = ("nixl", "kv_events")


def computes_on_cpu(component: Component) -> bool:
    """vLLM alone has workers without a GPU; a manifest says so by asking for none."""
    return component.engine is Engine.VLLM and component.gpus == 0


def environment(python: str) -> Mapping[str, str]:
    """What the graph's own ``env`` wins over; ``python``: the environment's interpreter."""
    return {
        # What vLLM finds out about a model class by importing all of itself once more, 19 s. By
        # itself it keeps that in the home folder, which is each worker's own.
        "VLLM_CACHE_ROOT": str(Path(python).parents[1] / "vllm-cache"),
        # A quarter each: two workers leave something for the frontend and the client.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 4)),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # One process less to import 12 s of Python: the engine core runs the model itself. vLLM's
        # reason to forbid it is thread binding, which is off here.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # Some functions of vLLM compile themselves at the first request, for a minute and with a
        # C++ compiler, whatever enforce-eager says.
        "TORCHDYNAMO_DISABLE": "1",
        # Else vLLM's process titles overwrite the environment by which leftovers are recognised.
        "SPT_NOENV": "1",
        # Sockets in the worker's own folder, as a relative path: an absolute one may be too long.
        "VLLM_RPC_BASE_PATH": ".",
        "VLLM_NO_USAGE_STATS": "1",
        "UCX_LOG_LEVEL": "info",  # names the transport of each connection: `penstock verify`
    }


def loopback() -> Mapping[str, str]:
    """Addresses of everything that vLLM, torch and UCX bind."""
    return {
        "VLLM_HOST_IP": LOOPBACK,
        "VLLM_LOOPBACK_IP": LOOPBACK,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "{port:nixl}",
        "GLOO_SOCKET_IFNAME": "lo",
        "UCX_NET_DEVICES": "lo",
    }


def arguments(
    given: tuple[str, ...], settings: Mapping[str, Any], folder: Path | None
) -> tuple[str, ...]:
    """The worker's arguments with the model's ``folder``, and KV events on its own socket.

    InputError when the model's files are not here.
    """
    model = flags.value(given, "--model") or ""
    if folder is None:
        raise InputError(
            Problem(
                place="model.path",
                message=f"{model!r} is no model folder on this machine (config.json, tokenizer.json"
                " and weights)",
                fix=f"name one that is, or make one: penstock tiny-model {model}",
            )
        )
    made = ("--model", str(folder), *flags.without(given, "--model"))
    events = as_mapping(as_mapping(settings.get("engine_args")).get("kv_events_config"))
    if not events.get("enable_kv_cache_events"):
        return made
    own = {key: value for key, value in events.items() if value is not None}
    # vLLM binds `tcp://*` and `ipc://`, and connects to all else: no TCP address binds loopback
    # alone. So an abstract Unix socket, which leaves no file.
    own["endpoint"] = "ipc://@penstock-kv-events-{port:kv_events}"
    return (*made, "--kv-events-config", json.dumps(own))  # argparse takes the last of two


def require_environment(python: str | None) -> str:
    """``python``, or MissingToolError with the command that makes its environment."""
    if python is None:
        raise MissingToolError(
            Problem(
                place="engine.device",
                message=f"vLLM on a CPU needs the environment {ENVIRONMENT}: not installed",
                fix=f"penstock env install {ENVIRONMENT}, or --engine mocker to run without it",
            )
        )
    return python
