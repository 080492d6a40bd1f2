"""Rules about known issues of a release whose cause is in the file (NVIDIA's page "Known Issues").

The range of a rule is that of the releases with the issue. Where the page does not name the release
that fixes it, the range ends where the next page no longer lists it, or has no end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
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


@rule(
    id="PS913",
    title="GPU Memory Service with expert parallelism",
    level=Level.ERROR,
    cause="load-format is gms, and enable-expert-parallel is set.",
    effect="vLLM calls Tensor.item() on a meta tensor, and the worker exits while it loads the "
    "model.",
    remedy="Disable expert parallelism, or use another load format.",
    source=f"{PAGE} 1.3.0; vllm#43928",
    versions=Versions(dynamo=">=1.3,<1.4"),
    engines=(Engine.VLLM,),
)
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


@rule(
    id="PS914",
    title="EAGLE-3 in a disaggregated deployment",
    level=Level.WARNING,
    cause="Prefill and decode workers of vLLM 0.23 draft with EAGLE-3. The crash also occurs with "
    "the same setting on both pools.",
    effect="Decode workers crash without a message under many KV transfers.",
    remedy=f"{NEWER}, or disable speculative decoding.",
    source=f"{PAGE} 1.3.0",
    versions=Versions(dynamo=">=1.3,<1.4"),
    engines=(Engine.VLLM,),
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


@rule(
    id="PS915",
    title="KVBM's PdConnector with the hybrid KV cache manager",
    level=Level.ERROR,
    cause="PdConnector inherits SupportsHMA from vLLM's MultiConnector, but does not support it.",
    effect="The NIXL handshake fails (VRAM_SEG), and no KV is transferred.",
    remedy=f"Set {HMA_FLAG} on both pools.",
    source=f"{PAGE} 1.3.0; vLLM 0.23.0",
    versions=Versions(dynamo=">=1.3,<1.4"),
    engines=(Engine.VLLM,),
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


@rule(
    id="PS916",
    title="AIConfigurator's timing in the mocker of Dynamo 1.3",
    level=Level.ERROR,
    cause="--aic-perf-model needs sdk.memory, which AIConfigurator 0.9.0 in the image lacks.",
    effect="The mocker exits at startup.",
    remedy="Remove --aic-perf-model, or use an image of Dynamo 1.4.",
    source=f"{PAGE} 1.3.0",
    versions=Versions(dynamo=">=1.3,<1.4"),
)
def mocker_timing(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.MOCKER and (flag := worker.flag("--aic-perf-model")):
            yield RuleResult(
                location=worker.location("args", flag.spelling),
                message=f"{worker.name} has {flag.spelling}, which this image does not support",
                fix=Fix(text=f"Remove {flag.spelling}.", replaces=flag.spelling),
            )


@rule(
    id="PS917",
    title="disaggregated SGLang over EFA",
    level=Level.WARNING,
    cause="NIXL in these images has a defect in its LIBFABRIC backend, which transfers KV over "
    "EFA. Dynamo 1.3.1 fixes it only on GB200, where requests stall sometimes.",
    effect="Requests return HTTP 200 without tokens after about 300 s.",
    remedy=f"{NEWER}, another transport, or aggregated serving.",
    source=f"{PAGE} 1.3.0 and 1.3.1; dynamo#12106",
    versions=Versions(dynamo=">=1.3,<1.4"),
    engines=(Engine.SGLANG,),
    exceptions="Images of other registries are not checked: their NIXL may be newer.",
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


@rule(
    id="PS918",
    title="wrong status for long prompts of the Messages API",
    level=Level.NOTE,
    cause="The frontend serves the Anthropic API from TensorRT-LLM workers.",
    effect="A request without streaming whose prompt exceeds max_num_tokens gets HTTP 500 instead "
    "of 400, so clients retry it.",
    remedy="Use an image of Dynamo 1.6.2.",
    source=f"{PAGE} 1.6.0; release notes of 1.6.2, which fixes it",
    versions=Versions(dynamo=">=1.6,<1.6.2"),
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


@rule(
    id="PS919",
    title="max-running-requests is smaller than the number of attention ranks",
    level=Level.ERROR,
    cause="Under attention DP, SGLang divides max-running-requests by data-parallel-size and "
    "rounds down.",
    effect="The worker exits with “max_running_request is zero”.",
    remedy="Set max-running-requests to at least data-parallel-size.",
    source=f"{PAGE} 1.4.0; resolve_max_num_reqs of SGLang 0.5.14 to 0.5.22, which 0.5.23 corrects",
    versions=Versions(sglang=">=0.5.14,<0.5.23"),
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


@rule(
    id="PS920",
    title="checkpoint of an SGLang worker with CUDA graphs",
    level=Level.ERROR,
    cause="The worker is checkpointed, and disable-cuda-graph is not set.",
    effect="SGLang exits at startup with NotImplementedError at its prefill CUDA graphs.",
    remedy="Set disable-cuda-graph.",
    source=f"{PAGE} 1.6.0 (also 1.5.0, 1.6.1 and 1.6.2)",
    versions=Versions(dynamo=">=1.5"),
    engines=(Engine.SGLANG,),
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


@rule(
    id="PS921",
    title="SGLang sidecar of Dynamo 1.5",
    level=Level.ERROR,
    cause="The sidecar's protocol is not that of SGLang 0.5.18 in the same image.",
    effect="Every request fails with HTTP 500 ('GenerateReqInput' object has no attribute "
    "'batch_size').",
    remedy="Use dynamo.sglang, or an image of Dynamo 1.6.",
    source=f"{PAGE} 1.5.0 and 1.5.1",
    versions=Versions(dynamo=">=1.5,<1.6"),
)
def sglang_sidecar(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for component in deployment.components:
        if any(launch.module == "dynamo.sglang.sidecar" for launch in component.launches):
            yield RuleResult(
                location=Location(component.name, "field", ("main", "image")),
                message=f"{component.name} runs dynamo.sglang.sidecar of Dynamo 1.5",
                fix=Fix(text="Run dynamo.sglang instead, or use an image of Dynamo 1.6."),
            )


@rule(
    id="PS922",
    title="the planner's load scaling does not scale",
    level=Level.WARNING,
    cause="With the target sla, load scaling remains in the state insufficient_data. With the "
    "target load, SGLang's prefill workers report a queue near zero, and TensorRT-LLM's workers of "
    "1.3 report no KV capacity.",
    effect="The planner does not change the number of replicas.",
    remedy="Use throughput scaling: set enable_load_scaling to false.",
    source=f"{PAGE} 1.2.0, 1.3.0 and 1.4.0; dynamo#13310",
    versions=Versions(dynamo=">=1.2,<1.5"),
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
        yield RuleResult(
            location=location,
            message=f"the planner scales by load with optimization_target {target}",
            fix=Fix(text="Scale by throughput: remove enable_load_scaling."),
            versions=Versions(dynamo=limit),
        )
