"""Rules about what vLLM and SGLang require for a method of speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.speculation.speculative_decoding import (
    current_method,
    draft_length,
    speculating_workers,
)
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Engine
from penstock.positive_int import positive_int
from penstock.serving.deployment import ServingDeployment

ASYNC_METHODS = (
    *("eagle", "eagle3", "mtp", "draft_model", "ngram_gpu", "dspark", "dflash"),
    "extract_hidden_states",
)
# Methods that only vLLM's first model runner has. Later versions still have their limit.
FIRST_RUNNER = ("suffix", "custom_class")


def partial_eagle(deployment: ServingDeployment) -> Iterable[RuleResult]:
    names = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    for worker in deployment.workers:
        algorithm = str(worker.value("speculation") or "").upper()
        is_eagle = algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
        if worker.engine is not Engine.SGLANG or not is_eagle or worker.get("speculative-adaptive"):
            continue
        present = [name for name in names if worker.get(name) is not None]
        # With top-k 1 SGLang computes the number of draft tokens from the steps.
        is_chain = present == [*names[:2]] and positive_int(worker.get(names[1])) == 1
        if present and len(present) < len(names) and not is_chain:
            missing = [name for name in names if name not in present]
            config = dict(zip(names, (3, 1, 4), strict=True))
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"{', '.join(present)} is set without {', '.join(missing)}",
                fix=Fix(
                    text=f"Set all three to {', '.join(f'{n} {v}' for n, v in config.items())}, "
                    "or remove all three.",
                    config=config,
                ),
            )


def tree_with_chain_attention(deployment: ServingDeployment) -> Iterable[RuleResult]:
    names = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
    for worker in deployment.workers:
        width = positive_int(worker.get("speculative-eagle-topk")) or 1
        backends = [worker.get(name) for name in names]
        if worker.engine is Engine.SGLANG and width > 1 and "trtllm_mha" in backends:
            yield RuleResult(
                location=worker.config_location("speculative-eagle-topk"),
                message=f"speculative-eagle-topk is {width}, but attention backend trtllm_mha "
                "supports only 1",
                fix=Fix(
                    text="Set speculative-eagle-topk to 1.", config={"speculative-eagle-topk": 1}
                ),
            )


def unsupported_async_scheduling(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker, value in speculating_workers(deployment):
        method = str(value.get("method", ""))
        if worker.engine is Engine.VLLM and worker.get("async-scheduling") is True:
            if method and current_method(method) not in ASYNC_METHODS:
                yield RuleResult(
                    location=worker.config_location("async-scheduling"),
                    message=f"async-scheduling does not support speculative method {method}",
                    fix=Fix(
                        text="Set async-scheduling to false.", config={"async-scheduling": False}
                    ),
                    versions=None if method in FIRST_RUNNER else Versions(vllm=">=0.12,<0.33"),
                )


# vLLM's methods that need no draft model (`SpeculativeConfig.__post_init__` 0.31.0).
METHODS_WITHOUT_MODEL = (
    *("mtp", "dspark", "ngram", "[ngram]", "ngram_gpu", "suffix", "custom_class"),
    "extract_hidden_states",
)
SGLANG_METHODS_WITH_MODEL = ("EAGLE3", "STANDALONE", "DFLASH")


def no_draft_model(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        value = worker.value("speculation")
        if worker.engine is Engine.VLLM and isinstance(value, Mapping) and draft_length(value):
            method, key = str(value.get("method") or "draft_model"), "speculative-config.model"
            needs = current_method(method) not in METHODS_WITHOUT_MODEL
        elif worker.engine is Engine.SGLANG and value:
            method, key = str(value), "speculative-draft-model-path"
            needs = method.upper() in SGLANG_METHODS_WITH_MODEL
        else:
            continue
        if needs and not worker.get(key):
            is_120b = deployment.model is not None and deployment.model.name.endswith(
                "gpt-oss-120b"
            )
            config = {key: "nvidia/gpt-oss-120b-Eagle3-v3"} if is_120b else {}
            yield RuleResult(
                location=worker.settings.location("speculation"),
                message=f"speculative method {method} needs a draft model, but {key} is not set",
                fix=Fix(text=f"Set {key} to a draft model.", config=config),
            )
