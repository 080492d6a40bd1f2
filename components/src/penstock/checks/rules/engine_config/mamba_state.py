"""Rules about SGLang's cache of recurrent layers (Mamba, gated delta net)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.exclusion import Exclusion, results
from penstock.checks.finding import Level, RuleResult
from penstock.manifests.deployment import Engine, Role
from penstock.models import ModelFacts
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# The flag's name before and since 0.5.14.
OLD, NEW = "mamba-scheduler-strategy", "mamba-radix-cache-strategy"
INTERVAL, DEFAULT_INTERVAL, CHUNK = "mamba-track-interval", 256, 64
NO_RADIX, PAGE = "disable-radix-cache", "page-size"


def state_strategy(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker)
        if worker.engine is not Engine.SGLANG or facts is None or not facts.kind:
            continue
        if facts.is_hybrid:
            yield from results(worker, (*_buffer(worker), *_no_buffer(worker)))
        elif facts.head_sizes or facts.is_mla:
            yield from results(worker, _without_state(worker, facts))


def _strategy(worker: Worker) -> tuple[str, str]:
    """(key, value)"""
    key = NEW if worker.get(NEW) is not None else OLD
    return key, str(worker.get(key) or "auto")


def _buffer(worker: Worker) -> Iterator[Exclusion]:
    key, strategy = _strategy(worker)
    if not strategy.startswith("extra_buffer") or worker.role is Role.DECODE:
        return
    if worker.get(NO_RADIX) is True:
        drafts = worker.value("speculation") is not None
        yield Exclusion(
            key=key,
            problem=f"{key} {strategy} excludes {NO_RADIX}",
            fix=f"Set {key} to no_buffer.",
            versions=">=0.5.10,<0.5.14",
        )
        if not drafts:
            yield Exclusion(
                key=key,
                problem=f"{key} {strategy} is useless with {NO_RADIX}",
                fix=f"Set {key} to no_buffer.",
                versions="<0.5.10",
                level=Level.WARNING,
                why="Each request takes two more states, which only the radix cache reads, so "
                "fewer requests run at the same time.",
            )
        return
    interval = positive_int(worker.get(INTERVAL)) or DEFAULT_INTERVAL
    page, drafted = worker.count("block_size"), worker.get("speculative-num-draft-tokens")
    if page and interval % page:
        yield Exclusion(
            key=INTERVAL if worker.get(INTERVAL) else PAGE,
            problem=f"{INTERVAL} {interval} is not a multiple of {PAGE} {page}",
            fix=f"Set {INTERVAL} to a multiple of {page}.",
        )
    elif page and max(CHUNK, page) % min(CHUNK, page):
        yield Exclusion(
            key=PAGE,
            problem=f"{PAGE} {page} neither divides the chunk of {CHUNK} tokens nor is a multiple "
            "of it",
            fix=f"Set {PAGE} to {CHUNK}.",
            versions="<0.5.19",
        )
    if (count := positive_int(drafted)) and interval < count:
        yield Exclusion(
            key=INTERVAL,
            problem=f"{INTERVAL} {interval} is below speculative-num-draft-tokens {count}",
            fix=f"Set {INTERVAL} to at least {count}.",
        )


def _no_buffer(worker: Worker) -> Iterator[Exclusion]:
    key, strategy = _strategy(worker)
    if worker.get(NO_RADIX) is True or worker.role is Role.DECODE:
        return
    drafts = worker.value("speculation") is not None
    if strategy in ("auto", "no_buffer") and drafts:
        yield Exclusion(
            key="speculative-algorithm",
            problem="speculative decoding with the radix cache requires mamba-scheduler-strategy "
            "extra_buffer for recurrent layers",
            fix="Set mamba-scheduler-strategy to extra_buffer and SGLANG_ENABLE_SPEC_V2=1, or set "
            f"{NO_RADIX}.",
            versions=">=0.5.10,<0.5.14",
        )
    if strategy != "no_buffer":
        return
    page = worker.count("block_size")
    if page and page > 1:
        yield Exclusion(
            key=PAGE,
            problem=f"{PAGE} is {page}, but {key} no_buffer supports only 1",
            fix=f"Set {PAGE} to 1, or {key} to extra_buffer.",
            versions=">=0.5.14",
        )
    if worker.get("attention-backend") == "trtllm_mha":
        yield Exclusion(
            key="attention-backend",
            problem=f"attention-backend trtllm_mha does not work with {key} no_buffer",
            fix=f"Set {key} to extra_buffer.",
            versions=">=0.5.14",
        )
    if worker.get("linear-attn-decode-backend") == "flashinfer":
        yield Exclusion(
            key="linear-attn-decode-backend",
            problem=f"linear-attn-decode-backend flashinfer does not work with {key} no_buffer",
            fix=f"Set {key} to extra_buffer.",
            versions=">=0.5.10,<0.5.11",
        )
    if worker.get("disable-overlap-schedule") is not True and worker.pp == 1:
        yield Exclusion(
            key=key,
            problem=f"{key} no_buffer requires disable-overlap-schedule",
            fix=f"Set disable-overlap-schedule, or {key} to auto.",
            versions=">=0.5.14",
        )


def _without_state(worker: Worker, facts: ModelFacts) -> Iterator[Exclusion]:
    if str(worker.get(NEW) or "").startswith("extra_buffer"):
        yield Exclusion(
            key=NEW,
            problem=f"{NEW} {worker.get(NEW)} needs recurrent layers, which {facts.kind} does not "
            "have",
            fix=f"Remove {NEW}.",
            versions=">=0.5.21",
        )
