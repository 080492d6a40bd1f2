"""The KV connectors of a vLLM worker: the tree in kv-transfer-config, and what each supports.

Facts from vllm/distributed/kv_transfer/kv_connector of 0.16.0 to 0.31.0 and kvbm 1.0.2 to 1.6.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.as_mapping import as_mapping
from penstock.manifests.deployment import Engine
from penstock.serving.worker import Worker

SECTION = "kv-transfer-config"
HMA_FLAG = "disable-hybrid-kv-cache-manager"
# The decode worker reads the KV. Two names of one class (nixl/connector.py of vLLM 0.31.0).
PULL_CONNECTORS = ("NixlConnector", "NixlPullConnector")
NIXL = (*PULL_CONNECTORS, "NixlPushConnector")
COMPOSED = ("MultiConnector", "PdConnector")
KVBM_MODULE = "kvbm.vllm_integration.connector"
OF_KVBM = ("DynamoConnector", "PdConnector")
# Names that vLLM registered in some version from 0.11 to 0.31.
REGISTERED = (
    *NIXL,
    *("MultiConnector", "LMCacheConnectorV1", "LMCacheMPConnector", "OffloadingConnector"),
    *("SimpleCPUOffloadConnector", "MooncakeConnector", "MooncakeStoreConnector"),
    *("P2pNcclConnector", "MoRIIOConnector", "FlexKVConnectorV1", "HF3FSKVConnector"),
    *("DecodeBenchConnector", "ExampleConnector", "ExampleHiddenStatesConnector"),
    *("SharedStorageConnector", "HiSparseConnector"),
)
# Whether a class implements SupportsHMA, from 0.23.0 on.
WITH_HMA = (
    *NIXL,
    *("MooncakeConnector", "MooncakeStoreConnector", "OffloadingConnector"),
    *("SimpleCPUOffloadConnector", "DecodeBenchConnector", "ExampleHiddenStatesConnector"),
)
WITHOUT_HMA = (
    *("DynamoConnector", "LMCacheConnectorV1", "LMCacheMPConnector", "FlexKVConnectorV1"),
    *("HF3FSKVConnector", "ExampleConnector", "P2pNcclConnector"),
)


@dataclass(frozen=True)
class Connector:
    name: str
    # The Python module of a connector that vLLM does not register; empty if unset.
    module: str
    role: Any
    extra: Mapping[str, Any]
    # The connectors that a MultiConnector or PdConnector calls.
    children: tuple[Connector, ...]

    def walk(self) -> Iterator[Connector]:
        """The connector and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def has_nixl(self) -> bool:
        return any(one.name in NIXL for one in self.walk())

    @property
    def supports_hma(self) -> bool | None:
        """Whether it works with the hybrid KV cache manager (0.23.0 on); None if unknown."""
        if self.name == "MultiConnector":
            found = [child.supports_hma for child in self.children]
            if not found or False in found:
                return False
            return None if None in found else True
        if self.module and not (self.name in OF_KVBM and self.module == KVBM_MODULE):
            return None
        return True if self.name in WITH_HMA else False if self.name in WITHOUT_HMA else None


def connector_of(worker: Worker) -> Connector | None:
    """The connector that the worker's configuration names; None without one, or if it is unknown
    because the engine's file was not read."""
    if worker.engine is not Engine.VLLM or not worker.settings.is_complete:
        return None
    section = worker.get(SECTION)
    return _read(section) if isinstance(section, Mapping) else None


def _read(section: Mapping[Any, Any]) -> Connector | None:
    name = section.get("kv_connector")
    if not isinstance(name, str):
        return None
    extra = section.get("kv_connector_extra_config")
    extra = as_mapping(extra)
    listed = extra.get("connectors")
    below = listed if isinstance(listed, list) else []
    children = tuple(
        child for item in below if isinstance(item, Mapping) and (child := _read(item)) is not None
    )
    module = section.get("kv_connector_module_path")
    return Connector(name, str(module or ""), section.get("kv_role"), extra, children)


def hma_flag(worker: Worker) -> bool | None:
    """True if the hybrid KV cache manager is disabled, False if it is enabled; None if unset."""
    value = worker.get(HMA_FLAG)
    return value if isinstance(value, bool) else None
