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
    "PS106": ("--extra-engine-args", "kv_cache_config"),
    "PS108": ("--extra-engine-args",),
    "PS134": ("pipeline_parallel_size",),
    "PS137": ("speculation",),
    "PS140": ("speculation",),
    "PS156": ("cudagraph-capture-sizes",),
    "PS161": ("--speculative-config",),
    "PS162": ("--enable-prefix-caching",),
    "PS175": ("--enable-lora",),
    "PS181": NODES,
    "PS206": GPU,
    "PS207": GPU,
    "PS208": ("hardware/gpus_per_node",),
    "PS212": GPU,
    "PS213": GPU,
    "PS217": ("enable-dp-attention",),
    "PS219": IMAGE,
    "PS222": GPU,
    "PS224": NODES,
    "PS226": NODES,
    "PS228": GPU,
    "PS230": ("--dp-size", "--enable-dp-attention", "--moe-a2a-backend"),
    "PS232": NODES,
    "PS233": ("--dp-size",),
    "PS234": ("--enable-expert-parallel",),
    "PS236": NODES,
    "PS301": (*GPU, "max_num_tokens"),
    "PS302": GPU,
    "PS303": GPU,
    "PS304": GPU,
    "PS305": GPU,
    "PS401": MODE,
    "PS414": ("kv_cache_config/dtype",),
    "PS416": ("kv-transfer-config",),
    "PS419": ("model/id", "kv_transfer/transport"),
    "PS432": MODE,
    "PS433": (*MODE, "rdma/ib"),
    "PS435": ("kv_transfer/transport",),
    "PS440": ("kv_transfer/rdma_resource",),
    "PS441": CONNECTOR,
    "PS442": CONNECTOR,
    "PS443": CONNECTOR,
    "PS444": MODE,
    "PS445": CONNECTOR,
    "PS446": CONNECTOR,
    "PS450": CONNECTOR,
    "PS452": (*CONNECTOR, "LMCACHE_ENABLE_P2P"),
    "PS453": (*CONNECTOR, "replicas"),
    "PS455": MODE,
    "PS456": MODE,
    "PS459": MODE,
    "PS462": CONNECTOR,
    "PS463": CONNECTOR,
    "PS464": CONNECTOR,
    **{f"PS466{number:02}": CONNECTOR for number in range(1, 10)},
    "PS468": (*CONNECTOR, "LMCACHE_REMOTE_URL"),
    "PS469": NODES,
    "PS471": ("--disaggregation-transfer-backend", "--dp-size", "--enable-dp-attention"),
    "PS472": MODE,
    "PS504": ("worker/replicas",),
    "PS505": ("frontend/replicas",),
    "PS506": ("block-size",),
    "PS515": GPU,
    "PS516": ("--block-size", "DYN_ROUTER_MODE"),
    "PS518": ("--kv-events-config", "DYN_ROUTER_MODE"),
    "PS530": ("block-size",),
    "PS531": ("--served-model-name",),
    "PS533": ("block-size",),
    "PS609": ("model/tool_call_parser",),
    "PS610": IMAGE,
    "PS703": ("worker/shared_memory",),
    "PS718": ("affinity", "nvidia.com/gpu"),
    "PS720": ("worker/gpus", "worker/shared_memory", "host_cache_size"),
    "PS725": ("--model",),
    "PS734": ("--model",),
    "PS766": MODE,
    "PS782": ("count", "resourceClaims"),
    "PS803": ("worker/gpus", "worker/replicas"),
    "PS923": ("model/id",),
    "PS924": GPU,
}
