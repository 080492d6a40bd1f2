"""Rules about settings of vLLM's kv-transfer-config that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
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
from penstock.checks.version_range import EVERY_VLLM, Versions
from penstock.manifests.deployment import Engine, Role
from penstock.nearest import nearest
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"
OFFLOADING = "kv-offloading-size"
BEFORE_1_7 = Versions(dynamo=">=0.8,<1.7")


@rule(
    id="PS444",
    title="the NIXL side channel has no address",
    level=Level.ERROR,
    cause="Dynamo sets VLLM_NIXL_SIDE_CHANNEL_HOST only for a NixlConnector that is used alone, "
    "in a PdConnector or, since Dynamo 1.7, in a MultiConnector. For other connectors that contain "
    "NIXL, vLLM uses localhost.",
    effect="The decode worker connects to itself, and every handshake between pods fails.",
    remedy="Set the variable to status.podIP.",
    source="dynamo/vllm/args.py 484-488 of 0.8.1, 566-586 of 1.6.1, 635-655 of 1.7.0; "
    "vllm/envs.py 231 of 0.31.0; vllm#27083",
    versions=Versions(dynamo=">=0.8"),
    engines=(Engine.VLLM,),
)
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


@rule(
    id="PS445",
    title="kv-offloading-size replaces the KV connector",
    level=Level.ERROR,
    cause="vLLM replaces kv_connector of kv-transfer-config when kv-offloading-size is set.",
    effect="NIXL is gone without a message, so no KV is transferred between the pools.",
    remedy="Remove kv-offloading-size, or combine both connectors in a MultiConnector.",
    source="vllm/config/vllm.py _post_init_kv_transfer_config 1124-1158 of 0.31.0 and the same "
    "function of 0.14.1 to 0.33.0; that of 0.12.0 needs kv-offloading-backend too",
    versions=Versions(vllm=">=0.14"),
)
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


@rule(
    id="PS449",
    title="kv-transfer-config names a connector that does not exist",
    level=Level.ERROR,
    cause="vLLM knows no connector of this name, the module of an external connector is missing, "
    "or a connector of several has no list of connectors or no kv_role for one.",
    effect="vLLM exits at startup.",
    remedy="Correct the name, or set kv_connector_module_path.",
    source="vllm/distributed/kv_transfer/kv_connector/factory.py 95-120, v1/multi_connector.py "
    "232-245 and vllm/config/kv_transfer.py 130-140 of 0.31.0 and of 0.16.0; the same errors in "
    "0.10.1.1",
    versions=EVERY_VLLM,
    engines=(Engine.VLLM,),
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


@rule(
    id="PS450",
    title="a decode worker uses pipeline parallelism with NIXL",
    level=Level.ERROR,
    cause="vLLM's NIXL connector does not support pipeline parallelism for kv_role kv_consumer.",
    effect="vLLM raises NotImplementedError at startup.",
    remedy="Use tensor parallelism on decode workers.",
    source="vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py 436 of 0.26.0, 451 of "
    "0.28.0 and 801 of 0.31.0; 0.23.0 does not support pipeline stages",
    versions=Versions(vllm=">=0.26"),
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
