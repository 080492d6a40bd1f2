"""Rules about known issues of a release whose cause is in the file (NVIDIA's page "Known Issues").

The range of a rule is that of the releases with the issue. Where the page does not name the release
that fixes it, the range ends where the next page no longer lists it, or has no end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.checks.rules.kv_transfer.vllm_connectors import HMA_FLAG, connector_of, hma_flag
from penstock.checks.rules.network.efa import has_efa, nixl_plugins
from penstock.checks.rules.network.fabric import kv_transfer_pods
from penstock.checks.version_range import Versions
from penstock.engines.settings import Location
from penstock.manifests.deployment import Engine, Role
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.planner import configurations, value_of
from penstock.serving.worker import Worker

PAGE = "docs.nvidia.com/dynamo: Known Issues of"
ANTHROPIC = ("--enable-anthropic-api", "DYN_ENABLE_ANTHROPIC_API")
NVIDIA = "nvcr.io/nvidia/ai-dynamo/"
NEWER = "Use the image of a later release"


def _of(deployment: ServingDeployment, engine: Engine) -> Iterable[Worker]:
    return (worker for worker in deployment.workers if worker.engine is engine)


def _setting(worker: Worker, key: str, message: str, text: str, **config: Any) -> RuleResult:
    """A result about a key of the engine's configuration; ``config``: the repair."""
    changes = {name.replace("_", "-"): value for name, value in config.items()}
    fix = Fix(text=text, config=changes)
    return RuleResult(location=worker.config_location(key), message=message, fix=fix)


def gms_with_experts(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.VLLM):
        if worker.get("load-format") == "gms" and worker.get("enable-expert-parallel") is True:
            yield _setting(
                worker,
                "load-format",
                f"{worker.name} sets both load-format gms and enable-expert-parallel",
                "Remove enable-expert-parallel.",
                enable_expert_parallel=None,
            )


def eagle_disaggregated(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        draft = worker.get("speculative-config")
        method = draft.get("method") if isinstance(draft, Mapping) else None
        if worker.engine is Engine.VLLM and method == "eagle3":
            yield _setting(
                worker,
                "speculative-config",
                f"{worker.name} drafts with EAGLE-3 in a disaggregated deployment",
                f"{NEWER}, or remove speculative-config.",
            )


def pd_connector_with_hybrid_cache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        connector = connector_of(worker)
        if connector and connector.name == "PdConnector" and hma_flag(worker) is not True:
            yield _setting(
                worker,
                HMA_FLAG,
                f"{worker.name} uses PdConnector without {HMA_FLAG}",
                f"Set {HMA_FLAG}.",
                disable_hybrid_kv_cache_manager=True,
            )


def mocker_timing(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.MOCKER and (flag := worker.flag("--aic-perf-model")):
            yield RuleResult(
                location=worker.location("args", flag.spelling),
                message=f"{worker.name} has {flag.spelling}, which this image does not support",
                fix=Fix(text=f"Remove {flag.spelling}.", replaces=flag.spelling),
            )


def sglang_over_efa(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_pods(deployment):
        is_own = not worker.component.image.startswith(NVIDIA)
        plugins = nixl_plugins(worker)
        uses_it = plugins is not None and "LIBFABRIC" in plugins.names
        if worker.engine is Engine.SGLANG and uses_it and has_efa(worker) and not is_own:
            yield RuleResult(
                location=worker.location("field", "main", "image"),
                message=f"{worker.name} transfers KV over EFA with {worker.component.image}",
                fix=Fix(text=f"{NEWER}."),
            )


def messages_status(deployment: ServingDeployment) -> Iterable[RuleResult]:
    if not any(worker.is_trtllm for worker in deployment.workers):
        return
    for component in deployment.with_role(Role.FRONTEND):
        for launch in component.launches:
            is_set = launch.env.get(ANTHROPIC[1], "").lower() in ("1", "true", "yes", "on")
            if ANTHROPIC[0] in launch.arguments or is_set:
                yield RuleResult(
                    location=Location(component.name, "field", ("main", "image")),
                    message=f"{component.name} serves /v1/messages with Dynamo 1.6.0 or 1.6.1, "
                    "which return HTTP 500 for long prompts",
                    fix=Fix(text="Use an image of Dynamo 1.6.2."),
                )


def no_requests_for_a_rank(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.SGLANG):
        most = positive_int(worker.get("max-running-requests"))
        if most is not None and most < worker.attention_ranks:
            yield _setting(
                worker,
                "max-running-requests",
                f"max-running-requests is {most}, but the worker has {worker.attention_ranks} "
                "attention ranks",
                f"Set max-running-requests to at least {worker.attention_ranks}.",
                max_running_requests=worker.attention_ranks,
            )


def checkpoint_with_graphs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _of(deployment, Engine.SGLANG):
        checkpoint = worker.pod.cursor.at("experimental")["checkpoint"]["enabled"].value
        is_checkpointed = checkpoint is True or worker.env("DYN_GMS_USE_V1") == "true"
        if is_checkpointed and worker.get("disable-cuda-graph") is not True:
            yield _setting(
                worker,
                "disable-cuda-graph",
                f"{worker.name} is checkpointed, but disable-cuda-graph is not set",
                "Set disable-cuda-graph.",
                disable_cuda_graph=True,
            )


def sglang_sidecar(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if any(launch.module == "dynamo.sglang.sidecar" for launch in component.launches):
            yield RuleResult(
                location=Location(component.name, "field", ("main", "image")),
                message=f"{component.name} runs dynamo.sglang.sidecar of Dynamo 1.5",
                fix=Fix(text="Run dynamo.sglang instead, or use an image of Dynamo 1.6."),
            )


def load_scaling(deployment: ServingDeployment) -> Iterable[RuleResult]:
    engines = {worker.engine for worker in deployment.workers}
    for location, config in configurations(deployment):
        target = value_of(config, "optimization_target", "throughput")
        by_load = value_of(config, "enable_load_scaling", False) is True
        is_sglang = Engine.SGLANG in engines and deployment.is_disaggregated
        if target == "sla" and by_load:
            limit = ">=1.2,<1.5"
        elif target == "load" and (is_sglang or Engine.TRTLLM in engines):
            limit = ">=1.3,<1.5" if is_sglang else ">=1.3,<1.4"
        else:
            continue
        # The target load scales by load whatever enable_load_scaling is.
        by_sla = (
            "" if target == "sla" else ", and optimization_target to sla with ttft_ms and itl_ms"
        )
        no_load_scaling = {} if by_sla else {"planner.config.enable_load_scaling": False}
        yield RuleResult(
            location=location,
            message=f"the planner scales by load with optimization_target {target}",
            fix=Fix(
                text=f"Use throughput scaling: set enable_load_scaling to false{by_sla}.",
                graph=no_load_scaling,
            ),
            versions=Versions(dynamo=limit),
        )
