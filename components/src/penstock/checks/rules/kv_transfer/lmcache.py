"""The settings of LMCache, a KV connector of vLLM and SGLang."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checks.rules.containers import number_of
from penstock.checks.rules.kv_transfer.vllm_connectors import connector_of
from penstock.engines.settings import Location
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker
from penstock.strict_yaml.loader import load
from penstock.text.values import as_mapping

CONFIG_FILE = "LMCACHE_CONFIG_FILE"
# The list of ports → the switch that needs it.
PORT_LISTS = {
    "p2p_init_ports": "enable_p2p",
    "p2p_lookup_ports": "enable_p2p",
    "lmcache_worker_ports": "enable_controller",
}
# The dynamo.vllm flag of releases before 1.0.
OLD_FLAG = ("--connector",)
# Switch → the keys without which LMCache fails an assertion.
REQUIRED = {
    "enable_p2p": (
        *("enable_controller", "controller_pull_url", "controller_reply_url", "transfer_channel"),
        *("lmcache_worker_ports", "p2p_host", "p2p_init_ports", "p2p_lookup_ports"),
    ),
    "enable_pd": ("pd_role", "pd_buffer_size", "pd_buffer_device"),
    "enable_controller": ("controller_pull_url", "lmcache_worker_ports"),
}
# Former names of keys that LMCache still reads (`_CONFIG_ALIASES`).
FORMER = {
    "enable_pd": "enable_xpyd",
    "pd_role": "nixl_role",
    "pd_buffer_size": "nixl_buffer_size",
    "pd_buffer_device": "nixl_buffer_device",
    "controller_pull_url": "controller_url",
    "lmcache_worker_ports": "lmcache_worker_port",
}


@dataclass(frozen=True)
class LMCacheSettings:
    """The keys that the rules need, from LMCache's file and its variables."""

    worker: Worker
    file: Mapping[Any, Any]

    def get(self, key: str) -> Any:
        text = self.worker.env(f"LMCACHE_{key.upper()}")
        return self.file.get(key) if text is None else text

    def is_on(self, key: str) -> bool:
        return str(self.get(key)).strip().lower() in ("true", "1", "yes", "on")

    def has(self, key: str) -> bool:
        """Whether a key is set and not off, under its present or its former name."""
        settings = (self.get(key), self.get(FORMER.get(key, key)))
        return any(setting not in (None, "", False, "false", "False") for setting in settings)

    def number(self, key: str) -> float | None:
        setting = self.get(key)
        return None if isinstance(setting, bool) else number_of(setting)

    def ports(self, key: str) -> list[Any] | None:
        ports = self.get(key)
        if isinstance(ports, str):
            return [port for port in ports.strip("[]").split(",") if port.strip()]
        return ports if isinstance(ports, list) else None

    def missing(self, switch: str) -> list[str]:
        """The keys that a switch requires and that are not set; none if it is off."""
        # Peer-to-peer transfers require the controller's keys too.
        is_covered = switch == "enable_controller" and self.is_on("enable_p2p")
        is_checked = self.is_on(switch) and not is_covered
        return [key for key in REQUIRED[switch] if is_checked and not self.has(key)]

    @property
    def store(self) -> str | None:
        """The key of the store behind the CPU buffer."""
        return next((k for k in ("remote_url", "local_disk", "enable_p2p") if self.has(k)), None)

    def location(self, deployment: ServingDeployment, key: str) -> Location:
        """In the ConfigMap that holds the file, or the variable."""
        if self.worker.env(f"LMCACHE_{key.upper()}") is not None:
            return self.worker.location("env", f"LMCACHE_{key.upper()}")
        text = _text(self.worker)
        for index, document in enumerate(deployment.documents):
            for name, content in as_mapping(document["data"].value).items():
                if content == text:
                    return Location("", "document", (index, "data", str(name), key))
        return self.worker.location("env", CONFIG_FILE)


def _text(worker: Worker) -> str | None:
    path = worker.env(CONFIG_FILE)
    return worker.launch.files.get(path) if path else None


def lmcache_settings(deployment: ServingDeployment) -> Iterator[LMCacheSettings]:
    """Of the workers that use LMCache and whose settings of it are known."""
    for worker in deployment.workers:
        if not _uses_lmcache(worker) or worker.launch.has_unread_variables:
            continue
        text = _text(worker)
        if text is None and worker.env(CONFIG_FILE) is not None:
            continue  # a file in the image or on a volume
        try:
            file = load(text) if text is not None else {}
        except ValueError:
            continue
        yield LMCacheSettings(worker, as_mapping(file))


def _uses_lmcache(worker: Worker) -> bool:
    connector = connector_of(worker)
    if connector is not None:
        return any(child.name == "LMCacheConnectorV1" for child in connector.walk())
    flag = worker.flag(*OLD_FLAG)
    return flag is not None and "lmcache" in str(flag.value)


def shared_lmcache(deployment: ServingDeployment) -> list[LMCacheSettings]:
    """Of the workers that share what they store; empty if it is one."""
    sharing = [
        settings
        for settings in lmcache_settings(deployment)
        if settings.get("remote_url") or settings.is_on("enable_p2p")
    ]
    components = {settings.worker.name: settings.worker.component for settings in sharing}
    return sharing if sum(part.replicas for part in components.values()) > 1 else []
