"""Rules about models that see images."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import Versions
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# `model_type` of the language part of models that are published for images and video. Others, such
# as Llama 4, can see too but are often served for text only.
VISION_LANGUAGE = ("qwen3_vl_text", "qwen3_vl_moe_text")
SWITCHES = ("--modality", "--enable-multimodal", "--encode-endpoint", "--disaggregation-mode")
VARIABLES = ("DYN_TRTLLM_MODALITY", "DYN_TRTLLM_ENABLE_MULTIMODAL")
# Since 1.1 the worker refuses the request instead of ignoring its images.
IGNORES, REFUSES = "<1.1", ">=1.1"


def sees_no_images(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        facts = deployment.facts_of(worker) if worker.is_trtllm else None
        if facts is None or facts.kind not in VISION_LANGUAGE:
            continue
        if not worker.settings.is_complete or _says_more(worker):
            continue
        for versions, why in (
            (IGNORES, "Images are ignored, and the response invents what they show."),
            (REFUSES, "The worker refuses requests with images."),
        ):
            yield RuleResult(
                location=worker.location("args", "--modality"),
                message=f"{worker.name} serves a vision model without --modality multimodal",
                fix=Fix(
                    text="Add --modality multimodal, or suppress this rule if clients send only "
                    "text.",
                    args=("--modality", "multimodal"),
                ),
                why=why,
                versions=Versions(dynamo=versions),
            )


def _says_more(worker: Worker) -> bool:
    return worker.flag(*SWITCHES) is not None or any(worker.env(name) for name in VARIABLES)
