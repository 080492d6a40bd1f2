"""Cases of values and keys that only some versions have, and of offloading (PS163 to PS465)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import OMIT, Case, X, vary

DENSE, HYBRID, WINDOWED = "Qwen/Qwen3-8B", "Qwen/Qwen3.5-27B", "google/gemma-4-31B-it"
CPU, SIMPLE = "OffloadingConnector", "SimpleCPUOffloadConnector"
SIZE = {"cpu_bytes_to_use": 1 << 30}
KEEPS_HMA = "--no-disable-hybrid-kv-cache-manager"


def worker(
    *args: str, model: str = DENSE, kind: str = "vllm", version: str = "1.6.1", **settings: Any
) -> str:
    arguments = flags(model) if kind == "vllm" else ("--model-path", model)
    return deployment(
        component(kind, *arguments, *args, version=version, **settings), version=version
    )


def drafting(**values: Any) -> tuple[str, str]:
    return "--speculative-config", json.dumps({"method": "ngram", **values})


def offload(*, version: str = "1.4.0", model: str = DENSE, **extra: Any) -> str:
    return worker(*transfer(CPU, **extra), model=model, version=version)


def hybrid(*args: str, version: str, name: str = CPU) -> str:
    section = transfer(name, **SIZE)
    return worker(*section, KEEPS_HMA, *args, model=HYBRID, version=version)


VALUES = (
    vary("PS163", worker, "--kv-cache-dtype", "nvfp4", version=X)("1.1.0", "1.2.0"),
    # removed in 0.26
    vary("PS163", worker, "--all2all-backend", "mori", version=X)("1.4.0", "1.2.0"),
    vary("PS163", worker, *drafting(method="ngram_gpu"), version=X)("1.0.0", "1.1.0"),
    vary("PS163", worker, "--moe-runner-backend", "marlin", kind="sglang", version=X)(
        "1.2.0", "1.3.0"
    ),
    # vLLM's parser takes any text
    vary("PS163", worker, "--quantization", X)("fp88", "FP8", is_repaired_by_near=True),
    # removed in 0.27
    vary("PS163", worker, "--quantization", "bitsandbytes", version=X)("1.6.1", "1.4.0"),
    # a plugin may register a name, which then seldom resembles another
    vary("PS163", worker, "--load-format", X)("safetensor", "gms"),
    vary("PS163", worker, "--tokenizer-mode", X)("mistal", "mistral", is_repaired_by_near=True),
    vary("PS163", worker, "--speculative-algorithm", X, kind="sglang")("EAGEL", "eagle"),
    vary("PS169", worker, *drafting(disable_by_batch_size=8), version=X)("1.1.0", "1.0.0"),
    vary("PS169", worker, "--attention-config", '{"use_cudnn_prefill": true}', version=X)(
        "1.4.0", "1.1.0"
    ),
    vary("PS465", worker, *transfer("P2pNcclConnector"), version=X)("1.4.0", "1.3.0"),
    # inside of another
    vary("PS465", worker, *transfer("MultiConnector", connector("NixlPushConnector")), version=X)(
        "1.3.0", "1.4.0"
    ),
)
OFFLOADING = (
    vary("PS462", offload, num_cpu_blocks=1000, version=X)("0.9.0", "0.8.0"),
    Case("PS462", offload(), offload(spec_name="OwnSpec", spec_module_path="acme.offload")),
    Case(
        "PS463",
        offload(**SIZE, block_size=256, model=WINDOWED),
        offload(**SIZE, blocks_per_chunk=4, model=WINDOWED),
    ),
    Case("PS463", offload(**SIZE, block_size=100), offload(**SIZE, block_size=128)),
    Case(
        "PS463",
        offload(**SIZE, block_size=128, blocks_per_chunk=8),
        offload(**SIZE, block_size=128, blocks_per_chunk=8, version="1.3.0"),
    ),
    Case("PS463", offload(**SIZE, eviction_policy="fifo"), offload(**SIZE, eviction_policy="arc")),
    vary("PS464", hybrid, X, version="1.3.0")(OMIT, "--enable-prefix-caching"),
    # with either value: PS950
    vary("PS464", hybrid, X, version="1.2.0")(OMIT, "--enable-prefix-caching"),
    # on by default since 0.28
    vary("PS464", hybrid, X, version="1.5.0")("--no-enable-prefix-caching", OMIT),
    vary("PS464", worker, *transfer(SIMPLE), X, version="1.3.0")(
        "--no-enable-prefix-caching", OMIT
    ),
)
CASES = (*VALUES, *OFFLOADING)
