"""Rules about settings that vLLM's KV connectors exclude, and about names of connectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.engine_config.accepted_values import since, versions_of
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    NIXL,
    SECTION,
    Connector,
    connector_of,
)
from penstock.engines.value_history import refusals
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# `xpu` is the buffer of Intel's GPUs.
BUFFERS = (None, "cuda", "cpu", "xpu")
ROUTED, REPLAY = "enable-return-routed-experts", "use-replayssm"


def connector_of_other_versions(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        for one in connector.walk() if connector is not None else ():
            if one.module:
                continue
            for refusal in refusals(Engine.VLLM, "connectors", "kv_connector", one.name):
                yield RuleResult(
                    location=worker.config_location(SECTION),
                    message=f"vLLM has no connector {one.name}{since(Engine.VLLM, refusal)}",
                    fix=Fix(text="Use another connector, or another image."),
                    versions=versions_of(Engine.VLLM, refusal),
                )


def excluded_by_connector(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        if connector is None or not worker.is_laid_out:
            continue
        found = [*_features(worker, connector)]
        for one in connector.walk():
            found += [*_nixl(worker, one), *_mooncake(worker, one), *_other(one)]
        yield from results(worker, found)


def _nixl(worker: Worker, one: Connector) -> Iterator[Exclusion]:
    if one.name not in NIXL:
        return
    section = worker.get(SECTION)
    buffer = section.get("kv_buffer_device") if isinstance(section, Mapping) else None
    if buffer not in BUFFERS:
        yield Exclusion(
            key=SECTION,
            problem=f"kv_buffer_device is {buffer}, but {one.name} supports only cuda and cpu",
            fix="Set kv_buffer_device to cuda.",
            versions=">=0.10",
        )
    both_ways = one.extra.get("bidirectional_kv_xfer") is True
    if one.name == "NixlPushConnector" and both_ways:
        yield Exclusion(
            key=SECTION,
            problem=f"{one.name} does not support bidirectional_kv_xfer",
            fix="Remove bidirectional_kv_xfer, or use NixlConnector.",
            versions=">=0.26",
        )
    if one.name == "NixlPushConnector" and worker.dcp > 1:
        yield Exclusion(
            key="decode-context-parallel-size",
            problem=f"{one.name} does not support decode-context-parallel-size {worker.dcp}",
            fix="Set decode-context-parallel-size to 1.",
            versions=">=0.31",
        )
    if worker.cp > 1 and (one.role != "kv_producer" or both_ways):
        yield Exclusion(
            key="prefill-context-parallel-size",
            problem=f"prefill-context-parallel-size {worker.cp} requires kv_role kv_producer "
            "without bidirectional_kv_xfer",
            fix="Set kv_role to kv_producer on prefill workers, and prefill-context-parallel-size "
            "to 1 on the others.",
            versions=">=0.31",
        )


def _mooncake(worker: Worker, one: Connector) -> Iterator[Exclusion]:
    if one.name != "MooncakeConnector":
        return
    if worker.pp > 1:
        yield Exclusion(
            key="pipeline-parallel-size",
            problem=f"MooncakeConnector does not support pipeline-parallel-size {worker.pp}",
            fix="Use tensor parallelism.",
            versions=">=0.16,<0.26",
        )
    wrong = {Role.PREFILL: "kv_consumer", Role.DECODE: "kv_producer"}.get(worker.role)
    if one.role is not None and one.role == wrong:
        yield Exclusion(
            key=SECTION,
            problem=f"kv_role is {wrong} on a {worker.role} worker",
            fix="Use kv_producer on prefill workers and kv_consumer on decode workers.",
            versions=">=0.14",
        )


def _other(one: Connector) -> Iterator[Exclusion]:
    size = one.extra.get("host_pool_gib")
    if one.name == "HiSparseConnector" and not (isinstance(size, (int, float)) and size > 0):
        yield Exclusion(
            key=SECTION,
            problem="HiSparseConnector requires host_pool_gib above 0",
            fix="Set host_pool_gib in kv_connector_extra_config.",
            versions=">=0.31",
        )


def _features(worker: Worker, connector: Connector) -> Iterator[Exclusion]:
    if worker.get(ROUTED) is True:
        transfers = any(one.name in (*NIXL, "MooncakeConnector") for one in connector.walk())
        yield Exclusion(
            key=ROUTED,
            problem=f"{ROUTED} does not work with {connector.name}",
            fix=f"Remove {ROUTED}.",
            versions=">=0.23" if transfers else ">=0.23,<0.31",
        )
    if worker.get(REPLAY) is True:
        yield Exclusion(
            key=REPLAY,
            problem=f"{REPLAY} does not work with {connector.name}",
            fix=f"Remove {REPLAY}.",
            versions=">=0.28,<0.33" if _recovers_state(worker) else ">=0.28",
        )


def _recovers_state(worker: Worker) -> bool:
    """Whether the state is in a regular page: `use_kda_recoverssm` in config/vllm.py of 0.33.0."""
    is_kda = "kimi" in str(worker.value("model") or "").lower()
    return is_kda and worker.value("speculation") is not None
