"""Rules about SGLang's disaggregated workers: caches, pipeline stages and the staging buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine, Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

TIERS, DECODE_CACHE = "enable-hierarchical-cache", "disaggregation-decode-enable-radix-cache"
LMCACHE, STAGING = "enable-lmcache", "SGLANG_DISAGG_STAGING_BUFFER"


def _sglang(deployment: ServingDeployment) -> Iterator[Worker]:
    return (w for w in kv_transfer_workers(deployment) if w.engine is Engine.SGLANG)


@rule(
    id="PS456",
    title="the hierarchical cache on a decode worker without its radix cache",
    level=Level.ERROR,
    cause="SGLang turns the radix cache of decode workers off, and the hierarchical cache requires "
    "it.",
    effect="SGLang raises ValueError at startup.",
    remedy="Remove enable-hierarchical-cache from the decode workers.",
    source="sglang/srt/server_args.py 1318 and 1357 of 0.5.3.post2, 3243 and 3402 of 0.5.10.post1; "
    "arg_groups/pd_disaggregation_hook.py 113-121 and kv_cache_hook.py 394 of 0.5.21. 0.5.0rc2 "
    "checks nothing",
    versions=Versions(sglang=">=0.5.3"),
)
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


@rule(
    id="PS457",
    title="LMCache with a setting that SGLang excludes",
    level=Level.ERROR,
    cause="SGLang's LMCache supports neither disaggregated workers, speculative decoding, "
    "attention DP nor the hierarchical cache, and it requires the radix cache.",
    effect="SGLang exits at startup.",
    remedy="Remove enable-lmcache, or the other setting.",
    source="sglang/srt/arg_groups/kv_cache_hook.py 435-475 of 0.5.21",
    versions=Versions(sglang=">=0.5.21"),
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


@rule(
    id="PS458",
    title="decode workers have other pipeline stages than prefill workers",
    level=Level.ERROR,
    cause="SGLang transfers KV to decode workers without pipeline stages, or with as many as the "
    "prefill workers have.",
    effect="The decode worker fails an assertion at the first KV transfer.",
    remedy="Set pp-size of the decode workers to 1.",
    source="sglang/srt/disaggregation/common/conn.py 1077 of 0.5.21, 312 of 0.5.10, 380 of 0.5.8, "
    "348 of 0.5.6.post2; 0.5.4.post3 lacks the assertion",
    versions=Versions(sglang=">=0.5.6"),
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


@rule(
    id="PS459",
    title="the staging buffer with MLA",
    level=Level.ERROR,
    cause="SGLANG_DISAGG_STAGING_BUFFER gathers KV heads, which models with MLA do not have.",
    effect="SGLang raises RuntimeError at startup.",
    remedy="Remove the variable.",
    source="sglang/srt/disaggregation/prefill.py 197 and decode.py 438 of 0.5.21, prefill.py "
    "128 of 0.5.11; 0.5.10 ignores the variable for these models",
    versions=Versions(sglang=">=0.5.11"),
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
