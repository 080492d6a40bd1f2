"""Rules about data-parallel ranks and about pools with different parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.models.shape import ModelShape
from penstock.serving.deployment import ServingDeployment
from penstock.serving.sglang_memory import has_window_pool
from penstock.serving.worker import Worker


def invalid_data_parallelism(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is not Engine.SGLANG:
            continue
        ranks = worker.count("data_parallel") or 1
        attention_dp = worker.get("enable-dp-attention") is True
        if attention_dp and worker.tp % ranks:
            yield RuleResult(
                location=worker.settings.location("data_parallel"),
                message=f"tp-size {worker.tp} is not divisible by dp-size {ranks}, which "
                "attention DP requires",
                fix=Fix(
                    text=f"Set dp-size to {worker.tp}, or another divisor of tp-size.",
                    config={"dp-size": worker.tp},
                ),
            )
        elif attention_dp and ranks == 1:
            yield RuleResult(
                location=worker.config_location("enable-dp-attention"),
                message="enable-dp-attention has no effect with dp-size 1",
                fix=Fix(text=f"Set dp-size to {worker.tp}.", config={"dp-size": worker.tp}),
                level=Level.WARNING,
            )
        elif ranks > 1 and not attention_dp and worker.component.nodes > 1:
            yield RuleResult(
                location=worker.settings.location("data_parallel"),
                message=f"dp-size {ranks} spans {worker.component.nodes} nodes, which requires "
                "attention DP",
                fix=Fix(
                    text="Set enable-dp-attention to true.", config={"enable-dp-attention": True}
                ),
            )


def eplb_without_ep(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        if worker.engine is Engine.VLLM and worker.get("enable-eplb") is True:
            if worker.get("enable-expert-parallel") is not True:
                yield RuleResult(
                    location=worker.config_location("enable-eplb"),
                    message="enable-eplb requires enable-expert-parallel",
                    fix=Fix(
                        text="Set enable-expert-parallel to true.",
                        config={"enable-expert-parallel": True},
                    ),
                )


def tensor_parallelism_differs(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode in deployment.pairs:
        model = deployment.model
        if model is not None and model.is_mla:
            continue  # with MLA every rank holds the same KV
        if not (prefill.is_laid_out and decode.is_laid_out):
            continue
        if decode.engine is Engine.VLLM:
            yield from _unreadable_ranks(prefill, decode, model)
        if decode.tp < prefill.tp and decode.engine is Engine.VLLM:
            yield RuleResult(
                location=decode.settings.location("tensor_parallel"),
                message=f"{decode.name} has TP {decode.tp}, which is below TP {prefill.tp} of "
                f"{prefill.name}",
                fix=Fix(text=f"Raise TP of {decode.name} to at least {prefill.tp}."),
                level=Level.NOTE if model is None else None,
                versions=Versions(vllm="<0.14"),
            )
        elif decode.engine is Engine.SGLANG:
            first, second = (w.tp // w.attention_ranks for w in (prefill, decode))
            has_buffer = all(w.env("SGLANG_DISAGG_STAGING_BUFFER") for w in (prefill, decode))
            # It transfers no sliding-window layers (disaggregation/nixl/conn.py 0.5.21).
            has_windows = model is not None and has_window_pool(decode, model)
            if first != second and (has_windows or not has_buffer):
                buffer_or_same_tp = Fix(
                    text="Use the same TP on both pools, or (since SGLang 0.5.14) set "
                    "SGLANG_DISAGG_STAGING_BUFFER=1 on both.",
                    env={"SGLANG_DISAGG_STAGING_BUFFER": "1"},
                    graph={"engine.env.SGLANG_DISAGG_STAGING_BUFFER": "1"},
                )
                same_tp = Fix(
                    text="Use the same TP on both pools; the staging buffer does not support "
                    "sliding-window layers."
                )
                level = Level.ERROR if has_windows else Level.NOTE if model is None else None
                yield RuleResult(
                    location=decode.settings.location("tensor_parallel"),
                    message=f"attention TP is {second} on {decode.name} but {first} on "
                    f"{prefill.name}",
                    level=level,
                    fix=same_tp if has_windows else buffer_or_same_tp,
                )


def _unreadable_ranks(
    prefill: Worker, decode: Worker, model: ModelShape | None
) -> Iterator[RuleResult]:
    """Sizes for which NIXL's handshake fails an assertion."""
    if "Nixl" not in str(decode.get("kv-transfer-config.kv_connector")):
        return
    small, large = sorted((prefill.tp, decode.tp))
    has_every_layer = model is not None and len(model.windows) == model.layers
    problem, versions = "", None
    if large % small:
        problem = "neither divides the other"
    elif model and has_every_layer and model.kv_heads < prefill.tp and decode.tp < prefill.tp:
        problem = f"the model has only {model.kv_heads} KV heads, so prefill ranks share them"
        versions = Versions(vllm=">=0.31")
    if problem:
        yield RuleResult(
            location=decode.settings.location("tensor_parallel"),
            message=f"{decode.name} has TP {decode.tp}, {prefill.name} has TP {prefill.tp}, and "
            f"{problem}",
            fix=Fix(text=f"Set TP of {decode.name} to {prefill.tp}, as {prefill.name} has."),
            level=Level.ERROR,
            versions=versions,
        )
