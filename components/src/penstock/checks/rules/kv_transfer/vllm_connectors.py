"""The KV connectors of a vLLM worker: the tree in kv-transfer-config, and what each supports.

Facts from vllm/distributed/kv_transfer/kv_connector of 0.16.0 to 0.31.0 and kvbm 1.0.2 to 1.6.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelFacts
from penstock.serving.worker import Worker
from penstock.text.values import as_mapping

SECTION = "kv-transfer-config"
HMA_FLAG = "disable-hybrid-kv-cache-manager"
# The decode worker reads the KV. Two names of one class (nixl/connector.py of vLLM 0.31.0).
PULL_CONNECTORS = ("NixlConnector", "NixlPullConnector")
NIXL = (*PULL_CONNECTORS, "NixlPushConnector")
# They send KV to another worker, and keep none.
TRANSFERS = (*NIXL, "MooncakeConnector", "MoRIIOConnector", "P2pNcclConnector")
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
# They work only with prefix caching.
OFFLOADING = ("OffloadingConnector", "SimpleCPUOffloadConnector")
# (role of the worker, kv_role) that MooncakeConnector refuses.
WRONG_ROLES = ((Role.PREFILL, "kv_consumer"), (Role.DECODE, "kv_producer"))
# The keys of vLLM's attention backend.
BACKEND_KEYS = ("attention-backend", "attention-config.backend")
# Models whose own code selects among attention backends, and that keep one latent for all heads,
# although their configuration is not that of MLA.
OWN_SELECTION = ("deepseek_v4", "deepseek_v41_text", "deepseek_ref", "glm5_next_text")
# Where one is set, vLLM selects another backend than FlashInfer.
NO_TRTLLM = ("VLLM_BATCH_INVARIANT", "VLLM_ATTENTION_BACKEND", "VLLM_USE_TRTLLM_ATTENTION")
# `get_supported_head_sizes`: for others vLLM does not select FlashInfer.
HEAD_SIZES = (64, 128, 256)


@dataclass(frozen=True)
class Connector:
    name: str
    # The Python module of a connector that vLLM does not register; empty if unset.
    module: str
    role: Any
    extra: Mapping[str, Any]
    # The connectors that a MultiConnector or PdConnector calls.
    children: tuple[Connector, ...]
    # The name of the connector that calls it; empty if vLLM does.
    caller: str

    def walk(self) -> Iterator[Connector]:
        """The connector and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def has_nixl(self) -> bool:
        return any(connector.name in NIXL for connector in self.walk())

    @property
    def lists_nixl(self) -> bool:
        return any(child.name == "NixlConnector" for child in self.children)

    @property
    def dynamo_sets_host(self) -> bool:
        """As `_uses_nixl_connector` of dynamo/vllm/args.py."""
        is_listed = self.name == "PdConnector" and self.lists_nixl
        return is_listed or self.name == "NixlConnector"

    @property
    def is_refused(self) -> bool:
        """Whether vLLM never registered the name, and no module defines it."""
        return not self.module and self.name not in REGISTERED

    @property
    def supports_hma(self) -> bool | None:
        """Whether it works with the hybrid KV cache manager (0.23.0 on); None if unknown."""
        if self.name == "MultiConnector":
            supported = [child.supports_hma for child in self.children]
            if not supported or False in supported:
                return False
            return None if None in supported else True
        if self.module and not (self.name in OF_KVBM and self.module == KVBM_MODULE):
            return None
        return True if self.name in WITH_HMA else False if self.name in WITHOUT_HMA else None

    @property
    def without_hma(self) -> str:
        """The name of the first connector that does not support the manager."""
        refusing = (c.name for c in self.walk() if c.supports_hma is False and not c.children)
        return next(refusing, self.name)

    @property
    def crosses_layers(self) -> bool | None:
        """Whether it stores the KV of all layers together; None if unknown."""
        if self.name in PULL_CONNECTORS:
            return str(self.extra.get("enable_cross_layers_blocks", False)).lower() == "true"
        if self.name in ("DynamoConnector", "LMCacheConnectorV1"):
            return False
        crossing = [child.crosses_layers for child in self.children]
        if False in crossing:
            return False
        return None if None in crossing or not crossing else True


def connector_of(worker: Worker) -> Connector | None:
    """The connector that the worker's configuration names; None without one, or if it is unknown
    because the engine's file was not read."""
    if worker.engine is not Engine.VLLM or not worker.settings.is_complete:
        return None
    return _read(worker.get(SECTION))


def connectors_of(worker: Worker) -> Iterator[Connector]:
    """`connector_of` and all below it."""
    connector = connector_of(worker)
    return connector.walk() if connector is not None else iter(())


def _read(section: Any, caller: str = "") -> Connector | None:
    section = as_mapping(section)
    name = section.get("kv_connector")
    if not isinstance(name, str):
        return None
    extra = as_mapping(section.get("kv_connector_extra_config"))
    listed = extra.get("connectors")
    children = (_read(child, name) for child in (listed if isinstance(listed, list) else ()))
    module = str(section.get("kv_connector_module_path") or "")
    below = tuple(child for child in children if child is not None)
    return Connector(name, module, section.get("kv_role"), extra, below, caller)


def hma_flag(worker: Worker) -> bool | None:
    """True if the hybrid KV cache manager is disabled, False if it is enabled; None if unset."""
    flag = worker.get(HMA_FLAG)
    return flag if isinstance(flag, bool) else None


def publishes_events(worker: Worker) -> bool:
    """Whether Dynamo hands the events' configuration to vLLM (create_kv_events_config)."""
    is_off = worker.role is Role.DECODE or worker.get("enable-prefix-caching") is False
    return isinstance(worker.get("kv-events-config"), Mapping) and not is_off


def recovers_state(worker: Worker) -> bool:
    """Whether the state is in a regular page: `use_kda_recoverssm` in config/vllm.py of 0.33.0."""
    is_kda = "kimi" in str(worker.value("model") or "").lower()
    return is_kda and worker.value("speculation") is not None


def connector_key(worker: Worker) -> str | None:
    """The key that turns a KV connector on."""
    if connector_of(worker) is not None:
        return SECTION
    is_offloading = worker.settings.is_complete and worker.get("kv-offloading-size") is not None
    return "kv-offloading-size" if is_offloading else None


def joins_layers(worker: Worker) -> bool:
    """Whether OffloadingConnector lays the KV of all layers out as one block."""
    connector = connector_of(worker)
    if hma_flag(worker) is False:
        return False
    if connector is not None:
        return connector.name == "OffloadingConnector"
    return worker.get("kv-offloading-backend") in (None, "native")


def attention_backend_key(worker: Worker) -> str | None:
    """The key that sets the attention backend."""
    return next((key for key in BACKEND_KEYS if worker.get(key) is not None), None)


def uses_flashinfer(worker: Worker, facts: ModelFacts | None) -> bool:
    """Whether FlashInfer computes the attention of a model with sinks."""
    if facts is None or not facts.has_sinks or not facts.head_sizes:
        return False
    backends = [worker.get(key) for key in BACKEND_KEYS]
    names = [str(backend).upper() for backend in backends if backend is not None]
    launch = worker.launch
    return (
        all(name in ("FLASHINFER", "AUTO") for name in names)
        and all(size in HEAD_SIZES for size in facts.head_sizes)
        and worker.get("attention-config.use_trtllm_attention") is not False
        and not any(worker.env(v) or v in launch.unknown_variables for v in NO_TRTLLM)
    )
