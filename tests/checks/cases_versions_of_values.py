"""Cases of values and keys that only some versions have, and of offloading (PS163 to PS465)."""

from __future__ import annotations

import json
from typing import Any

from tests.checks.own_manifests import component, connector, deployment, flags, transfer
from tests.checks.support import Case

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
    Case(
        rule="PS163",
        bad=worker("--kv-cache-dtype", "nvfp4", version="1.1.0"),
        near=worker("--kv-cache-dtype", "nvfp4", version="1.2.0"),
    ),
    Case(  # removed in 0.26
        rule="PS163",
        bad=worker("--all2all-backend", "mori", version="1.4.0"),
        near=worker("--all2all-backend", "mori", version="1.2.0"),
    ),
    Case(
        rule="PS163",
        bad=worker(*drafting(method="ngram_gpu"), version="1.0.0"),
        near=worker(*drafting(method="ngram_gpu"), version="1.1.0"),
    ),
    Case(
        rule="PS163",
        bad=worker("--moe-runner-backend", "marlin", kind="sglang", version="1.2.0"),
        near=worker("--moe-runner-backend", "marlin", kind="sglang", version="1.3.0"),
    ),
    Case(  # vLLM's parser takes any text
        rule="PS163",
        bad=worker("--quantization", "fp88"),
        near=worker("--quantization", "FP8"),
        is_repaired_by_near=True,
    ),
    Case(  # removed in 0.27
        rule="PS163",
        bad=worker("--quantization", "bitsandbytes", version="1.6.1"),
        near=worker("--quantization", "bitsandbytes", version="1.4.0"),
    ),
    Case(  # a plugin may register a name, which then seldom resembles another
        rule="PS163",
        bad=worker("--load-format", "safetensor"),
        near=worker("--load-format", "gms"),
    ),
    Case(
        rule="PS163",
        bad=worker("--tokenizer-mode", "mistal"),
        near=worker("--tokenizer-mode", "mistral"),
        is_repaired_by_near=True,
    ),
    Case(
        rule="PS163",
        bad=worker("--speculative-algorithm", "EAGEL", kind="sglang"),
        near=worker("--speculative-algorithm", "eagle", kind="sglang"),
    ),
    Case(
        rule="PS169",
        bad=worker(*drafting(disable_by_batch_size=8), version="1.1.0"),
        near=worker(*drafting(disable_by_batch_size=8), version="1.0.0"),
    ),
    Case(
        rule="PS169",
        bad=worker("--attention-config", '{"use_cudnn_prefill": true}', version="1.4.0"),
        near=worker("--attention-config", '{"use_cudnn_prefill": true}', version="1.1.0"),
    ),
    Case(
        rule="PS465",
        bad=worker(*transfer("P2pNcclConnector"), version="1.4.0"),
        near=worker(*transfer("P2pNcclConnector"), version="1.3.0"),
    ),
    Case(  # inside of another
        rule="PS465",
        bad=worker(*transfer("MultiConnector", connector("NixlPushConnector")), version="1.3.0"),
        near=worker(*transfer("MultiConnector", connector("NixlPushConnector")), version="1.4.0"),
    ),
)
OFFLOADING = (
    Case(
        rule="PS462",
        bad=offload(num_cpu_blocks=1000, version="0.9.0"),
        near=offload(num_cpu_blocks=1000, version="0.8.0"),
    ),
    Case(
        rule="PS462",
        bad=offload(),
        near=offload(spec_name="OwnSpec", spec_module_path="acme.offload"),
    ),
    Case(
        rule="PS463",
        bad=offload(**SIZE, block_size=256, model=WINDOWED),
        near=offload(**SIZE, blocks_per_chunk=4, model=WINDOWED),
    ),
    Case(
        rule="PS463",
        bad=offload(**SIZE, block_size=100),
        near=offload(**SIZE, block_size=128),
    ),
    Case(
        rule="PS463",
        bad=offload(**SIZE, block_size=128, blocks_per_chunk=8),
        near=offload(**SIZE, block_size=128, blocks_per_chunk=8, version="1.3.0"),
    ),
    Case(
        rule="PS463",
        bad=offload(**SIZE, eviction_policy="fifo"),
        near=offload(**SIZE, eviction_policy="arc"),
    ),
    Case(
        rule="PS464",
        bad=hybrid(version="1.3.0"),
        near=hybrid("--enable-prefix-caching", version="1.3.0"),
    ),
    Case(  # with either value: PS950
        rule="PS464",
        bad=hybrid(version="1.2.0"),
        near=hybrid("--enable-prefix-caching", version="1.2.0"),
    ),
    Case(  # on by default since 0.28
        rule="PS464",
        bad=hybrid("--no-enable-prefix-caching", version="1.5.0"),
        near=hybrid(version="1.5.0"),
    ),
    Case(
        rule="PS464",
        bad=worker(*transfer(SIMPLE), "--no-enable-prefix-caching", version="1.3.0"),
        near=worker(*transfer(SIMPLE), version="1.3.0"),
    ),
)
CASES = (*VALUES, *OFFLOADING)
