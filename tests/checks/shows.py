"""Settings that the page of a rule shows because the finding depends on them.

They are the same in the failing example and in its repair, and the message does not name them. A
setting is a flag, or a key with as many of the keys above it as needed. Collected by removing each
hidden line of each example: without these, the rule reports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

GPU = ("hardware/gpu",)
NODES = ("nodeSelector",)
MODE = ("--disaggregation-mode",)
CONNECTOR = ("--kv-transfer-config",)
IMAGE = ("engine/image",)

SHOWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("PS181", "PS224", "PS226", "PS232", "PS23508", "PS23511", "PS236", "PS469"), NODES
    ),
    **dict.fromkeys(
        (
            "PS206",
            "PS207",
            "PS212",
            "PS213",
            "PS222",
            "PS228",
            "PS302",
            "PS303",
            "PS304",
            "PS305",
            "PS515",
            "PS924",
        ),
        GPU,
    ),
    **dict.fromkeys(("PS401", "PS432", "PS444", "PS455", "PS456", "PS459", "PS472", "PS766"), MODE),
    **dict.fromkeys(
        ("PS441", "PS442", "PS443", "PS445", "PS446", "PS450", "PS462", "PS463", "PS464"), CONNECTOR
    ),
    **dict.fromkeys(("PS506", "PS530", "PS533"), ("block-size",)),
    **{f"PS466{number:02}": CONNECTOR for number in range(1, 10)},
    "PS106": ("--extra-engine-args", "kv_cache_config"),
    "PS108": ("--extra-engine-args",),
    "PS134": ("pipeline_parallel_size",),
    "PS137": ("speculation",),
    "PS140": ("speculation",),
    "PS156": ("cudagraph-capture-sizes",),
    "PS161": ("--speculative-config",),
    "PS162": ("--enable-prefix-caching",),
    "PS17503": ("--enable-lora",),
    "PS208": ("hardware/gpus_per_node",),
    "PS217": ("enable-dp-attention",),
    "PS219": IMAGE,
    "PS610": IMAGE,
    "PS230": ("--dp-size", "--enable-dp-attention", "--moe-a2a-backend"),
    "PS233": ("--dp-size",),
    "PS23403": ("--enable-expert-parallel",),
    "PS23506": ("--quantization",),
    "PS301": (*GPU, "max_num_tokens"),
    "PS414": ("kv_cache_config/dtype",),
    "PS416": ("kv-transfer-config",),
    "PS419": ("model/id", "kv_transfer/transport"),
    "PS433": (*MODE, "rdma/ib"),
    "PS435": ("kv_transfer/transport",),
    "PS440": ("kv_transfer/rdma_resource",),
    "PS452": (*CONNECTOR, "LMCACHE_ENABLE_P2P"),
    "PS453": (*CONNECTOR, "replicas"),
    "PS468": (*CONNECTOR, "LMCACHE_REMOTE_URL"),
    "PS471": ("--disaggregation-transfer-backend", "--dp-size", "--enable-dp-attention"),
    "PS504": ("worker/replicas",),
    "PS505": ("frontend/replicas",),
    "PS516": ("--block-size", "DYN_ROUTER_MODE"),
    "PS518": ("--kv-events-config", "DYN_ROUTER_MODE"),
    "PS531": ("--served-model-name",),
    "PS609": ("model/tool_call_parser",),
    "PS703": ("worker/shared_memory",),
    "PS718": ("affinity", "nvidia.com/gpu"),
    "PS720": ("worker/gpus", "worker/shared_memory", "host_cache_size"),
    "PS725": ("--model",),
    "PS734": ("--model",),
    "PS782": ("count", "resourceClaims"),
    "PS803": ("worker/gpus", "worker/replicas"),
    "PS923": ("model/id",),
}
