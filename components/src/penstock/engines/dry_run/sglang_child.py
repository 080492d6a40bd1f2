"""SGLang's and Dynamo's own code builds the configuration of a worker for GPUs of another machine.

Runs in the environment sglang-check: `python -m penstock.engines.dry_run.sglang_child GPU`. torch
reports the GPUs of the configuration. Substitutes replace the modules of kernels.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch  # type: ignore[import-not-found]

from penstock.engines.dry_run.decide_child import Fields, replace_modules, serve

KERNELS = ("sgl_kernel", "sglang_kernel", "flashinfer", "deep_gemm", "flash_attn", "deep_ep")
CUDA = "13.0"  # of Dynamo's images


def set_hardware(hardware: Mapping[str, Any]) -> None:
    """Let torch report these GPUs."""
    major, minor = hardware["capability"]
    memory = hardware["memory_bytes"]
    properties = SimpleNamespace(
        name=hardware["name"],
        major=major,
        minor=minor,
        total_memory=memory,
        is_integrated=False,
        multi_processor_count=132 if major == 9 else 148,
    )
    torch.version.cuda = CUDA
    answers: Mapping[str, Any] = {
        "is_available": True,
        "device_count": hardware["count"],
        "current_device": 0,
        "get_device_capability": (major, minor),
        "get_device_name": hardware["name"],
        "get_device_properties": properties,
        "mem_get_info": (memory, memory),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _always(answer))


def _always(answer: Any) -> Any:
    return lambda *_, **__: answer


def build(arguments: list[str], hardware: Mapping[str, Any]) -> Fields:
    """The resolved arguments of a worker, as dynamo/sglang/main.py builds them."""
    if not hardware["count"]:
        raise ImportError("the worker requests no GPU")
    set_hardware(hardware)
    worker = importlib.import_module("dynamo.sglang.args")
    config = asyncio.run(worker.parse_args(arguments))
    server = config.server_args
    if not hasattr(server, "resolve_once"):
        return {}
    server.resolve_once()
    server.check_server_args()
    values = server.resolved_dict()
    chunk = values.get("chunked_prefill_size") or 0
    is_pool = values.get("disaggregation_mode") not in (None, "null")
    return {
        "attention_backend": str(values.get("attention_backend") or ""),
        "block_size": values.get("page_size"),
        "max_batch_tokens": chunk if chunk > 0 else None,
        "kv_dtype": str(values.get("kv_cache_dtype") or ""),
        "connector": str(values.get("disaggregation_transfer_backend")) if is_pool else "",
    }


def main() -> None:
    replace_modules(*KERNELS)
    set_hardware(json.loads(sys.argv[1]))  # modules read the GPU when they are imported
    importlib.import_module("dynamo.sglang.args")
    serve(importlib.metadata.version("sglang"), build)


if __name__ == "__main__":
    main()
