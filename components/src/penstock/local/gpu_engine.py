"""Engines on this machine's GPUs: what a worker needs in addition to its manifest.

As in `cpu_engine`, each worker gets its own loopback ports. The GPUs themselves are assigned when a
replica starts (`gpus/pool.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import InputError, ManifestError
from penstock.local import cpu_engine
from penstock.local.gpus.gpu import VARIABLE
from penstock.manifests import flags
from penstock.manifests.deployment import Component, Engine, Launch
from penstock.text.values import as_mapping

# The first that is given counts.
MODEL_FLAGS = {
    Engine.TRTLLM: ("--model-path", "--model"),
    Engine.VLLM: ("--model",),
    Engine.SGLANG: ("--model-path", "--model"),
}
# Two prefill workers on one machine would both listen on SGLang's default, 8998.
BOOTSTRAP_FLAG = "--disaggregation-bootstrap-port"


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """The model of a worker, on this machine."""

    arguments: tuple[str, ...]
    """The worker's arguments, with an absolute path of a local folder."""
    weights_bytes: int


def replica_gpus(component: Component, launch: Launch) -> int:
    """GPUs of one process. ManifestError when it cannot run on one machine, or requests none."""
    if component.nodes > 1:
        raise _problem(
            component,
            f"one replica spans {component.nodes} nodes, and `up` runs a replica on one machine",
        )
    variable = launch.env.get(VARIABLE)
    if len(component.launches) > 1 and variable:
        return len(variable.split(","))  # one of several engines in a pod
    engines = [each for each in component.launches if each.module == launch.module]
    gpus, rest = divmod(component.gpus, len(engines))
    if rest or not gpus:
        raise _problem(
            component,
            f"its pod requests {component.gpus} GPUs for {len(engines)} processes of "
            f"{component.engine}",
        )
    return gpus


def _problem(component: Component, message: str) -> ManifestError:
    fix = "Use `--engine mocker`, or change the component's GPUs or nodes."
    return ManifestError(message, place=component.name, fix=fix)


def model(engine: Engine, arguments: tuple[str, ...], folder: Path | None) -> GpuModel:
    """InputError when the model is not on this machine, where ``folder`` would have it."""
    flag = next((f for f in MODEL_FLAGS[engine] if flags.flag_value(arguments, f)), None)
    name = flags.flag_value(arguments, flag) if flag else None
    if flag is None or name is None:
        return GpuModel(arguments=arguments, weights_bytes=0)  # named in a file or a variable
    if folder is None:
        raise InputError(
            f"{name!r} is neither a model folder on this machine nor in the Hugging "
            "Face cache, and `up` downloads no model",
            place="model",
            fix=f"Run `hf download {name}`, set `model.path` to a folder, or use "
            "`--engine mocker`.",
        )
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if Path(name).expanduser().is_dir():  # a hub id stays: it is the served name's default
        arguments = (flag, str(folder), *flags.without_flags(arguments, flag))
    return GpuModel(arguments=arguments, weights_bytes=weights)


def model_name(engine: Engine, arguments: tuple[str, ...]) -> str:
    values = (flags.flag_value(arguments, flag) for flag in MODEL_FLAGS[engine])
    return next((name for name in values if name), "")


def arguments(
    engine: Engine, graph_arguments: tuple[str, ...], settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """``given`` with this replica's own addresses; argparse uses the last value.

    ``settings``: those of vLLM's parser; the other engines' are empty.
    """
    if engine is Engine.VLLM:
        return (*graph_arguments, *cpu_engine.kv_events(as_mapping(settings.get("engine_args"))))
    if engine is Engine.SGLANG:
        text = flags.flag_value(graph_arguments, "--kv-events-config")
        is_disaggregated = flags.flag_value(graph_arguments, "--disaggregation-mode") is not None
        bootstrap = (BOOTSTRAP_FLAG, "{port:bootstrap}") if is_disaggregated else ()
        events = cpu_engine.kv_events({"kv_events_config": _json(text)})
        return (*graph_arguments, *bootstrap, *events)
    return graph_arguments


def _json(text: str | None) -> Mapping[str, Any]:
    try:
        return as_mapping(json.loads(text or "{}"))
    except ValueError:
        return {}  # the engine rejects it


def ports(engine: Engine) -> tuple[str, ...]:
    return {Engine.VLLM: cpu_engine.PORTS, Engine.SGLANG: ("bootstrap", "kv_events")}.get(
        engine, ()
    )


def defaults(python: str) -> Mapping[str, str]:
    """Defaults that the graph's ``env`` overrides; ``python``: the environment's interpreter."""
    # Kernels that are compiled at the first start; HOME is deleted with each run.
    triton = {"TRITON_CACHE_DIR": str(Path(python).parents[1] / "triton-cache")}
    return cpu_engine.common_environment(python) | triton


def loopback(engine: Engine) -> Mapping[str, str]:
    """Loopback for the sockets between the processes of a worker, and between workers."""
    common = {"GLOO_SOCKET_IFNAME": "lo", "UCX_NET_DEVICES": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if engine is Engine.VLLM:
        return {**common, **cpu_engine.loopback()}
    if engine is Engine.TRTLLM:  # its ranks are MPI processes
        return {**common, "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo"}
    return common
