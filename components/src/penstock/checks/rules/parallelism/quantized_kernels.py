"""Rules about the format of a checkpoint and the GPUs that have kernels for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.checks.finding import Fix, RuleResult
from penstock.checks.version_range import UNCHANGED, Versions
from penstock.manifests.deployment import Engine
from penstock.models.known import exact_config
from penstock.serving.deployment import ServingDeployment
from penstock.serving.worker import Worker

NAMED = re.compile(r"[-_.](nv)?fp4\b", re.IGNORECASE)
# TensorRT-LLM has no NVFP4 GEMM before SM 100; from 1.3.0rc19 on, it may dequantize (#14775).
# SGLang's modelopt_fp4 and mxfp8 state a capability of 100.
WITHOUT_NVFP4 = Versions(trtllm="<1.3.0rc19", sglang="<0.5.14")
# Value of quantization → versions that need SM 100.
BLACKWELL_ONLY = {
    Engine.SGLANG: {
        "mxfp8": UNCHANGED,
        "nvfp4_online": UNCHANGED,
    },
    Engine.VLLM: {
        "fp_quant": UNCHANGED,
        "mxfp8": Versions(vllm="<0.20"),
        "modelopt_mxfp8": Versions(vllm="<0.20"),
    },
}


def no_kernels(deployment: ServingDeployment) -> Iterable[RuleResult]:
    gpu = deployment.gpu
    for worker in deployment.workers if gpu is not None and gpu.sm < 100 else ():
        model, versions, found = str(worker.value("model") or ""), None, ""
        weights = str(worker.get("quantization"))
        if worker.engine in (Engine.TRTLLM, Engine.SGLANG) and _is_nvfp4(worker):
            versions, found = WITHOUT_NVFP4, f"{model} has NVFP4 weights"
        elif weights in BLACKWELL_ONLY.get(worker.engine, {}):
            versions = BLACKWELL_ONLY[worker.engine][weights]
            found = f"quantization is {weights}"
        if versions is not None and gpu is not None:
            yield RuleResult(
                location=worker.config_location("quantization")
                if weights in BLACKWELL_ONLY.get(worker.engine, {})
                else worker.settings.location("model"),
                message=f"{found}, for which there are no kernels on {gpu.name} (SM {gpu.sm})",
                fix=Fix(text="Use a checkpoint in FP8, or Blackwell GPUs."),
                versions=versions,
            )


def _is_nvfp4(worker: Worker) -> bool:
    """Whether the checkpoint's config says so or, if it is unknown, its name does."""
    name = str(worker.value("model") or "")
    config = exact_config(name)
    section = config.get("quantization_config") if config is not None else None
    if isinstance(section, dict):
        return str(section.get("quant_algo", "")).upper() == "NVFP4"
    return config is None and NAMED.search(name.rstrip("/").rpartition("/")[2]) is not None


def fp4_read_as_fp8(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.workers:
        is_fp8 = worker.get("quantization") == "modelopt_fp8"
        if worker.engine is Engine.SGLANG and is_fp8 and _is_nvfp4(worker):
            yield RuleResult(
                location=worker.config_location("quantization"),
                message=f"quantization is modelopt_fp8, but {worker.value('model')} has NVFP4 "
                "weights",
                fix=Fix(
                    text="Set quantization to modelopt_fp4.",
                    config={"quantization": "modelopt_fp4"},
                ),
            )
