"""Rules about SGLang's disaggregated workers: caches, pipeline stages and the staging buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

TIERS, DECODE_CACHE = "enable-hierarchical-cache", "disaggregation-decode-enable-radix-cache"
LMCACHE, STAGING = "enable-lmcache", "SGLANG_DISAGG_STAGING_BUFFER"


def _sglang(deployment: ServingDeployment) -> Iterator[Worker]:
    return (w for w in kv_transfer_workers(deployment) if w.engine is Engine.SGLANG)


def tiers_on_decode(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _sglang(deployment):
        is_on = worker.get(TIERS) is True and worker.get(DECODE_CACHE) is not True
        # With disable-radix-cache PS422 reports it.
        if worker.role is Role.DECODE and is_on and worker.get("disable-radix-cache") is not True:
            yield RuleResult(
                location=worker.config_location(TIERS),
                message=f"{TIERS} on a decode worker requires {DECODE_CACHE}",
                fix=Fix(text=f"Remove {TIERS} from {worker.name}.", config={TIERS: None}),
            )


def excluded_by_lmcache(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG or worker.get(LMCACHE) is not True:
            continue
        excluded = {
            "disaggregation-mode": worker.role in (Role.PREFILL, Role.DECODE),
            "speculative-algorithm": worker.value("speculation") is not None,
            "enable-dp-attention": worker.has_attention_dp,
            TIERS: worker.get(TIERS) is True,
            "disable-radix-cache": worker.get("disable-radix-cache") is True,
        }
        found = [key for key, is_set in excluded.items() if is_set]
        if found:
            yield RuleResult(
                location=worker.config_location(LMCACHE),
                message=f"{LMCACHE} does not support {' and '.join(found)}",
                fix=Fix(text=f"Remove {LMCACHE}.", config={LMCACHE: None}),
            )


def pipeline_stages_differ(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        if decode.engine is not Engine.SGLANG or not (prefill.is_laid_out and decode.is_laid_out):
            continue
        if decode.pp not in (1, prefill.pp):
            yield RuleResult(
                location=decode.settings.location("pipeline_parallel"),
                message=f"{decode.name} has pp-size {decode.pp}, but {prefill.name} has "
                f"{prefill.pp}",
                fix=Fix(text="Set pp-size of the decode workers to 1.", config={"pp-size": 1}),
            )


def staging_with_mla(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in _sglang(deployment):
        facts = deployment.facts_of(worker)
        is_on = (worker.env(STAGING) or "").lower() in ("1", "true", "yes", "y")
        if is_on and facts is not None and facts.is_mla:
            yield RuleResult(
                location=worker.location("env", STAGING),
                message=f"{STAGING} is set, but {worker.value('model')} uses MLA",
                fix=Fix(text=f"Remove {STAGING}.", env={STAGING: None}),
            )
