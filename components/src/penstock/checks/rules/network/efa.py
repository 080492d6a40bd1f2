"""Rules about the plugins of NIXL: for AWS's network devices (EFA), and in both pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.agreement import effective_backend
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.checks.rules.kv_transfer.vllm_connectors import NIXL, SECTION, connector_of
from penstock.checks.rules.network.fabric import rdma_devices
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

DEFAULT = "UCX"
# The variable of each engine that has one; vLLM has a key of its connector instead.
VARIABLES = {
    Engine.SGLANG: "SGLANG_DISAGGREGATION_NIXL_BACKEND",
    Engine.TRTLLM: "TRTLLM_NIXL_KVCACHE_BACKEND",
}
KEY = "kv_connector_extra_config.backends"


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The plugins with which NIXL transfers the KV of a worker, in upper case."""

    names: tuple[str, ...]
    location: Location
    # The setting that names the plugins.
    setting: str

    def fix(self, names: tuple[str, ...], where: str) -> Fix:
        if self.setting == KEY:
            listed = ", ".join(f'"{name}"' for name in names)
            return Fix(text=f'Set "backends": [{listed}] in {KEY.partition(".")[0]} {where}.')
        text = f"Set {self.setting}={names[0]} {where}."
        return Fix(text=text, env={self.setting: names[0]})


def nixl_plugins(worker: Worker) -> Plugins | None:
    """None if the worker transfers no KV with NIXL, or if its plugins are not known."""
    if worker.engine is Engine.VLLM:
        connector = connector_of(worker)
        found = [one for one in connector.walk() if one.name in NIXL] if connector else []
        listed = found[0].extra.get("backends", [DEFAULT]) if found else None
        if not isinstance(listed, list) or not listed:
            return None
        names = tuple(str(name).upper() for name in listed)
        return Plugins(names=names, location=worker.config_location(SECTION), setting=KEY)
    variable = VARIABLES.get(worker.engine) if worker.engine else None
    backend = effective_backend(worker)
    launch = worker.launch
    if variable is None or str(backend).upper() != "NIXL":
        return None
    if variable in launch.unknown_variables or launch.has_unread_variables:
        return None
    names = ((worker.env(variable) or DEFAULT).upper(),)
    return Plugins(names=names, location=worker.location("env", variable), setting=variable)


def ucx_on_efa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    differing = {worker.name for pair in _differing(deployment) for worker, _ in pair}
    for worker in kv_transfer_workers(deployment):
        plugins = nixl_plugins(worker) if worker.engine is not Engine.TRTLLM else None
        if plugins is not None and _is_slow(worker, plugins) and worker.name not in differing:
            yield RuleResult(
                location=plugins.location,
                message=f"{worker.name} requests EFA devices, but NIXL uses {DEFAULT}",
                fix=plugins.fix(("LIBFABRIC",), "on both pools"),
            )


def _is_slow(worker: Worker, plugins: Plugins) -> bool:
    return plugins.names == (DEFAULT,) and has_efa(worker)


def has_efa(worker: Worker) -> bool:
    return any("efa" in name for name in rdma_devices(worker))


def _differing(
    deployment: ServingDeployment,
) -> Iterator[tuple[tuple[Worker, Plugins], tuple[Worker, Plugins]]]:
    """Pools without a common plugin. The first is the one to change: that with UCX on EFA, which
    PS455 does not report then, or the decode pool."""
    for prefill, decode in deployment.pairs:
        first, second = nixl_plugins(prefill), nixl_plugins(decode)
        if first and second and not set(first.names) & set(second.names):
            pools = (decode, second), (prefill, first)
            yield pools[::-1] if _is_slow(prefill, first) else pools


def plugins_differ(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for (worker, plugins), (partner, usable) in _differing(deployment):
        yield RuleResult(
            location=plugins.location,
            message=f"NIXL uses {', '.join(plugins.names)} on {worker.name}, but "
            f"{', '.join(usable.names)} on {partner.name}",
            fix=plugins.fix(usable.names, f"on {worker.name}"),
        )
