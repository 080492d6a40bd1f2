"""UCX and the other plugins of NIXL: transports and devices of KV transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.checks.rules.containers import truth
from penstock.checks.rules.kv_transfer.agreement import effective_backend
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.checks.rules.kv_transfer.vllm_connectors import NIXL, SECTION, connector_of
from penstock.checks.rules.network.fabric import has_efa
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

RDMA_TRANSPORTS = ("rc", "dc", "ud", "ib", "srd")
UCX = "UCX"
# The variable of each engine that has one; vLLM has a key of its connector instead.
VARIABLES = {
    Engine.SGLANG: "SGLANG_DISAGGREGATION_NIXL_BACKEND",
    Engine.TRTLLM: "TRTLLM_NIXL_KVCACHE_BACKEND",
}
EXTRA_CONFIG = "kv_connector_extra_config"


def _transports(worker: Worker) -> list[str] | None:
    """The transports that UCX_TLS allows; None where it is unset or an exclusion list."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    return None if not text or text.startswith("^") else text.split(",")


def lists_rdma(worker: Worker) -> bool | None:
    """Whether UCX_TLS lists RDMA transports; None where it is unset or an exclusion list."""
    allowed = _transports(worker)
    if allowed is None:
        return None
    return any(name.startswith(RDMA_TRANSPORTS) or name == "all" for name in allowed)


def reaches_gpus(worker: Worker) -> bool:
    """Whether UCX_TLS allows a transport from GPU memory."""
    allowed = _transports(worker)
    return allowed is None or bool({"all", "cuda", "cuda_copy", "ze_copy"} & set(allowed))


def excludes_cuda_ipc(worker: Worker) -> bool:
    """Whether UCX_TLS excludes the transport of NVLink."""
    text = (worker.env("UCX_TLS") or "").replace(" ", "")
    if not text or "$" in text:
        return False
    named = set(text.lstrip("^").split(","))
    if text.startswith("^"):
        return bool(named & {"cuda_ipc", "cuda"})
    return not named & {"cuda_ipc", "cuda", "all"}


def enables_nvlink(worker: Worker) -> bool:
    """Whether UCX uses multi-node NVLink."""
    text = worker.env("UCX_CUDA_IPC_ENABLE_MNNVL")
    return truth(text) is True or (text or "").strip().lower() == "y"


def uses_ucx(worker: Worker) -> bool:
    """False for Mooncake, MPI, and vLLM's connectors other than NIXL, which have their own
    transports, and for values that are computed at start."""
    if is_computed(worker.env("UCX_TLS")) or is_computed(worker.env("UCX_NET_DEVICES")):
        return False
    connector = str(worker.get("kv-transfer-config.kv_connector") or "Nixl")
    keys = ("cache_transceiver_config.backend", "disaggregation-transfer-backend")
    is_other = any(str(worker.get(key)).lower().startswith(("mooncake", "mpi")) for key in keys)
    return not is_other and ("Nixl" in connector or connector in ("PdConnector", "MultiConnector"))


def is_computed(text: str | None) -> bool:
    """Whether a shell or the kubelet computes the value: `$(ibstat …)`, `${DEVICES}`."""
    return "$" in (text or "") or "`" in (text or "")


def is_of_intel(transports: str | None) -> bool:
    """Whether the worker runs on an Intel XPU, which needs other transports than CUDA."""
    return any(name.startswith("ze_") for name in transport_names(transports))


def transport_names(transports: str | None) -> frozenset[str]:
    """The transports without their order, which UCX ignores."""
    return frozenset((transports or "").replace(" ", "").split(","))


def net_devices(worker: Worker) -> list[str]:
    """The devices of UCX_NET_DEVICES."""
    return [name for name in (worker.env("UCX_NET_DEVICES") or "all").split(",") if name]


def fabric_of(device: str) -> str:
    """`ib` for RDMA devices, else `ethernet`."""
    return "ib" if device.startswith(("mlx", "ibp", "rocep", "bnxt_re")) else "ethernet"


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The plugins with which NIXL transfers the KV of a worker, in upper case."""

    names: tuple[str, ...]
    location: Location
    # The variable that names the plugin; empty for vLLM's list of plugins.
    variable: str = ""

    def change_to(self, *names: str) -> str:
        """The beginning of an instruction to use other plugins."""
        if self.variable:
            return f"Set {self.variable}={names[0]}"
        listed = ", ".join(f'"{name}"' for name in names)
        return f'Set "backends": [{listed}] in {EXTRA_CONFIG}'

    def env_for(self, *names: str) -> Mapping[str, str]:
        """The variable to set for other plugins."""
        return {self.variable: names[0]} if self.variable else {}


def nixl_plugins(worker: Worker) -> Plugins | None:
    """None if the worker transfers no KV with NIXL, or if its plugins are not known."""
    if worker.engine is Engine.VLLM:
        connector = connector_of(worker)
        parts = [part for part in connector.walk() if part.name in NIXL] if connector else []
        listed = parts[0].extra.get("backends", [UCX]) if parts else None
        if not isinstance(listed, list) or not listed:
            return None
        names = tuple(str(name).upper() for name in listed)
        return Plugins(names=names, location=worker.config_location(SECTION))
    variable = VARIABLES.get(worker.engine)
    backend = effective_backend(worker)
    launch = worker.launch
    if variable is None or str(backend).upper() != "NIXL":
        return None
    if variable in launch.unknown_variables or launch.has_unread_variables:
        return None
    names = ((worker.env(variable) or UCX).upper(),)
    location = worker.location("env", variable)
    return Plugins(names=names, location=location, variable=variable)


def workers_with_slow_plugin(deployment: ServingDeployment) -> Iterator[tuple[Worker, Plugins]]:
    """The workers with EFA whose NIXL uses only UCX, although the pools agree (PS473)."""
    pools = differing_plugins(deployment)
    differing = {name for first, _, second, _ in pools for name in (first.name, second.name)}
    for worker in kv_transfer_workers(deployment):
        plugins = nixl_plugins(worker) if worker.engine is not Engine.TRTLLM else None
        if plugins is not None and _is_slow(worker, plugins) and worker.name not in differing:
            yield worker, plugins


def _is_slow(worker: Worker, plugins: Plugins) -> bool:
    return plugins.names == (UCX,) and has_efa(worker)


def differing_plugins(
    deployment: ServingDeployment,
) -> Iterator[tuple[Worker, Plugins, Worker, Plugins]]:
    """Pools without a common plugin. The first is the one to change: that with UCX on EFA, which
    PS455 does not report then, or the decode pool."""
    for prefill, decode in deployment.pairs:
        first, second = nixl_plugins(prefill), nixl_plugins(decode)
        if first and second and not set(first.names) & set(second.names):
            if _is_slow(prefill, first):
                yield prefill, first, decode, second
            else:
                yield decode, second, prefill, first
