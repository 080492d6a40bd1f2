"""Rules about models that see images."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
from penstock.checks.version_range import DYNAMO, Versions
from penstock.manifests.deployment import Engine
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

# `model_type` of the language part of models that are published for images and video. Others, such
# as Llama 4, can see too but are often served for text only.
VISION_LANGUAGE = ("qwen3_vl_text", "qwen3_vl_moe_text")
SWITCHES = ("--modality", "--enable-multimodal", "--encode-endpoint", "--disaggregation-mode")
VARIABLES = ("DYN_TRTLLM_MODALITY", "DYN_TRTLLM_ENABLE_MULTIMODAL")
# Since 1.1 the worker refuses the request instead of ignoring its images.
IGNORES, REFUSES = "<1.1", ">=1.1"


@rule(
    id="PS613",
    title="a vision model accepts only text",
    level=Level.WARNING,
    cause="The model is made for images, but the worker keeps --modality text, the default of "
    "Dynamo's TensorRT-LLM worker.",
    effect="Requests with images fail; before Dynamo 1.1 the images are ignored, and the response "
    "invents what they show.",
    remedy="Add --modality multimodal, or --enable-multimodal since Dynamo 1.3.",
    source="dynamo#7064; multimodal_processor in dynamo/trtllm/request_handlers/handler_base.py "
    "of 0.6.1 to 1.7.0; dynamo/trtllm/main.py 157 and 212 of 0.4.1",
    versions=DYNAMO,
    engines=(Engine.TRTLLM,),
    exceptions="It applies to aggregated workers of Qwen3-VL, whose config.json penstock knows. "
    "Text alone needs no flag: suppress it then.",
)
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
