"""Rules about variables of vLLM and SGLang that the version in the image does not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.version import Version

from penstock.checks.finding import Fix, Level, RuleResult
from penstock.checks.rules.command_line.variables import (
    VARIABLES_WITHOUT_EFFECT,
    vllm_versions,
    why_ignored,
)
from penstock.checks.rules.engine_config.accepted_values import ENGINES, since, versions_of
from penstock.engines.flags import Removed
from penstock.engines.value_history import Refusal, refusals
from penstock.manifests.pods import Pod
from penstock.serving.deployment import ServingDeployment

PREFIXES = ("VLLM_", "SGLANG_")
_ATTENTION = "--attention-config."
_MLA_PREFILL = f"{_ATTENTION}mla_prefill_backend"
# Before, the keys had the names of the variables, such as use_cudnn_prefill.
_FIRST_WITH_MLA_PREFILL = Version("0.21.0")
# Removed variables that selected a kernel, a limit or what responses contain, which the engine now
# decides otherwise, with the flag that replaced them (parsers of vLLM 0.31.0 and SGLang 0.5.21).
SELECTED: Mapping[str, str] = {
    "VLLM_FLASH_ATTN_VERSION": f"{_ATTENTION}flash_attn_version",
    "VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH": (
        f"{_ATTENTION}flash_attn_max_num_splits_for_cuda_graph"
    ),
    "VLLM_USE_TRTLLM_ATTENTION": f"{_ATTENTION}use_trtllm_attention",
    "VLLM_FLASHINFER_DISABLE_Q_QUANTIZATION": f"{_ATTENTION}disable_flashinfer_q_quantization",
    "VLLM_DISABLE_FLASHINFER_PREFILL": _MLA_PREFILL,
    "VLLM_USE_CUDNN_PREFILL": _MLA_PREFILL,
    "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL": _MLA_PREFILL,
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": "--moe-backend",
    "VLLM_NVFP4_GEMM_BACKEND": "--linear-backend",
    "VLLM_USE_FBGEMM": "--linear-backend",
    "VLLM_TEST_FORCE_FP8_MARLIN": "--linear-backend",
    "VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "--prefix-cache-retention-interval",
    "VLLM_MM_HASHER_ALGORITHM": "--mm-hasher-algorithm",
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": (
        "kv_connector_extra_config.kv_lease_duration in --kv-transfer-config"
    ),
    "SGLANG_CUTLASS_MOE": "--moe-runner-backend cutlass",
    "SGLANG_ENABLE_FLASHINFER_FP8_GEMM": "--fp8-gemm-backend",
    "SGLANG_ENABLE_FLASHINFER_GEMM": "--fp8-gemm-backend",
    "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8": "--fp8-gemm-backend",
    "SGLANG_FLASHINFER_FP4_GEMM_BACKEND": "--fp4-gemm-backend",
    "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE": "--radix-cache-backend",
    "SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS": "",
    "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": "",
    "SGLANG_ENABLE_THINKING": "",
    "SGLANG_REASONING_EFFORT": "",
    "SGLANG_FORWARD_TIMEOUT_MS": "",
    "SGLANG_GRAMMAR_TIMEOUT": "",
    "SGLANG_QUEUED_TIMEOUT_MS": "",
}
# Diagnostics, and hardware that no Dynamo image for NVIDIA GPUs runs on.
WITHOUT_CONSEQUENCE = re.compile(
    r"_(ROCM|AITER|TPU|XPU|XLA|NPU|HIP|CPU|LOG|LOGGING|DEBUG|PROFIL\w*|NVTX|BUILD|CI|USAGE)(_|$)"
)


def unread_variable(deployment: ServingDeployment) -> Iterable[RuleResult]:
    for worker in deployment.one_worker_per_component:
        engine = worker.engine
        names = worker.launch.env if engine in ENGINES else ()
        for name in names:
            if not name.startswith(PREFIXES) or name in VARIABLES_WITHOUT_EFFECT:
                continue
            for refusal in refusals(engine, "variables", "named", name):
                is_lost = _is_lost(name, refusal)
                instead = Removed(_replacement(name, refusal, worker.pod))
                yield RuleResult(
                    location=worker.location("env", name),
                    message=f"{name} has no effect{since(engine, refusal)}",
                    fix=Fix(text=instead.fix(name), env={name: None}),
                    level=None if is_lost else Level.NOTE,
                    why=why_ignored(name, worker.pod)
                    if is_lost
                    else "Nothing in the image reads the variable, so removing it changes nothing.",
                    versions=versions_of(engine, refusal),
                )


def _replacement(name: str, refusal: Refusal, pod: Pod) -> str:
    """The flag that replaced the variable in the version of the image; empty if none did."""
    if not refusal.removed_after:
        return ""  # the flag is newer than the variable
    flag = SELECTED.get(name, "")
    versions = vllm_versions(pod)
    if flag == _MLA_PREFILL and versions and versions[-1] < _FIRST_WITH_MLA_PREFILL:
        return f"{_ATTENTION}{name.removeprefix('VLLM_').lower()}"
    return flag


def _is_lost(name: str, refusal: Refusal) -> bool:
    """Whether the engine lacks what the variable asks for, or decides it otherwise."""
    is_new = bool(refusal.added_in)
    return name in SELECTED or (is_new and not WITHOUT_CONSEQUENCE.search(name))
