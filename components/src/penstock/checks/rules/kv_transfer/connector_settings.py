"""Rules about settings of vLLM's kv-transfer-config that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.kv_transfer.vllm_connectors import (
    COMPOSED,
    KVBM_MODULE,
    NIXL,
    OF_KVBM,
    REGISTERED,
    SECTION,
    Connector,
    connector_of,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"
OFFLOADING = "kv-offloading-size"
BEFORE_1_7 = Versions(dynamo=">=0.8,<1.7")


def no_side_channel(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not deployment.is_disaggregated:
        return
    for worker in deployment.pool(Role.PREFILL, Role.DECODE):
        connector, launch = connector_of(worker), worker.launch
        if connector is None or not connector.has_nixl or _dynamo_sets_host(connector):
            continue
        is_set = worker.env(SIDE_CHANNEL) is not None or SIDE_CHANNEL in launch.unknown_variables
        if not is_set and not launch.has_unread_variables:
            yield RuleResult(
                location=worker.config_location(SECTION),
                message=f"{worker.name} uses {connector.name} with NIXL and does not set "
                f"{SIDE_CHANNEL}",
                fix=Fix(text=f"Set {SIDE_CHANNEL} to the pod's address (fieldRef status.podIP)."),
                versions=BEFORE_1_7 if _lists_nixl(connector) else None,
            )


def _dynamo_sets_host(connector: Connector) -> bool:
    """As `_uses_nixl_connector` of dynamo/vllm/args.py."""
    if connector.name == "PdConnector":
        return _lists_nixl(connector)
    return connector.name == "NixlConnector"


def _lists_nixl(connector: Connector) -> bool:
    return any(child.name == "NixlConnector" for child in connector.children)


def replaced_connector(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        if connector is None or worker.get(OFFLOADING) is None or not connector.has_nixl:
            continue
        yield RuleResult(
            location=worker.config_location(OFFLOADING),
            message=f"{OFFLOADING} replaces {connector.name} by an offloading connector",
            fix=Fix(
                text=f"Remove {OFFLOADING}, and list NixlConnector and OffloadingConnector in a "
                "MultiConnector."
            ),
        )


def unknown_connector(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        for one in connector.walk() if connector is not None else ():
            yield from _unknown(worker, one)
            if one.name in COMPOSED:
                yield from _incomplete(worker, one)


def _unknown(worker: Worker, connector: Connector) -> Iterator[RuleResult]:
    if connector.module or connector.name in REGISTERED:
        return
    key = "kv_connector_module_path"
    if connector.name in OF_KVBM:
        message = f"{connector.name} requires {key}"
        newer = " (dynamo.vllm.pd_connector since Dynamo 1.7)" * (connector.name == "PdConnector")
        fix = Fix(text=f"Set {key} to {KVBM_MODULE}{newer}.")
        level = None
    else:
        near = nearest(connector.name, (*REGISTERED, *OF_KVBM), cutoff=0.85)
        message = f"vLLM has no KV connector {connector.name}"
        fix = Fix(text=f"Use {near}." if near else f"Correct the name, or set {key}.")
        level = None if near else Level.WARNING  # a plug-in of the image may register it
    yield RuleResult(
        location=worker.config_location(SECTION), message=message, fix=fix, level=level
    )


def _incomplete(worker: Worker, connector: Connector) -> Iterator[RuleResult]:
    listed = connector.extra.get("connectors")
    if not isinstance(listed, list) or not listed:
        yield RuleResult(
            location=worker.config_location(SECTION),
            message=f"{connector.name} has no kv_connector_extra_config.connectors",
            fix=Fix(text="List the connectors in kv_connector_extra_config.connectors."),
        )
        return
    for item in listed:
        if isinstance(item, Mapping) and item.get("kv_connector") and not item.get("kv_role"):
            yield RuleResult(
                location=worker.config_location(SECTION),
                message=f"{item['kv_connector']} in {connector.name} has no kv_role",
                fix=Fix(text="Set kv_role of each connector to kv_both."),
            )


def pipeline_parallel_consumer(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        connector = connector_of(worker)
        if worker.engine is not Engine.VLLM or connector is None or worker.pp < 2:
            continue
        if any(one.name in NIXL and one.role == "kv_consumer" for one in connector.walk()):
            yield RuleResult(
                location=worker.settings.location("pipeline_parallel"),
                message=f"pipeline-parallel-size is {worker.pp}, which NIXL does not support for "
                "kv_role kv_consumer",
                fix=Fix(
                    text="Set pipeline-parallel-size to 1 and use tensor parallelism.",
                    config={"pipeline-parallel-size": 1},
                ),
            )
