"""Rules about SGLang's KV transfer between pools of different attention TP, and its devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.kv_transfer.transfer import kv_transfer_workers
from penstock.manifests.deployment import Engine
from penstock.models import ModelFacts
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

BACKEND, DEVICE, NET_DEVICES = (
    "disaggregation-transfer-backend",
    "disaggregation-ib-device",
    "UCX_NET_DEVICES",
)
STAGING, NIXL_PLUGIN = "SGLANG_DISAGG_STAGING_BUFFER", "SGLANG_DISAGGREGATION_NIXL_BACKEND"
# Models that keep one latent for all heads, although their configuration is not that of MLA.
ONE_LATENT = ("deepseek_v4", "deepseek_v41_text", "deepseek_ref", "glm5_next_text")


def attention_tp(worker: Worker) -> int:
    """GPUs that share the KV heads of a sequence."""
    return max(1, worker.tp // worker.attention_ranks)


def _unequal_pairs(
    deployment: ServingDeployment, backend: str
) -> Iterator[tuple[Worker, Worker, ModelFacts]]:
    """Prefill and decode workers with different attention TP that transfer single KV heads."""
    for prefill, decode in deployment.pairs:
        facts = deployment.facts_of(decode)
        if decode.engine is not Engine.SGLANG or facts is None or not facts.kv_heads:
            continue
        if facts.is_mla or facts.kind in ONE_LATENT:
            continue
        pair = (prefill, decode)
        is_known = all(w.is_laid_out and w.settings.is_complete for w in pair)
        is_used = all(str(w.get(BACKEND) or "mooncake") == backend for w in pair)
        if is_known and is_used and not any(_stages(w) for w in pair):
            if attention_tp(prefill) != attention_tp(decode):
                yield prefill, decode, facts


def _stages(worker: Worker) -> bool:
    """Whether the staging buffer gathers the heads, or may."""
    is_on = (worker.env(STAGING) or "").lower() in ("1", "true", "yes", "y")
    return is_on or STAGING in worker.launch.unknown_variables


def _same_tp(prefill: Worker, decode: Worker) -> Fix:
    if decode.tp == prefill.tp:
        return Fix(
            text=f"Set dp-size {prefill.attention_ranks} and enable-dp-attention on "
            f"{decode.name} as on {prefill.name}."
            if prefill.has_attention_dp
            else f"Remove enable-dp-attention from {decode.name}, as {prefill.name} lacks it."
        )
    return Fix(text=f"Use the same TP and number of GPUs on {prefill.name} and {decode.name}.")


def sliced_by_mooncake(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode, facts in _unequal_pairs(deployment, "mooncake"):
        first, second = attention_tp(prefill), attention_tp(decode)
        if facts.kv_heads and facts.kv_heads > min(first, second):
            yield RuleResult(
                location=decode.settings.location("tensor_parallel"),
                message=f"{decode.name} has attention TP {second}, but {prefill.name} has {first}: "
                f"mooncake transfers the {facts.kv_heads} KV heads of each token separately",
                fix=_same_tp(prefill, decode),
            )


def more_gpus_than_heads(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for prefill, decode, facts in _unequal_pairs(deployment, "nixl"):
        first, second, heads = attention_tp(prefill), attention_tp(decode), facts.kv_heads or 1
        if facts.global_kv_heads is None and second // first > max(1, heads // first):
            yield RuleResult(
                location=decode.settings.location("tensor_parallel"),
                message=f"{decode.name} has attention TP {second} and {prefill.name} {first}, but "
                f"{decode.value('model')} has only {heads} KV heads",
                fix=_same_tp(prefill, decode),
            )


def ignored_device(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in kv_transfer_workers(deployment):
        device = worker.get(DEVICE)
        if worker.engine is not Engine.SGLANG or worker.get(BACKEND) != "nixl" or not device:
            continue
        launch = worker.launch
        is_unknown = launch.has_unread_variables or NET_DEVICES in launch.unknown_variables
        is_ucx = (worker.env(NIXL_PLUGIN) or "UCX").upper() == "UCX"
        if worker.env(NET_DEVICES) is None and is_ucx and not is_unknown:
            yield RuleResult(
                location=worker.config_location(DEVICE),
                message=f"NIXL does not read {DEVICE} {device}, and {NET_DEVICES} is not set",
                fix=Fix(text=f"Set {NET_DEVICES} to the devices, such as mlx5_0:1."),
            )
