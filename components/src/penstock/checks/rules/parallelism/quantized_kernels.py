"""Rules about the format of a checkpoint and the GPUs that have kernels for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rule import rule
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


@rule(
    id="PS236",
    title="weights in a format without kernels for the GPU",
    level=Level.ERROR,
    cause="NVFP4 and MXFP8 are computed by the tensor cores of Blackwell. Some versions of the "
    "engines emulate them on Hopper, others do not.",
    effect="The worker stops while it loads the weights, or at the first batch: “Arch unsupported "
    "for CUTLASS FP4 GEMM”, or a minimum capability of 100.",
    remedy="Use an FP8 checkpoint, or Blackwell GPUs.",
    source="TensorRT-LLM#12591, TensorRT-LLM#2869, TensorRT-LLM#14775 (emulation on Hopper); "
    "get_min_capability in sglang/srt/layers/quantization/modelopt_quant.py 953 of 0.5.9, 1142 of "
    "0.5.11 (100) and 1223 of 0.5.14 (80), fp8.py 158 of 0.5.9, nvfp4_online.py 102 of 0.5.14; "
    "vllm/model_executor/layers/quantization/fp_quant.py, mxfp8.py and modelopt.py of 0.16.0 to "
    "0.31.0",
    versions=UNCHANGED,
    engines=(Engine.TRTLLM, Engine.VLLM, Engine.SGLANG),
)
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


@rule(
    id="PS238",
    title="NVFP4 checkpoint with quantization modelopt_fp8",
    level=Level.ERROR,
    cause="The weights are NVFP4, and quantization names ModelOpt's method for FP8.",
    effect="SGLang stops at startup: “ModelOptFp8Config only supports static FP8 quantization”, or "
    "because the method does not match the checkpoint.",
    remedy="Set quantization to modelopt_fp4.",
    source="ModelOptFp8Config.from_config in sglang/srt/layers/quantization/modelopt_quant.py 233 "
    "of 0.5.4.post3, 175 of 0.5.3.post2 to 464 of 0.5.16; sglang#14285",
    versions=Versions(sglang="<0.5.18"),
)
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
