"""Rules about models that the hub gives only to those who have accepted their license."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.rules.containers import NVIDIA_IMAGE, Process, processes, truth
from penstock.checks.version_range import Versions
from penstock.manifests.deployment import Role
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import WORKERS

# Repositories that the Hugging Face hub serves only with a token (2026-11).
GATED = re.compile(
    r"(meta-llama/(Llama-2-|Meta-Llama-3-|(Meta-)?Llama-3\.[1-3]-|Llama-4-|(Meta-)?Llama-Guard).*"
    r"|google/gemma-(2b|7b|1\.1|2-|3-|3n).*|google/(codegemma|paligemma|medgemma|shieldgemma).*"
    r"|mistralai/(Mistral-7B-v0\.1|Mistral-Large-Instruct-24(07|11)|Ministral-8B-Instruct-2410"
    r"|Codestral-22B-v0\.1)|CohereForAI/.*|CohereLabs/.*|databricks/dbrx-.*)"
)
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN", "HF_TOKEN_PATH")


def _may_have_token(process: Process) -> bool:
    """Whether the process gets a token or finds the model without the hub."""
    launch = process.launch
    given = any(name in launch.env or name in launch.unknown_variables for name in TOKENS)
    offline = any(truth(launch.env.get(n)) for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    express = any(name.startswith("MODEL_EXPRESS") for name in launch.env)
    own_hub = "HF_ENDPOINT" in launch.env
    unknown = bool(launch.secrets) or launch.has_unread_variables or launch.shell
    return given or offline or express or own_hub or unknown


def no_token(deployment: ServingDeployment) -> Iterable[RuleResult]:
    models = [str(worker.value("model") or "") for worker in deployment.one_worker_per_component]
    gated = next((model for model in models if GATED.fullmatch(model)), None)
    if gated is None:
        return
    for process in processes(deployment):
        role = process.component.role
        is_frontend = role is Role.FRONTEND and process.launch.module == "dynamo.frontend"
        if not (is_frontend or role in WORKERS) or not NVIDIA_IMAGE.match(process.image):
            continue
        if _may_have_token(process) or process.mount_paths:
            continue
        yield RuleResult(
            location=process.location("field", "main"),
            message=f"{gated} is gated, but {process.component.name} gets no Hugging Face token",
            fix=Fix(
                text="Give it the token of a Secret.",
                fields={"main/envFrom": [{"secretRef": {"name": "hf-token-secret"}}]},
                graph={"model.token_secret": "hf-token-secret"},
            ),
            versions=Versions(dynamo=">=0.7,<1.4") if is_frontend else None,
        )
