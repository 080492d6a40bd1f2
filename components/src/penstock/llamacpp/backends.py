"""The two ends of KV transfers, by `kv_transfer_backend`."""

from __future__ import annotations

from penstock.llamacpp.config import LlamaCppConfig
from penstock.llamacpp.nixl_agent import Agent
from penstock.llamacpp.nixl_receiver import NixlReceiver
from penstock.llamacpp.nixl_sender import NixlSender
from penstock.llamacpp.shared_memory import KvFiles, SharedMemoryReceiver
from penstock.llamacpp.transfer import EXPIRY_S, KvReceiver, KvSender


def sender(config: LlamaCppConfig) -> KvSender:
    """Of a prefill worker."""
    return NixlSender(Agent()) if config.kv_transfer_backend == "nixl" else KvFiles(EXPIRY_S)


def receiver(config: LlamaCppConfig) -> KvReceiver:
    """Of a decode worker."""
    return NixlReceiver(Agent()) if config.kv_transfer_backend == "nixl" else SharedMemoryReceiver()
