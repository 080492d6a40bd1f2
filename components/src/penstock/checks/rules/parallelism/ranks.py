"""Rules of data-parallel ranks and of unequal pools."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.sglang_memory import has_window_pool


@rule(
    id="PS217",
    title="SGLang's data parallelism that cannot be laid out",
    level=Level.ERROR,
    cause="Under attention DP tp-size must divide by dp-size; without it data parallelism does "
    "not span nodes.",
    effect="An assertion at the start; with dp-size 1 attention DP is silently off.",
    remedy="Set dp-size to a divisor of tp-size.",
    source="sglang/srt/server_args.py 0.5.21; sglang#3750, sglang#15385",
)
def dp_over_nodes(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        ranks = worker.count("data_parallel") or 1
        attention_dp = worker.get("enable-dp-attention") is True
        if attention_dp and worker.tp % ranks:
            yield RuleResult(
                location=worker.settings.location("data_parallel"),
                message=f"tp-size {worker.tp} does not divide by dp-size {ranks} under "
                "attention DP",
                fix=Fix(text="use a divisor", config={"dp-size": worker.tp}),
            )
        elif attention_dp and ranks == 1:
            yield RuleResult(
                location=worker.config("enable-dp-attention"),
                message="enable-dp-attention has no effect with dp-size 1",
                fix=Fix(text="set dp-size", config={"dp-size": worker.tp}),
                level=Level.WARNING,
            )
        elif ranks > 1 and not attention_dp and worker.component.nodes > 1:
            yield RuleResult(
                location=worker.settings.location("data_parallel"),
                message=f"dp-size {ranks} over {worker.component.nodes} nodes without attention DP",
                fix=Fix(text="switch it on", config={"enable-dp-attention": True}),
            )


@rule(
    id="PS218",
    title="expert load balancing without expert parallelism",
    level=Level.ERROR,
    cause="vLLM's EPLB moves experts between ranks.",
    effect="vLLM ends at its start.",
    remedy="Switch expert parallelism on, or EPLB off.",
    source="vllm#21102",
)
def eplb_without_ep(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.VLLM and worker.get("enable-eplb") is True:
            if worker.get("enable-expert-parallel") is not True:
                yield RuleResult(
                    location=worker.config("enable-eplb"),
                    message="enable-eplb without enable-expert-parallel",
                    fix=Fix(text="switch it on", config={"enable-expert-parallel": True}),
                )


@rule(
    id="PS219",
    title="tensor parallelism of the pools that transfers take badly",
    level=Level.WARNING,
    cause="vLLM's NIXL connector wants decode's TP at least prefill's; SGLang needs a staging "
    "buffer where they differ, and with a pool of sliding layers (gpt-oss) moves nothing then.",
    effect="The handshake fails, or transfers are slow and unstable.",
    remedy="Decode's TP ≥ prefill's with vLLM; the same with SGLang.",
    source="llm-d docs/operations/disaggregation/vllm.md@3d016852; sglang#15674, llm-d#2433",
)
def tp_against_prefill(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        model = deployment.model
        if model is not None and model.is_mla:
            continue  # every rank holds the same latent
        if not (prefill.is_laid_out and decode.is_laid_out):
            continue
        if decode.tp < prefill.tp and decode.engine is Engine.VLLM:
            yield RuleResult(
                location=decode.settings.location("tensor_parallel"),
                message=f"{decode.name} has TP {decode.tp}, below {prefill.name}'s {prefill.tp}",
                fix=Fix(text="give decode at least prefill's tensor parallelism"),
                level=Level.NOTE if model is None else None,
            )
        elif decode.engine is Engine.SGLANG:
            first, second = (w.tp // w.attention_ranks for w in (prefill, decode))
            staged = all(w.env("SGLANG_DISAGG_STAGING_BUFFER") for w in (prefill, decode))
            # Which moves no pool of sliding layers (disaggregation/nixl/conn.py 0.5.21).
            has_windows = model is not None and has_window_pool(decode, model)
            if first != second and (has_windows or not staged):
                staging = Fix(
                    text="use the same, or a staging buffer on both pools",
                    env={"SGLANG_DISAGG_STAGING_BUFFER": "1"},
                    graph={"engine.env.SGLANG_DISAGG_STAGING_BUFFER": "1"},
                )
                same = Fix(text="use the same on both: sliding layers allow nothing else")
                level = Level.ERROR if has_windows else Level.NOTE if model is None else None
                yield RuleResult(
                    location=decode.settings.location("tensor_parallel"),
                    message=f"attention has TP {second} on {decode.name}, {first} on "
                    f"{prefill.name}",
                    level=level,
                    fix=same if has_windows else staging,
                )
