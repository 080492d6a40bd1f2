"""Rules about settings of vLLM's parallelism, scheduler and model that exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import RuleResult
from penstock.engines.setting_names import COMMON_SETTINGS
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

EPLB, REDUNDANT = "enable-eplb", "eplb-config.num_redundant_experts"
RANK, EXTERNAL = "data-parallel-rank", "data-parallel-external-lb"
PARTIAL, LONG_PARTIAL = "max-num-partial-prefills", "max-long-partial-prefills"
CHUNKED = "enable-chunked-prefill"
KV = COMMON_SETTINGS["kv_dtype"][Engine.VLLM]
# Object stores, and the versions of vLLM that read models from them, if not all do.
STORES = {"s3://": "", "gs://": "", "az://": ">=0.20"}
STREAMING = ("auto", "runai_streamer", "runai_streamer_sharded", "modelexpress")


def refused_together(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.VLLM or not worker.is_laid_out:
            continue
        facts = deployment.facts_of(worker)
        found = [*_balancing(worker, facts), *_ranks(worker, facts), *_scheduler(worker)]
        found += [*_loading(worker), *_cache(worker, facts)]
        yield from results(worker, found)


def _balancing(worker: Worker, facts: ModelFacts | None) -> Iterator[Exclusion]:
    redundant = positive_int(worker.get(REDUNDANT)) or 0
    ranks = worker.tp * worker.dp * worker.cp
    if worker.get(EPLB) is not True:
        if redundant:
            yield Exclusion(
                key=REDUNDANT,
                problem=f"num_redundant_experts is {redundant}, but {EPLB} is not set",
                fix=f"Set {EPLB}, or remove num_redundant_experts.",
            )
        return
    if ranks == 1:
        yield Exclusion(
            key=EPLB,
            problem=f"{EPLB} requires more than one GPU of tensor or data parallelism",
            fix=f"Remove {EPLB}.",
        )
    elif facts is not None and facts.experts and worker.ep > 1:
        if (facts.experts + redundant) % ranks:
            fitting = redundant + ranks - (facts.experts + redundant) % ranks
            yield Exclusion(
                key=REDUNDANT if redundant else EPLB,
                problem=f"{facts.experts} experts and {redundant} redundant ones cannot be divided "
                f"among {ranks} GPUs",
                fix=f"Set num_redundant_experts of eplb-config to {fitting}.",
            )


def _ranks(worker: Worker, facts: ModelFacts | None) -> Iterator[Exclusion]:
    rank = worker.get(RANK)
    if isinstance(rank, int) and worker.dp > 1 and rank >= worker.dp:
        yield Exclusion(
            key=RANK,
            problem=f"{RANK} {rank} is not below data-parallel-size {worker.dp}",
            fix=f"Set {RANK} to a value from 0 to {worker.dp - 1}.",
        )
    is_external = worker.get(EXTERNAL) is True or rank is not None
    if is_external and worker.dp > 1 and facts is not None and not facts.experts and facts.heads:
        yield Exclusion(
            key=RANK if rank is not None else EXTERNAL,
            problem=f"{worker.value('model')} has no experts, so it does not support external data "
            "parallelism",
            fix="Remove the data-parallel flags and use replicas.",
            versions=">=0.23",
        )
    if (
        worker.get("data-parallel-backend") == "ray"
        and (positive_int(worker.get("nnodes")) or 1) > 1
    ):
        yield Exclusion(
            key="data-parallel-backend",
            problem="nnodes above 1 requires data-parallel-backend mp, not ray",
            fix="Set data-parallel-backend to mp.",
        )
    if worker.get("async-scheduling") is True and worker.pp > 1:
        yield Exclusion(
            key="async-scheduling",
            problem=f"async-scheduling does not work with pipeline-parallel-size {worker.pp}",
            fix="Remove async-scheduling.",
            versions="<0.16",
        )


def _scheduler(worker: Worker) -> Iterator[Exclusion]:
    partial = positive_int(worker.get(PARTIAL)) or 1
    long = positive_int(worker.get(LONG_PARTIAL)) or 1
    if partial > 1 and worker.get(CHUNKED) is False:
        yield Exclusion(
            key=PARTIAL,
            problem=f"{PARTIAL} {partial} requires {CHUNKED}",
            fix=f"Set {CHUNKED}.",
            versions="<0.28",
        )
    if long > partial:
        yield Exclusion(
            key=LONG_PARTIAL,
            problem=f"{LONG_PARTIAL} {long} is above {PARTIAL} {partial}",
            fix=f"Set {LONG_PARTIAL} to at most {partial}.",
            versions="<0.28",
        )
    active, most = positive_int(worker.get("max-num-active-seqs")), worker.count("max_sequences")
    if active and most and active > most:
        yield Exclusion(
            key="max-num-active-seqs",
            problem=f"max-num-active-seqs {active} is above max-num-seqs {most}",
            fix=f"Set max-num-active-seqs to at most {most}.",
        )


def _loading(worker: Worker) -> Iterator[Exclusion]:
    model, load = str(worker.value("model") or "").lower(), worker.get("load-format")
    store = next((store for store in STORES if model.startswith(store)), None)
    if store and isinstance(load, str) and load not in STREAMING:
        yield Exclusion(
            key="load-format",
            problem=f"load-format is {load}, but models in an object store need runai_streamer",
            fix="Set load-format to runai_streamer.",
            versions=STORES[store],
        )
    section = worker.get("ec-transfer-config")
    if isinstance(section, dict) and section.get("ec_connector") and not section.get("ec_role"):
        yield Exclusion(
            key="ec-transfer-config",
            problem="ec-transfer-config has ec_connector without ec_role",
            fix="Set ec_role to ec_producer, ec_consumer or ec_both.",
        )


def _cache(worker: Worker, facts: ModelFacts | None) -> Iterator[Exclusion]:
    if worker.get(KV) == "nvfp4" and facts is not None and facts.is_mla:
        yield Exclusion(
            key=KV,
            problem=f"{KV} nvfp4 does not work with MLA ({worker.value('model')})",
            fix=f"Set {KV} to fp8.",
            versions=">=0.23",
        )
    if (
        positive_int(worker.get("mamba-block-size"))
        and worker.get("enable-prefix-caching") is False
    ):
        yield Exclusion(
            key="mamba-block-size",
            problem="mamba-block-size requires enable-prefix-caching",
            fix="Remove mamba-block-size.",
        )
