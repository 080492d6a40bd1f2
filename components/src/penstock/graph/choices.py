"""Values that several fields of a graph, or other packages, choose from."""

from __future__ import annotations

from typing import Literal

# Versions of Dynamo that a graph can target, oldest first. engines/data/dynamo_versions.json, which
# `make versions` writes, has the facts of each that has a wheel (graph/versions.py).
DynamoVersion = Literal["1.5.1", "1.6.1", "1.6.2", "1.7.0.dev20261026", "1.7.0"]
EngineKind = Literal["trtllm", "vllm", "sglang", "llamacpp", "mocker"]
Device = Literal["gpu", "cpu"]
Probe = Literal[
    "models",
    "unknown-model",
    "topology",
    "workers",
    "disaggregation",
    "kv-transfer",
    "transport",
    "kv-routing",
    "kv-events",
    "block-size",
    "prefix-cache",
    "context-length",
    "streaming",
    "greedy",
    "reasoning-parser",
    "tool-call-parser",
    "cancel",
    "migration",
]
QueuePolicy = Literal["fcfs", "wspt"]
RouterMode = Literal[
    "kv", "round-robin", "random", "power-of-two", "least-loaded", "direct", "device-aware-weighted"
]
FaultKind = Literal[
    "kill",
    "term",
    "stop-short",
    "stop-long",
    "partition",
    "suspend-all",
    "remove-discovery",
    "packet-loss",
    "slow-network",
    "disk-full",
    "kill-supervisor",
    "scale",
    "edit-twice",
    "edit-config",
    "edit-frontend",
    "revert",
    "invalid-edit",
]
# Those of a release on a cluster, besides "kill", are the last three.
AnyFaultKind = Literal[FaultKind, "delete", "evict", "drain"]
